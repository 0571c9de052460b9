"""What a cache is predicted to serve."""

import pytest

from xnagent.core.caching import CacheRule, predicted_tokens


@pytest.mark.parametrize(
    ("rule", "held", "predicted"),
    [
        (CacheRule(), None, None),
        (CacheRule(), 1_500, 1_500),
        (CacheRule(block_tokens=128), 1_500, 1_408),
        (CacheRule(block_tokens=128, minimum_tokens=1_024), 1_023, 0),
        (CacheRule(block_tokens=128, minimum_tokens=1_024), 1_024, 1_024),
        (CacheRule(block_tokens=64, minimum_tokens=1_000), 1_023, 0),
        (CacheRule(minimum_tokens=4_096), 4_095, 0),
        (CacheRule(minimum_tokens=4_096), 4_096, 4_096),
    ],
)
def test_M33_the_prediction_follows_block_and_minimum(rule, held, predicted):
    assert predicted_tokens(rule, held) == predicted
