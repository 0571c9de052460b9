"""The least that a thread can cost: the best times for rebases in hindsight, by dynamic programming.

Each token is paid in full once and read from the cache afterwards; a cache has expired only where the recorded pauses
say so, and the longer lifetime is bought exactly where it pays. What a rebase writes is what the product's would: the
checkpoint and the tail. A bare workload leaves out deltas, baseline and notes, and repeated answers: no strategy that
sends the work whole is cheaper. With them it is the optimum that the product's policy is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from xnagent.core.pricing import PER_MILLION, Price, long_write_usd, price_for, short_write_usd
from xnagent.lab.history import Terms
from xnagent.lab.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One request of a workload, in tokens."""

    new: int
    """What it adds to the history, the reply before not counted."""
    reply: int
    """What its reply adds."""
    kept: int
    """What a rebase before it leaves behind the first message: checkpoint and tail, with what is new."""
    output: int = 0
    wait_seconds: float | None = None
    """Since the request before; None: no cache has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What has to be sent, and how."""

    fixed: int
    """System, tools and first message, which the first request sends besides its `new`."""
    loads: Sequence[Load]
    most_tokens: int
    """No request is longer."""
    caches_replies: bool = False
    """Whether a reply can be read from the cache by the next request."""


Rates: TypeAlias = tuple[float, float, float, float]
"""Dollars for a token: read, written for the shorter lifetime, for the longer one, output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What tokens cost, and when a cache expires."""

    price: Price
    lifetime_seconds: float | None = None
    long_lifetime_seconds: float | None = None
    has_cache: bool = True

    def rates(self) -> Callable[[int], Rates]:
        """By the size of the request."""
        if not self.price.tiers:
            only = self._rates(self.price)
            return lambda _size: only
        return lambda size: self._rates(price_for(self.price, size))

    def _rates(self, price: Price) -> Rates:
        read = price.cached_usd if self.has_cache else price.input_usd
        write = short_write_usd(price) if self.has_cache else price.input_usd
        return (
            read / PER_MILLION,
            write / PER_MILLION,
            long_write_usd(price) / PER_MILLION,
            price.output_usd / PER_MILLION,
        )

    def survives(self, wait: float | None) -> bool | None:
        """Whether the shorter lifetime outlives a wait; None: only the longer one does."""
        if wait is None or self.lifetime_seconds is None or wait <= self.lifetime_seconds:
            return True
        return None if self.long_lifetime_seconds is not None and wait <= self.long_lifetime_seconds else False


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least cost and how it is reached."""

    usd: float
    rebases: tuple[int, ...] = ()
    """Numbers of the requests before which the history is replaced."""


def floor_of(workload: Workload, costs: Costs) -> Floor:
    """The best schedule. Infinite if the work fits under no schedule.

    A course is left when another that begins where it stands is cheaper by more than beginning there costs: that one
    can do whatever it can, with less to read again.
    """
    loads = workload.loads
    best, origin = [inf] * (len(loads) + 1), [0] * (len(loads) + 1)
    best[0] = 0.0
    course = _Course(workload=workload, costs=costs, rates=costs.rates())
    for begin in range(len(loads)):
        if best[begin] < inf:
            course.run(begin, best=best, origin=origin)
    return Floor(usd=best[-1], rebases=_rebases(origin))


def _rebases(origin: Sequence[int]) -> tuple[int, ...]:
    found, end = list[int](), len(origin) - 1
    while end > 0:
        end = origin[end]
        found.append(end)
    return tuple(number for number in reversed(found) if number)


@dataclass(slots=True, kw_only=True)
class _Course:
    """Plays all that follows one rebase, request by request."""

    workload: Workload
    costs: Costs
    rates: Callable[[int], Rates]

    def run(self, begin: int, *, best: list[float], origin: list[int]) -> None:
        """Improve what is known of the least cost up to each later request."""
        workload, loads = self.workload, self.workload.loads
        fixed, usd, written = workload.fixed, best[begin], 0
        size = fixed + (loads[begin].kept if begin else loads[0].new)
        held = fixed if begin else 0
        for number in range(begin, len(loads)):
            if number > begin:
                size += loads[number].new
                if usd >= best[number] + self.entry_usd(number) and size >= fixed + loads[number].kept:
                    return
            if size > workload.most_tokens:
                return
            usd += self.request_usd(number, size=size, held=held, written=written)
            written = size - held
            held = size + (loads[number].reply if workload.caches_replies else 0)
            size += loads[number].reply
            if usd < best[number + 1]:
                best[number + 1], origin[number + 1] = usd, begin

    def entry_usd(self, number: int) -> float:
        """At the most, what a rebase costs more than to go on."""
        read, write, long, _output = self.rates(self.workload.most_tokens)
        kept = self.workload.loads[number].kept + self.workload.fixed
        return kept * max(read, write, long)

    def request_usd(self, number: int, *, size: int, held: int, written: int) -> float:
        """One request of which `held` tokens were there before; `written` is what the request before wrote."""
        load = self.workload.loads[number]
        read, write, long, output = self.rates(size)
        survives = self.costs.survives(load.wait_seconds)
        warm = held * read + (size - held) * write
        if survives is False:
            warm = size * write
        elif survives is None:
            warm = min(size * write, warm + written * max(0.0, long - write))
        return warm + load.output * output


def costs_of(terms: Terms) -> Costs:
    """The terms' prices."""
    provider = terms.provider
    return Costs(
        price=provider.price,
        lifetime_seconds=provider.rule.lifetime_seconds,
        long_lifetime_seconds=provider.rule.long_lifetime_seconds,
        has_cache=provider.units != "none",
    )


def workload_of(work: Work, terms: Terms, *, is_bare: bool) -> Workload:
    """The work of a thread, with the product's deltas and notes or without."""
    loads, before = list[Load](), None
    for number, turn in enumerate(work.turns):
        at = turn.step.at
        news = -turn.repeated if is_bare else (turn.news if number else turn.snapshot)
        note = 0 if is_bare else turn.note
        loads.append(
            Load(
                new=news + turn.new,
                reply=turn.step.reply_tokens + note,
                kept=turn.snapshot + turn.tail,
                output=turn.step.output_tokens + note,
                wait_seconds=None if at is None or before is None else at - before,
            )
        )
        before = at if at is not None else before
    return Workload(
        fixed=work.fixed,
        loads=loads,
        most_tokens=terms.usable_tokens,
        caches_replies=terms.provider.units == "requests",
    )
