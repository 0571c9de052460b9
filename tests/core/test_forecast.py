"""Low, likely and high: in order, growing with size and price, and adding up."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnagent.core.caching import CacheRule
from xnagent.core.forecast import (
    PLANNER_PRIOR,
    RUNS_PRIOR,
    WORKER_PRIOR,
    AgentUse,
    Amount,
    Forecast,
    Habits,
    Outset,
    Spread,
    Terms,
    add_forecasts,
    add_use,
    error_share,
    forecast_agent,
    forecast_request,
    habits_of,
    quantile,
    repeated,
    spread,
    total_use,
)
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.pricing import Price, Tier
from xnagent.core.tokens import Usage

PRICE = Price(input_usd=3, cached_usd=0.3, output_usd=15)
TERMS = Terms(price=PRICE, room_tokens=100_000, max_output_tokens=8_000)
ONE = Spread(low=1, likely=1, high=1)
THREE = Habits(
    steps=Spread(low=3, likely=3, high=3),
    growth_tokens=Spread(low=100, likely=100, high=100),
    output_tokens=Spread(low=10, likely=10, high=10),
)

amounts = st.floats(0, 100, allow_nan=False)


@st.composite
def prices(draw: st.DrawFn) -> Price:
    """As prices are: what a cache holds is no dearer than what it does not, and longer requests are no cheaper."""
    cached, more, write, output = (draw(amounts) for _ in range(4))
    plain = Price(
        input_usd=cached + more,
        cached_usd=cached,
        output_usd=output,
        cache_write_usd=draw(st.sampled_from([None, cached + more + write])),
    )
    above, times = draw(st.integers(1, 50_000)), draw(st.floats(1, 3))
    dearer = Price(
        input_usd=plain.input_usd * times,
        cached_usd=plain.cached_usd * times,
        output_usd=plain.output_usd * times,
        cache_write_usd=None if plain.cache_write_usd is None else plain.cache_write_usd * times,
    )
    return replace(plain, tiers=draw(st.sampled_from([(), (Tier(above_tokens=above, price=dearer),)])))


spreads = st.lists(st.floats(0, 60, allow_nan=False), min_size=3, max_size=3).map(
    lambda values: Spread(**dict(zip(("low", "likely", "high"), sorted(values), strict=True)))
)
habits = st.builds(Habits, steps=spreads, growth_tokens=spreads, output_tokens=spreads)
outsets = st.builds(
    Outset,
    prefix_tokens=st.integers(0, 60_000),
    warm_tokens=st.integers(0, 60_000),
    is_warm=st.booleans(),
    missed_share=st.floats(0, 1),
    steps_done=st.integers(0, 70),
).map(lambda outset: replace(outset, warm_tokens=min(outset.warm_tokens, outset.prefix_tokens)))
terms = st.builds(
    Terms,
    price=st.one_of(st.none(), prices()),
    room_tokens=st.integers(1, 80_000),
    max_output_tokens=st.integers(1, 100),
    max_steps=st.one_of(st.none(), st.integers(1, 100)),
    summary_tokens=st.one_of(st.none(), st.integers(0, 2_000)),
)


def in_order(*numbers: float | None) -> bool:
    known = [number for number in numbers if number is not None]
    return all(left <= right * (1 + 1e-9) + 1e-12 for left, right in pairwise(known))


def ends(forecast: Forecast) -> tuple[Amount, Amount, Amount]:
    return forecast.low, forecast.likely, forecast.high


@settings(max_examples=150, deadline=None)
@given(outsets, habits, terms)
def test_low_is_at_most_likely_and_that_at_most_high(outset: Outset, manner: Habits, model: Terms):
    low, likely, high = ends(forecast_agent(outset, manner, terms=model))
    for name in ("requests", "input_tokens", "output_tokens", "tokens", "cost_usd"):
        assert in_order(getattr(low, name), getattr(likely, name), getattr(high, name))
    assert low.requests >= 1
    assert all((one.cost_usd is None) == (model.price is None) for one in (low, likely, high))


@settings(max_examples=100, deadline=None)
@given(outsets, habits, terms, st.floats(1, 10))
def test_a_dearer_price_never_makes_it_cheaper(outset: Outset, manner: Habits, model: Terms, times: float):
    if model.price is None:
        return
    price = replace(model.price, tiers=())
    dearer = Price(
        input_usd=price.input_usd * times,
        cached_usd=price.cached_usd * times,
        output_usd=price.output_usd * times,
        cache_write_usd=None if price.cache_write_usd is None else price.cache_write_usd * times,
    )
    before = forecast_agent(outset, manner, terms=replace(model, price=price))
    after = forecast_agent(outset, manner, terms=replace(model, price=dearer))
    for old, new in zip(ends(before), ends(after), strict=True):
        assert in_order(old.cost_usd, new.cost_usd)


@settings(max_examples=150, deadline=None)
@given(outsets, habits, terms, st.integers(0, 30_000))
def test_a_longer_prefix_never_makes_it_less(outset: Outset, manner: Habits, model: Terms, more: int):
    before = forecast_agent(outset, manner, terms=model)
    after = forecast_agent(replace(outset, prefix_tokens=outset.prefix_tokens + more), manner, terms=model)
    for old, new in zip(ends(before), ends(after), strict=True):
        assert old.tokens <= new.tokens
        assert in_order(old.cost_usd, new.cost_usd)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(outsets, habits), max_size=4), terms)
def test_a_batch_is_the_sum_of_its_sessions(parts: list[tuple[Outset, Habits]], model: Terms):
    found = [forecast_agent(outset, manner, terms=model) for outset, manner in parts]
    total = add_forecasts(found)
    for name in ("low", "likely", "high"):
        each = [getattr(one, name) for one in found]
        assert getattr(total, name).tokens == sum(one.tokens for one in each)
        if model.price is not None:
            assert getattr(total, name).cost_usd == pytest.approx(sum(one.cost_usd for one in each))
    assert add_forecasts([]) == Forecast()


def test_requests_read_what_the_one_before_left_in_the_cache():
    cold = forecast_agent(Outset(prefix_tokens=1_000, warm_tokens=800), THREE, terms=TERMS)
    assert (cold.likely.input_tokens, cold.likely.cached_tokens) == (1_000 + 1_100 + 1_200, 1_000 + 1_100)
    assert cold.low.cached_tokens == 800 + 1_000 + 1_100
    assert cold.high.cached_tokens == int(1_000 * 0.8) + int(1_100 * 0.8)
    warm = forecast_agent(Outset(prefix_tokens=1_000, warm_tokens=800, is_warm=True), THREE, terms=TERMS)
    assert warm.likely == warm.low
    usd = (1_200 * 3 + 2_100 * 0.3 + 30 * 15) / 1e6
    assert cold.likely.cost_usd == pytest.approx(usd)


def test_a_cache_that_expires_between_requests_is_paid_for():
    outset = Outset(prefix_tokens=1_000, missed_share=0.5)
    assert forecast_agent(outset, THREE, terms=TERMS).likely.cached_tokens == 500 + 550
    short = replace(TERMS, cache=CacheRule(minimum_tokens=1_050))
    assert forecast_agent(Outset(prefix_tokens=1_000), THREE, terms=short).likely.cached_tokens == 1_100


def test_writes_at_a_price_of_their_own_are_told_apart():
    price = replace(PRICE, cache_write_usd=3.75)
    found = forecast_request(
        Outset(prefix_tokens=1_000, warm_tokens=600, is_warm=True), THREE, terms=replace(TERMS, price=price)
    )
    assert (found.likely.uncached_tokens, found.likely.written_tokens, found.likely.cached_tokens) == (0, 400, 600)
    assert found.likely.cost_usd == pytest.approx((400 * 3.75 + 600 * 0.3 + 10 * 15) / 1e6)
    assert (found.low.requests, found.high.requests) == (1, 1)


def test_an_unknown_price_leaves_tokens():
    found = forecast_agent(Outset(prefix_tokens=10), THREE, terms=replace(TERMS, price=None))
    assert [one.cost_usd for one in ends(found)] == [None] * 3
    assert add_forecasts([found, Forecast()]).likely.cost_usd is None
    assert repeated(found, ONE).high.cost_usd is None


def test_nobody_takes_more_steps_than_allowed_and_everybody_one_more():
    few = replace(TERMS, max_steps=2)
    assert [one.requests for one in ends(forecast_agent(Outset(prefix_tokens=1), WORKER_PRIOR, terms=few))] == [2, 2, 2]
    done = Outset(prefix_tokens=1, steps_done=500)
    assert [one.requests for one in ends(forecast_agent(done, PLANNER_PRIOR, terms=TERMS))] == [1, 1, 1]


def test_little_history_is_weighed_with_the_assumption_and_much_is_not():
    prior = Spread(low=1, likely=2, high=3)
    assert spread([], prior) == prior
    assert spread([100], prior).low < spread([100], prior).likely < spread([100], prior).high
    assert spread([7] * 5, prior) == Spread(low=7, likely=7, high=7)
    assert quantile([0, 10], 0.25) == 2.5
    seen = AgentUse(steps=10, first_tokens=1_000, peak_tokens=1_900, input_tokens=14_500, output_tokens=500)
    found = habits_of([seen] * 5 + [AgentUse()], WORKER_PRIOR)
    assert (found.samples, found.steps.likely, found.growth_tokens.likely, found.output_tokens.high) == (5, 10, 100, 50)
    once = habits_of([replace(seen, steps=1)], WORKER_PRIOR)
    assert once.growth_tokens == WORKER_PRIOR.growth_tokens


def test_summaries_are_foreseen_as_requests_that_read_a_full_history():
    outset, once = Outset(prefix_tokens=1_000), Spread(low=30, likely=30, high=30)
    growth, output = Spread(low=1_000, likely=1_000, high=1_000), Spread(low=10, likely=10, high=10)
    manner = Habits(steps=once, growth_tokens=growth, output_tokens=output)
    model = Terms(price=None, room_tokens=10_000, max_output_tokens=100)
    plain = forecast_agent(outset, manner, terms=model).likely
    asked = forecast_agent(outset, manner, terms=replace(model, summary_tokens=1_500)).likely
    assert plain.requests == 30
    more = asked.requests - 30
    assert more == 1 + (30 - 10) // 6
    assert asked.output_tokens - plain.output_tokens == more * 1_500
    assert 9_000 * more <= asked.input_tokens - plain.input_tokens <= 10_000 * more
    wide = replace(model, summary_tokens=1_500, room_tokens=100_000)
    assert forecast_agent(outset, manner, terms=wide).likely.requests == 30


def test_runs_are_few_at_the_low_end_and_many_at_the_high_one():
    found = repeated(forecast_agent(Outset(prefix_tokens=1), replace(THREE, steps=ONE), terms=TERMS), RUNS_PRIOR)
    assert [one.requests for one in ends(found)] == [1, 3, 8]


def test_what_was_used_is_counted_by_agent_and_held_against_the_forecast():
    use = AgentUse()
    for size, output, cost in ((100, 5, 0.5), (250, 7, 0.25)):
        use = add_use(use, Usage(input_tokens=size, output_tokens=output, cached_tokens=50), price_usd=cost)
    assert use == AgentUse(
        steps=2, first_tokens=100, peak_tokens=250, input_tokens=350, cached_tokens=100, output_tokens=12, cost_usd=0.75
    )
    forecast = Forecast(likely=Amount(uncached_tokens=100, cost_usd=0.5))
    assert error_share(forecast, use) == pytest.approx(0.5)
    unknown = add_use(use, Usage(), price_usd=None)
    assert error_share(forecast, unknown) == pytest.approx(2.62)
    assert error_share(Forecast(), use) is None
    both = total_use({PLANNER: use, AgentId("r1"): use})
    assert (both.cost_usd, both.steps, both.input_tokens) == (1.5, 4, 700)
    assert total_use({PLANNER: use, AgentId("r1"): unknown}).cost_usd is None
