"""When a cache that served too little is told, and which cause is named."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.sessions import Story
from xnagent.core.caching import CacheRule
from xnagent.core.drift import Served, find_drift
from xnagent.core.fold import fold
from xnagent.core.ids import PLANNER
from xnagent.core.items import AssistantText
from xnagent.core.spine import replace_items
from xnagent.core.spine_events import CacheDrifted
from xnagent.core.tokens import Usage

RULE = CacheRule(lifetime_seconds=300.0, minimum_tokens=4_096)
SERVED = Served(
    predicted_tokens=20_000,
    reported_tokens=0,
    is_extension=True,
    is_first_of_process=False,
    is_first_of_model=False,
    pause_seconds=10.0,
)


@pytest.mark.parametrize(
    ("predicted", "reported", "has_drifted"),
    [
        (None, 0, False),
        (20_000, None, False),
        (0, 0, False),
        (1_024, 0, False),
        (1_025, 0, True),
        (5_000, 3_976, False),
        (5_000, 3_975, True),
        (20_000, 18_000, False),
        (20_000, 17_999, True),
        (20_000, 20_500, False),
    ],
)
def test_M33_drift_is_a_tenth_of_the_prediction_and_at_least_1024_tokens(predicted, reported, has_drifted):
    served = replace(SERVED, predicted_tokens=predicted, reported_tokens=reported)
    assert (find_drift(served, CacheRule()) is not None) is has_drifted


@pytest.mark.parametrize(
    ("changes", "rule", "cause"),
    [
        ({}, RULE, "unknown"),
        ({"pause_seconds": 300.0}, RULE, "unknown"),
        ({"pause_seconds": 300.1}, RULE, "lifetime"),
        ({"pause_seconds": 9_999.0}, CacheRule(), "unknown"),
        ({"predicted_tokens": 4_095}, RULE, "below_minimum"),
        ({"predicted_tokens": 4_096}, RULE, "unknown"),
        ({"predicted_tokens": 4_095}, CacheRule(), "unknown"),
        ({"is_first_of_process": True}, RULE, "process_changed"),
        ({"is_first_of_model": True}, RULE, "model_changed"),
        ({"is_first_of_model": True, "pause_seconds": 999.0}, RULE, "model_changed"),
        ({"is_extension": False}, RULE, "prefix_broken"),
        ({"is_extension": False, "is_first_of_process": True, "predicted_tokens": 4_000}, RULE, "prefix_broken"),
        ({"is_extension": False, "is_first_of_model": True}, RULE, "model_changed"),
    ],
)
def test_M33_the_likely_cause_is_named(changes, rule, cause):
    assert find_drift(replace(SERVED, **changes), rule) == cause


@given(served=st.from_type(Served), rule=st.from_type(CacheRule))
def test_the_judgement_is_total(served: Served, rule: CacheRule):
    cause = find_drift(served, rule)
    assert cause == find_drift(served, rule)
    if served.predicted_tokens is None or served.reported_tokens is None:
        assert cause is None


def test_what_the_cache_holds_is_the_reported_input_until_a_rebase():
    story = Story()
    story.begin()
    assert story.spine(PLANNER).held_tokens is None
    story.reply(PLANNER, AssistantText(text="a"), usage=Usage(input_tokens=900, output_tokens=40))
    spine = story.spine(PLANNER)
    assert (spine.held_tokens, spine.anchor_tokens) in {(900, 940), (None, None)}
    assert replace_items(replace(spine, held_tokens=9), spine.items, board=None, cursor=0).held_tokens is None


def test_a_drift_changes_no_state():
    story = Story()
    story.begin()
    drift = CacheDrifted(agent=PLANNER, request=1, predicted_tokens=9_000, reported_tokens=0, cause="unknown")
    assert fold(story.state, drift) == story.state
