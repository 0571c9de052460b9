"""Usage to money, exactly."""

import pytest

from xnagent.core.pricing import Price, break_even_steps, ceiling_usd, cost_usd, reread_usd, write_usd
from xnagent.core.tokens import Usage

OPENAI = Price(input_usd=0.50, cached_usd=0.05, output_usd=3.00)
ANTHROPIC = Price(input_usd=3, cached_usd=0.30, output_usd=15, cache_write_usd=3.75)


@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        (Usage(input_tokens=20_000, cached_tokens=16_000, output_tokens=1_000), OPENAI, 0.0058),
        (
            Usage(input_tokens=10_007, cached_tokens=9_000, cache_write_tokens=1_000, output_tokens=200),
            ANTHROPIC,
            0.009471,
        ),
        (Usage(input_tokens=100, output_tokens=5_120, reasoning_tokens=1_710), OPENAI, (50 + 15_360) / 1e6),
        (Usage(input_tokens=100, output_tokens=60, reasoning_tokens=50), OPENAI, (50 + 180) / 1e6),
        (Usage(input_tokens=100, cached_tokens=900, output_tokens=0), OPENAI, 5 / 1e6),
        (Usage(input_tokens=100, cached_tokens=90, cache_write_tokens=90, output_tokens=0), OPENAI, 9.5 / 1e6),
    ],
    ids=["B067a", "B067b", "B070", "B070 odd gateway", "more cached than input", "written at the price of input"],
)
def test_B067_B070_costs(usage: Usage, price: Price, cost: float):
    assert cost_usd(usage, price) == pytest.approx(cost, rel=1e-12)


@pytest.mark.parametrize(
    ("usage", "price"),
    [
        (Usage(input_tokens=1, output_tokens=1), None),
        (Usage(input_tokens=1), OPENAI),
        (Usage(output_tokens=1), OPENAI),
    ],
)
def test_B069_an_unknown_cost_is_none(usage: Usage, price: Price | None):
    assert cost_usd(usage, price) is None


def test_T27_the_ceiling_assumes_that_nothing_is_cached():
    assert ceiling_usd(1_000, 100, price=OPENAI) == pytest.approx(0.0008)
    assert ceiling_usd(1_000, 100, price=ANTHROPIC) == pytest.approx(0.00525)
    assert ceiling_usd(1_000, 100, price=None) is None


def test_M51_a_rebase_pays_back_after_so_many_steps():
    written = write_usd(2_000, ANTHROPIC) - reread_usd(2_000, ANTHROPIC)
    saved = reread_usd(50_000, ANTHROPIC)
    assert break_even_steps(dropped=50_000, written=2_000, price=ANTHROPIC) == pytest.approx(written / saved)
    assert write_usd(1_000_000, OPENAI) == 0.5


@pytest.mark.parametrize(
    ("dropped", "price"),
    [(50_000, None), (0, OPENAI), (-3, OPENAI), (50_000, Price(input_usd=1, cached_usd=0, output_usd=1))],
)
def test_M51_never_or_unknown_is_none(dropped: int, price: Price | None):
    assert break_even_steps(dropped=dropped, written=2_000, price=price) is None


def test_M51_where_writing_is_no_dearer_it_pays_at_once():
    assert break_even_steps(dropped=1, written=9, price=Price(input_usd=1, cached_usd=2, output_usd=1)) == 0.0
