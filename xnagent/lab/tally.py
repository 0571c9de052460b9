"""Sums over requests: tokens, money, and what happened to tokens that had been sent before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

from xnagent.core.pricing import Price, cost_usd, price_for
from xnagent.core.tokens import Usage
from xnagent.lab.caches import Cache, Provider, Reading
from xnagent.lab.requests import Request


@dataclass(slots=True, kw_only=True)
class Tally:
    """What requests used. Cached and written are parts of the input."""

    steps: int = 0
    """Of the recorded work."""
    unfinished: int = 0
    """Recorded steps that the strategy never came to: its context was full."""
    extra_calls: int = 0
    """Summaries, and calls that read again what was dropped."""
    lineages: int = 0
    """How often a request was not even meant to extend the one before it: rebases, summaries."""
    input: int = 0
    cached: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0
    peak: int = 0
    """Input of the longest request."""
    standing: int = 0
    """Tokens that stood in the request before, summed over requests of the same lineage."""
    reused: int = 0
    """What of those came from the cache."""
    lost_changed: int = 0
    """What of them was not sent again, or not in its place."""
    lost_lifetime: int = 0
    """What of them had expired."""
    lost_rounding: int = 0
    """What of them is left over behind the last whole block, or stands in no unit of the cache."""
    repeated: int = 0
    """New tokens that are the same bytes as an earlier answer."""
    usd: float = 0.0
    uncached_usd: float = 0.0
    """What the same requests would cost if nothing were cached."""

    @property
    def reuse(self) -> float | None:
        """Cached tokens to tokens that stood in the request before; None: none did."""
        return self.reused / self.standing if self.standing else None

    @property
    def share(self) -> float | None:
        """Cost as a share of the uncached price."""
        return self.usd / self.uncached_usd if self.uncached_usd else None


def plus(left: Tally, right: Tally) -> Tally:
    """Both."""
    total = {one.name: getattr(left, one.name) + getattr(right, one.name) for one in fields(Tally)}
    return Tally(**{**total, "peak": max(left.peak, right.peak)})


def total(tallies: Iterable[Tally]) -> Tally:
    """All of them."""
    sum_ = Tally()
    for tally in tallies:
        sum_ = plus(sum_, tally)
    return sum_


@dataclass(slots=True)
class _Amounts:
    fresh: int = 0
    cached: int = 0
    short: int = 0
    long: int = 0
    output: int = 0

    def usage(self) -> Usage:
        return Usage(
            input_tokens=self.fresh + self.cached + self.short + self.long,
            cached_tokens=self.cached,
            cache_write_tokens=self.short + self.long,
            cache_write_long_tokens=self.long,
            output_tokens=self.output,
        )


@dataclass(slots=True)
class Bill:
    """Adds up what requests cost, each at the price for its size."""

    price: Price
    _tiers: dict[int, tuple[Price, _Amounts]] = field(default_factory=dict)

    def add(self, size: int, *, cached: int, written: int, long: int, output: int) -> None:
        """One request."""
        price = price_for(self.price, size) if self.price.tiers else self.price
        amounts = self._tiers.setdefault(id(price), (price, _Amounts()))[1]
        amounts.fresh += size - cached - written
        amounts.cached += cached
        amounts.short += written - long
        amounts.long += long
        amounts.output += output

    @property
    def usd(self) -> float:
        """The sum."""
        bills = (cost_usd(amounts.usage(), replace(price, tiers=())) for price, amounts in self._tiers.values())
        return sum(usd or 0.0 for usd in bills)

    @property
    def uncached_usd(self) -> float:
        """The sum if nothing had been cached, and nothing written."""
        usages = ((replace(price, tiers=()), amounts.usage()) for price, amounts in self._tiers.values())
        bills = (cost_usd(_plain(usage), price) for price, usage in usages)
        return sum(usd or 0.0 for usd in bills)


def _plain(usage: Usage) -> Usage:
    return Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


@dataclass(slots=True)
class Meter:
    """Plays one thread's requests through a cache and counts."""

    provider: Provider
    tally: Tally = field(default_factory=Tally)

    def play(self, requests: Iterable[Request], *, steps: int) -> Tally:
        """Count all requests of a thread that has so many recorded steps."""
        cache, bill = Cache(provider=self.provider), Bill(self.provider.price)
        before: dict[str, int] = {}
        done = 0
        for request in requests:
            reading = cache.read(request)
            long = reading.written if reading.is_long else 0
            bill.add(request.total, cached=reading.cached, written=reading.written, long=long, output=request.output)
            done += request.purpose == "step"
            self._count(request, reading, standing=before.get(request.chain, 0))
            before[request.chain] = request.total
        self.tally.steps += done
        self.tally.unfinished += steps - done
        self.tally.usd += bill.usd
        self.tally.uncached_usd += bill.uncached_usd
        return self.tally

    def _count(self, request: Request, reading: Reading, *, standing: int) -> None:
        tally = self.tally
        tally.extra_calls += request.purpose != "step"
        tally.input += request.total
        tally.cached += reading.cached
        tally.written += reading.written
        tally.written_long += reading.written if reading.is_long else 0
        tally.output += request.output
        tally.repeated += request.repeated
        tally.peak = max(tally.peak, request.total)
        if request.begins or not standing:
            tally.lineages += bool(standing)
            return
        kept = min(request.common, standing)
        found = min(reading.cached, kept)
        tally.standing += standing
        tally.reused += found
        tally.lost_changed += standing - kept
        if reading.is_cold:
            tally.lost_lifetime += kept - found
        else:
            tally.lost_rounding += kept - found
