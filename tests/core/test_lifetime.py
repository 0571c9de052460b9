"""Which lifetime a request asks of the cache: what it costs against what it is likely to save."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.caching import CacheRule
from xnagent.core.lifetime import (
    WAITS_KEPT,
    Outlook,
    Pending,
    Used,
    Wait,
    due_seconds,
    ending_share,
    is_long_worth,
    is_renewal_worth,
    long_wait_share,
    with_wait,
)
from xnagent.core.pricing import Price, Tier

RULE = CacheRule(lifetime_seconds=300.0, long_lifetime_seconds=3_600.0)
PRICE = Price(input_usd=4, cached_usd=0.4, cache_write_usd=5, cache_write_long_usd=8, output_usd=20)
"""An hour costs 3 more for a new token and saves 4.6 for each token of the whole, if the wait is a long one."""


def waits(*seconds: float, had_runs: bool = True) -> tuple[Wait, ...]:
    return tuple(Wait(seconds=one, had_runs=had_runs) for one in seconds)


def outlook(*, size: int = 10_000, held: int = 0, has_runs: bool = True, seen: tuple[Wait, ...] = ()) -> Outlook:
    return Outlook(waits=seen, has_runs=has_runs, size_tokens=size, held_tokens=held)


@pytest.mark.parametrize(
    ("seen", "has_runs", "share"),
    [
        ((), True, 0.25),
        ((), False, 0.0),
        (waits(600, 600), True, 2.5 / 4),
        (waits(10, 10), True, 0.5 / 4),
        (waits(300, 300.1, 3_600, 3_600.1), True, 2.5 / 6),
        (waits(600, 600), False, 0.0),
        (waits(600, 600, had_runs=False), False, 0.5),
        (waits(600, 600, had_runs=False), True, 0.25),
    ],
)
def test_M33_the_share_of_long_waits_is_that_of_waits_alike_and_an_assumption(seen, has_runs, share):
    assert long_wait_share(outlook(seen=seen, has_runs=has_runs), RULE) == pytest.approx(share)


@pytest.mark.parametrize(
    ("case", "is_worth"),
    [
        (outlook(size=10_000, held=0), False),
        (outlook(size=10_000, held=6_166), False),
        (outlook(size=10_000, held=6_167), True),
        (outlook(size=10_000, held=9_999, has_runs=False), False),
        (outlook(size=10_000, held=0, seen=waits(*[600] * 6)), True),
        (outlook(size=10_000, held=0, seen=waits(*[600] * 2)), False),
        (outlook(size=10_000, held=9_000, seen=waits(*[5] * 5)), True),
        (outlook(size=10_000, held=9_000, seen=waits(*[5] * 6)), False),
        (outlook(size=10_000, held=20_000), True),
    ],
)
def test_M33_an_hour_is_asked_for_if_it_is_expected_to_save_more_than_it_costs(case, is_worth):
    assert is_long_worth(case, RULE, price=PRICE) is is_worth


@pytest.mark.parametrize(
    ("rule", "price"),
    [
        (RULE, None),
        (RULE, Price(input_usd=4, cached_usd=0.4, cache_write_usd=5, output_usd=20)),
        (CacheRule(lifetime_seconds=300.0), PRICE),
        (CacheRule(long_lifetime_seconds=3_600.0), PRICE),
    ],
)
def test_without_prices_or_lifetimes_it_is_never_worth_it(rule, price):
    assert not is_long_worth(outlook(held=9_999, seen=waits(*[600] * 30)), rule, price=price)


def test_the_price_is_that_of_the_requests_size():
    steep = Price(input_usd=4, cached_usd=0.4, cache_write_usd=5, cache_write_long_usd=500, output_usd=20)
    price = Price(
        input_usd=4,
        cached_usd=0.4,
        cache_write_usd=5,
        cache_write_long_usd=8,
        output_usd=20,
        tiers=(Tier(above_tokens=100_000, price=steep),),
    )
    assert is_long_worth(outlook(size=100_000, held=90_000), RULE, price=price)
    assert not is_long_worth(outlook(size=100_001, held=90_000), RULE, price=price)


@given(
    size=st.integers(0, 10**6),
    held=st.integers(0, 10**6),
    long=st.integers(0, 20),
    short=st.integers(0, 20),
)
def test_more_long_waits_or_less_that_is_new_never_speak_against_it(size: int, held: int, long: int, short: int):
    seen = waits(*[600] * long, *[1] * short)
    if is_long_worth(outlook(size=size, held=held, seen=seen), RULE, price=PRICE):
        assert is_long_worth(
            outlook(size=size, held=held, seen=waits(*[600] * (long + 1), *[1] * short)), RULE, price=PRICE
        )
        assert is_long_worth(outlook(size=size, held=held + 1, seen=seen), RULE, price=PRICE)


def test_only_the_newest_waits_are_kept_and_unknown_ones_are_none():
    seen: tuple[Wait, ...] = ()
    for number in range(WAITS_KEPT + 5):
        seen = with_wait(seen, float(number), had_runs=bool(number % 2))
    assert len(seen) == WAITS_KEPT
    assert seen[-1] == Wait(seconds=WAITS_KEPT + 4.0, had_runs=(WAITS_KEPT + 4) % 2 == 1)
    assert with_wait(seen, None, had_runs=True) == seen


@pytest.mark.parametrize(
    ("used", "due"),
    [
        (Used(at_seconds=None, lifetime_seconds=300), 1_060),
        (Used(at_seconds=900, lifetime_seconds=None), 1_060),
        (Used(at_seconds=701, lifetime_seconds=300), 1_001),
        (Used(at_seconds=700, lifetime_seconds=300), 1_060),
        (Used(at_seconds=990, lifetime_seconds=300), 1_290),
    ],
)
def test_a_request_is_due_before_its_entry_expires_else_within_patience(used: Used, due: float):
    assert due_seconds(used, 1_000) == due


SHORT = CacheRule(lifetime_seconds=300.0)


def pending(*seconds: float, size: int = 100_000, waited: float = 290, output: int = 1) -> Pending:
    return Pending(
        size_tokens=size,
        waits=waits(*seconds),
        has_runs=True,
        waited_seconds=waited,
        least_output_tokens=output,
    )


@pytest.mark.parametrize(
    ("case", "share"),
    [
        (pending(), 0.25),
        (pending(10, 200), 0.25),
        (pending(400, 500), 2.5 / 4),
        (pending(591, 3_000), 0.5 / 4),
        (pending(400, 591, waited=580), 1.5 / 3),
    ],
)
def test_the_share_of_waits_that_end_in_time_is_that_of_those_that_lasted_as_long(case: Pending, share: float):
    assert ending_share(case, 300) == pytest.approx(share)


@pytest.mark.parametrize(
    ("case", "price", "is_worth"),
    [
        # 0.25 x 4.6 against 0.4 for each token.
        (pending(), PRICE, True),
        # A billed minimum of output outweighs a small history.
        (pending(size=100, output=16), PRICE, False),
        # Waits that go on and on.
        (pending(*[3_000] * 10), PRICE, False),
        # No write is dearer than a read that saves nothing.
        (pending(), Price(input_usd=1, cached_usd=0.5, output_usd=1), False),
        (pending(), None, False),
    ],
)
def test_a_renewal_is_worth_it_if_it_likely_costs_less_than_writing_again(case, price, is_worth):
    assert is_renewal_worth(case, SHORT, price=price) is is_worth


def test_nothing_is_renewed_where_nobody_says_how_long_it_lives():
    assert not is_renewal_worth(pending(), CacheRule(), price=PRICE)
