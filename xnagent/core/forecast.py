"""What an agent, a session or a batch is going to use: low, likely and high, from sizes, prices, caches and history.

An agent's requests are played through: the first is its prefix, each further one longer by what a step adds, and reads
from the cache what the one before left there. Steps, growth and output are the tenth, the half and nine tenths of what
was seen; where little was seen, stated assumptions are counted in. `low` takes the low end of everything at once and
`high` the high end, so the truth lies between them more often than in eight of ten cases; sums of forecasts are wider
still.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from xnagent.core.caching import CacheRule, predicted_tokens
from xnagent.core.evolve import evolve
from xnagent.core.ids import AgentId
from xnagent.core.pricing import Price, cost_usd, short_write_usd
from xnagent.core.tokens import Usage
from xnagent.core.values import dataclass

LOW: Final = 0.1
LIKELY: Final = 0.5
HIGH: Final = 0.9
ENOUGH_SAMPLES: Final = 5
"""With fewer, the assumptions are counted as three more."""
LEAST_FREED: Final = 0.5
"""Of the room, so much has to be filled again before the next summary is asked for."""
HIGH_MISSES: Final = 0.2
"""At the high end so many more requests than likely find nothing in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUse:
    """What one agent has used: a run, or a session's Planner."""

    steps: int = 0
    first_tokens: int = 0
    """Input of its first request."""
    peak_tokens: int = 0
    """Of its longest one."""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None: the cost of a request is unknown."""


def add_use(use: AgentUse, usage: Usage, *, price_usd: float | None) -> AgentUse:
    """The use with one more request, which cost `price_usd`."""
    size = usage.input_tokens or 0
    return evolve(
        use,
        steps=use.steps + 1,
        first_tokens=use.first_tokens if use.steps else size,
        peak_tokens=max(use.peak_tokens, size),
        input_tokens=use.input_tokens + size,
        cached_tokens=use.cached_tokens + (usage.cached_tokens or 0),
        output_tokens=use.output_tokens + (usage.output_tokens or 0),
        cost_usd=None if use.cost_usd is None or price_usd is None else use.cost_usd + price_usd,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A number that is not known yet."""

    low: float
    likely: float
    high: float


def spread(values: Iterable[float], prior: Spread) -> Spread:
    """The tenth, the half and nine tenths of the values; with few of them the assumption counts as three more."""
    seen = list(values)
    known = seen if len(seen) >= ENOUGH_SAMPLES else [*seen, prior.low, prior.likely, prior.high]
    if not seen:
        return prior
    known.sort()
    return Spread(low=quantile(known, LOW), likely=quantile(known, LIKELY), high=quantile(known, HIGH))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of the ordered values lies, interpolated."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How agents of a role went about their work so far."""

    steps: Spread
    growth_tokens: Spread
    """What a step adds to the next request: the reply and what the tools answered."""
    output_tokens: Spread
    """Of a step."""
    samples: int = 0
    """How many agents were seen; 0: all of it is assumed."""


WORKER_PRIOR: Final = Habits(
    steps=Spread(low=4, likely=12, high=40),
    growth_tokens=Spread(low=300, likely=1_000, high=3_000),
    output_tokens=Spread(low=80, likely=250, high=800),
)
"""Assumed of a Worker of which nothing like it was seen."""
PLANNER_PRIOR: Final = Habits(
    steps=Spread(low=4, likely=8, high=25),
    growth_tokens=Spread(low=200, likely=600, high=2_000),
    output_tokens=Spread(low=80, likely=300, high=1_000),
)
"""Assumed of a Planner."""
RUNS_PRIOR: Final = Spread(low=1, likely=3, high=8)
"""Assumed number of runs of a session."""


def habits_of(uses: Iterable[AgentUse], prior: Habits) -> Habits:
    """What was seen of agents that came to their end."""
    seen = [use for use in uses if use.steps]
    grown = [(use.peak_tokens - use.first_tokens) / (use.steps - 1) for use in seen if use.steps > 1]
    return Habits(
        steps=spread((use.steps for use in seen), prior.steps),
        growth_tokens=spread(grown, prior.growth_tokens),
        output_tokens=spread((use.output_tokens / use.steps for use in seen), prior.output_tokens),
        samples=len(seen),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What is used, in tokens and dollars; the three kinds of input are disjoint."""

    requests: int = 0
    uncached_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    """Written to a cache at a price of its own."""
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None: a price is not known."""

    @property
    def input_tokens(self) -> int:
        """All input."""
        return self.uncached_tokens + self.cached_tokens + self.written_tokens

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is going to be used: `low` is at most `likely`, that at most `high`, in tokens and in money."""

    low: Amount = field(default_factory=Amount)
    likely: Amount = field(default_factory=Amount)
    high: Amount = field(default_factory=Amount)
    samples: int = 0
    """From how many agents that were seen; 0: all of it is assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a model's requests cost, and how long they can be."""

    price: Price | None
    cache: CacheRule = field(default_factory=CacheRule)
    room_tokens: int
    """No request is longer: before that the spine is rebased."""
    max_output_tokens: int
    max_steps: int | None = None
    """Nobody takes more."""
    summary_tokens: int | None = None
    """Output of the request for a summary that goes before each rebase; None: there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outset:
    """Where an agent stands before the requests that are to be foreseen."""

    prefix_tokens: int
    """Its next request."""
    warm_tokens: int = 0
    """What a cache may hold of that."""
    is_warm: bool = False
    """Whether it probably still does."""
    missed_share: float = 0.0
    """Of its later requests, how many find nothing in the cache."""
    steps_done: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """One way in which it may go."""

    steps: int
    growth_tokens: int
    output_tokens: int
    warm_tokens: int
    missed_share: float


def forecast_agent(outset: Outset, habits: Habits, *, terms: Terms) -> Forecast:
    """What the agent's requests are going to use, from its next one to its end; at least that one."""
    warm = outset.warm_tokens
    missed = min(1.0, outset.missed_share + HIGH_MISSES)
    courses = (
        _course(outset, habits, terms=terms, end="low", cache=(warm, 0.0)),
        _course(outset, habits, terms=terms, end="likely", cache=(warm if outset.is_warm else 0, outset.missed_share)),
        _course(outset, habits, terms=terms, end="high", cache=(0, missed)),
    )
    low, likely, high = _ordered([_played(outset, course, terms=terms) for course in courses])
    return Forecast(low=low, likely=likely, high=high, samples=habits.samples)


def forecast_request(outset: Outset, habits: Habits, *, terms: Terms) -> Forecast:
    """What its next request alone is going to use: of an agent that goes on, or after a rebase."""
    once = Spread(low=1, likely=1, high=1)
    return forecast_agent(replace(outset, steps_done=0), replace(habits, steps=once), terms=terms)


def _course(outset: Outset, habits: Habits, *, terms: Terms, end: str, cache: tuple[int, float]) -> _Course:
    steps = _whole(getattr(habits.steps, end), end) - outset.steps_done
    if terms.max_steps is not None:
        steps = min(steps, terms.max_steps - outset.steps_done)
    warm, missed = cache
    return _Course(
        steps=max(1, steps),
        growth_tokens=_whole(getattr(habits.growth_tokens, end), end),
        output_tokens=min(_whole(getattr(habits.output_tokens, end), end), terms.max_output_tokens),
        warm_tokens=warm,
        missed_share=missed,
    )


def _whole(number: float, end: str) -> int:
    """A whole number towards its end."""
    if end == "likely":
        return max(0, round(number))
    return max(0, math.floor(number) if end == "low" else math.ceil(number))


def _played(outset: Outset, course: _Course, *, terms: Terms) -> Amount:
    amount, held, hit_share = Amount(), course.warm_tokens, 1.0
    size = min(outset.prefix_tokens, terms.room_tokens)
    grown, spacing = size, LEAST_FREED * terms.room_tokens
    for _ in range(course.steps):
        cached = math.floor(min(size, predicted_tokens(terms.cache, held) or 0) * hit_share)
        amount = add_amounts(amount, _request(size, cached, output=course.output_tokens, price=terms.price))
        held, hit_share = size, 1.0 - course.missed_share
        grown += course.growth_tokens
        if terms.summary_tokens is not None and size + course.growth_tokens > terms.room_tokens and grown > spacing:
            amount = add_amounts(amount, _request(size, size, output=terms.summary_tokens, price=terms.price))
            grown = 0
        size = min(size + course.growth_tokens, terms.room_tokens)
    return amount


def _request(size: int, cached: int, *, output: int, price: Price | None) -> Amount:
    fresh = size - cached
    is_written = price is not None and short_write_usd(price) != price.input_usd
    written = fresh if is_written else 0
    usage = Usage(input_tokens=size, cached_tokens=cached, cache_write_tokens=written, output_tokens=output)
    return Amount(
        requests=1,
        uncached_tokens=fresh - written,
        cached_tokens=cached,
        written_tokens=written,
        output_tokens=output,
        cost_usd=cost_usd(usage, price),
    )


def _ordered(amounts: Sequence[Amount]) -> list[Amount]:
    """The costs in order, also where a price list makes a longer or an uncached request the cheaper one."""
    costs = sorted(amount.cost_usd for amount in amounts if amount.cost_usd is not None)
    if len(costs) < len(amounts):
        return list(amounts)
    return [replace(amount, cost_usd=cost) for amount, cost in zip(amounts, costs, strict=True)]


def add_amounts(left: Amount, right: Amount) -> Amount:
    """Both; an unknown cost makes the sum unknown."""
    unknown = left.cost_usd is None or right.cost_usd is None
    return Amount(
        requests=left.requests + right.requests,
        uncached_tokens=left.uncached_tokens + right.uncached_tokens,
        cached_tokens=left.cached_tokens + right.cached_tokens,
        written_tokens=left.written_tokens + right.written_tokens,
        output_tokens=left.output_tokens + right.output_tokens,
        cost_usd=None if unknown else (left.cost_usd or 0.0) + (right.cost_usd or 0.0),
    )


def add_forecasts(forecasts: Iterable[Forecast]) -> Forecast:
    """All of them: the sum of the low ends, of the likely values and of the high ends."""
    total = Forecast()
    for one in forecasts:
        total = Forecast(
            low=add_amounts(total.low, one.low),
            likely=add_amounts(total.likely, one.likely),
            high=add_amounts(total.high, one.high),
            samples=total.samples + one.samples,
        )
    return total


def repeated(forecast: Forecast, times: Spread) -> Forecast:
    """So many of them: few at the low end, many at the high one."""
    return Forecast(
        low=_times(forecast.low, _whole(times.low, "low")),
        likely=_times(forecast.likely, _whole(times.likely, "likely")),
        high=_times(forecast.high, _whole(times.high, "high")),
        samples=forecast.samples,
    )


def _times(amount: Amount, number: int) -> Amount:
    return Amount(
        requests=amount.requests * number,
        uncached_tokens=amount.uncached_tokens * number,
        cached_tokens=amount.cached_tokens * number,
        written_tokens=amount.written_tokens * number,
        output_tokens=amount.output_tokens * number,
        cost_usd=None if amount.cost_usd is None else amount.cost_usd * number,
    )


def error_share(forecast: Forecast, use: AgentUse) -> float | None:
    """By what share more (less: negative) was used than likely, in money, else in tokens; None: there is no scale."""
    likely, used = forecast.likely.cost_usd, use.cost_usd
    if likely is None or used is None or not likely:
        likely, used = float(forecast.likely.tokens), float(use.input_tokens + use.output_tokens)
    return None if not likely else used / likely - 1.0


def total_use(uses: Mapping[AgentId, AgentUse]) -> AgentUse:
    """What all agents have used."""
    costs = [use.cost_usd for use in uses.values()]
    return AgentUse(
        steps=sum(use.steps for use in uses.values()),
        input_tokens=sum(use.input_tokens for use in uses.values()),
        cached_tokens=sum(use.cached_tokens for use in uses.values()),
        output_tokens=sum(use.output_tokens for use in uses.values()),
        cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
    )
