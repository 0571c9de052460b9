"""Usage to money, exactly."""

from dataclasses import replace

import pytest

from xnagent.core.pricing import (
    Moment,
    OffPeak,
    Price,
    Tier,
    ceiling_usd,
    cost_usd,
    price_for,
    write_usd,
)
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


def test_what_is_sent_that_no_cache_holds_costs_its_write():
    assert write_usd(1_000_000, OPENAI) == 0.5
    assert write_usd(1_000_000, ANTHROPIC) == 3.75


BY_LIFETIME = Price(input_usd=4, cached_usd=0.4, cache_write_usd=5, cache_write_long_usd=8, output_usd=20)


@pytest.mark.parametrize(
    ("short", "long", "dollars"),
    [
        (None, None, 100 * 5),
        (60, 40, 60 * 5 + 40 * 8),
        (0, 100, 100 * 8),
        (None, 40, 60 * 5 + 40 * 8),
        (0, 900, 100 * 8),
    ],
    ids=["not split", "both", "all long", "one side", "more than was written"],
)
def test_M61_written_tokens_cost_by_lifetime(short: int | None, long: int | None, dollars: int):
    usage = Usage(
        input_tokens=100,
        cache_write_tokens=100,
        cache_write_short_tokens=short,
        cache_write_long_tokens=long,
        output_tokens=0,
    )
    assert cost_usd(usage, BY_LIFETIME) == pytest.approx(dollars / 1e6)
    assert cost_usd(usage, ANTHROPIC) == pytest.approx(375 / 1e6)


def test_T27_the_ceiling_counts_the_longer_lifetime_only_where_it_is_asked_for():
    assert ceiling_usd(1_000, 0, price=BY_LIFETIME) == pytest.approx(0.005)
    assert ceiling_usd(1_000, 0, price=BY_LIFETIME, is_long=True) == pytest.approx(0.008)
    assert ceiling_usd(1_000, 0, price=ANTHROPIC, is_long=True) == pytest.approx(0.00375)


DEAR = Price(input_usd=2, cached_usd=0.2, output_usd=4)
DEARER = Price(input_usd=3, cached_usd=0.3, output_usd=6)
TIERED = Price(
    input_usd=1,
    cached_usd=0.1,
    output_usd=3,
    tiers=(Tier(above_tokens=500_000, price=DEARER), Tier(above_tokens=272_000, price=DEAR)),
)


@pytest.mark.parametrize(
    ("size", "input_usd"), [(0, 1), (272_000, 1), (272_001, 2), (500_000, 2), (500_001, 3), (10**7, 3)]
)
def test_C10_the_highest_tier_that_is_reached_holds_for_all_tokens(size: int, input_usd: float):
    assert price_for(TIERED, size).input_usd == input_usd
    assert price_for(OPENAI, size) == OPENAI
    assert ceiling_usd(size, 0, price=TIERED) == pytest.approx(size * input_usd / 1e6)
    assert cost_usd(Usage(input_tokens=size, output_tokens=0), TIERED) == pytest.approx(size * input_usd / 1e6)


def test_C10_output_and_cached_tokens_have_the_tier_of_the_input():
    usage = Usage(input_tokens=300_000, cached_tokens=200_000, output_tokens=1_000)
    assert cost_usd(usage, TIERED) == pytest.approx((100_000 * 2 + 200_000 * 0.2 + 1_000 * 4) / 1e6)


WEEKDAYS = OffPeak(share=0.5, peaks=((60, 240), (360, 600)), has_weekends=False)


@pytest.mark.parametrize(
    ("at", "share"),
    [
        (None, 1.0),
        (Moment(weekday=0, minute=59), 0.5),
        (Moment(weekday=0, minute=60), 1.0),
        (Moment(weekday=0, minute=239), 1.0),
        (Moment(weekday=0, minute=240), 0.5),
        (Moment(weekday=4, minute=599), 1.0),
        (Moment(weekday=5, minute=120), 0.5),
        (Moment(weekday=6, minute=420), 0.5),
    ],
    ids=["unknown", "before", "from", "in", "until", "Friday", "Saturday", "Sunday"],
)
def test_C11_off_peak_prices_hold_outside_the_hours_of_weekdays(at: Moment | None, share: float):
    price = replace(TIERED, off_peak=WEEKDAYS)
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    assert cost_usd(usage, price, at=at) == pytest.approx(3 * share)
    assert cost_usd(usage, TIERED, at=at) == pytest.approx(3)
    assert ceiling_usd(1_000_000, 0, price=price) == pytest.approx(3)


def test_C11_weekends_may_have_peaks_too():
    price = replace(OPENAI, off_peak=replace(WEEKDAYS, has_weekends=True))
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    assert cost_usd(usage, price, at=Moment(weekday=5, minute=120)) == pytest.approx(0.5)
