"""Each provider's prefix cache on sizes alone: what it finds again of a request, and what it writes.

The rules are those that the scripted server of the tests keeps on bytes:

- `blocks`: any prefix in whole blocks (OpenAI before 5.6, vLLM);
- `requests` (DeepSeek): a prefix ends where an earlier request or its reply ended, or where two of them parted;
- `marks` (Anthropic, OpenAI since 5.6): a prefix ends where a marker stood. A request may hold four, each of which
  looks back over 20 blocks; every strategy gets one where its longest entry ends, so that this costs nothing;
- `none`: nothing is ever found.

A request that comes later than the lifetime after the one before finds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from xnagent.core.caching import CacheRule
from xnagent.core.lifetime import Outlook, Wait, is_long_worth, with_wait
from xnagent.core.pricing import Price
from xnagent.lab.requests import Chain, Request

Units = Literal["blocks", "requests", "marks", "none"]
DEEPSEEK_BLOCK_TOKENS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A cache's rule and a price list."""

    name: str
    model: str
    """Whose prices they are."""
    units: Units
    rule: CacheRule
    price: Price


def units_of(name: str, rule: CacheRule) -> tuple[Units, CacheRule]:
    """What can be read from a provider's cache, and its rule, completed from what its documentation once said."""
    match name:
        case "deepseek":
            return "requests", replace(rule, block_tokens=rule.block_tokens or DEEPSEEK_BLOCK_TOKENS)
        case "openai" if rule.block_tokens:
            return "blocks", rule
        case "openai" | "anthropic":
            return "marks", rule
        case _:
            return "none", CacheRule()


def uncached(price: Price) -> Price:
    """The price list of an endpoint that serves nothing from a cache and writes nothing to one."""
    tiers = tuple(replace(tier, price=uncached(tier.price)) for tier in price.tiers)
    return replace(price, cached_usd=price.input_usd, cache_write_usd=None, cache_write_long_usd=None, tiers=tiers)


@dataclass(slots=True, kw_only=True)
class Reading:
    """One request as the cache saw it, in tokens. What is neither cached nor written is input at the plain price."""

    cached: int
    written: int = 0
    is_long: bool = False
    """Whether it was written for the longer lifetime."""
    is_cold: bool = False
    """Whether what was there had expired."""


@dataclass(slots=True)
class _Line:
    """What is cached along one chain of requests: prefix lengths, ascending."""

    ends: list[int] = field(default_factory=list)
    total: int = 0
    at: float | None = None
    lifetime: float | None = None


@dataclass(slots=True, kw_only=True)
class Cache:
    """Takes the requests of one thread in order."""

    provider: Provider
    _lines: dict[Chain, _Line] = field(default_factory=dict)
    _waits: tuple[Wait, ...] = ()

    def read(self, request: Request) -> Reading:
        """What the cache does for a request; then the request is in it."""
        line = self._lines.setdefault(request.chain, _Line())
        is_cold = self._expire(line, request.at)
        while self.provider.units != "blocks" and line.ends and line.ends[-1] > request.common:
            line.ends.pop()
        found = self._found(line, request)
        is_long = self._is_long(request, found)
        self._keep(line, request, is_long=is_long)
        is_written = self.provider.units == "marks" and request.total >= (self.provider.rule.minimum_tokens or 0)
        written = request.total - found if is_written else 0
        return Reading(cached=found, written=written, is_long=is_long, is_cold=is_cold)

    def _expire(self, line: _Line, at: float | None) -> bool:
        waited = None if at is None or line.at is None else at - line.at
        if waited is not None:
            self._waits = with_wait(self._waits, waited, had_runs=False)
        line.at = line.at if at is None else at
        if waited is None or line.lifetime is None or waited <= line.lifetime:
            return False
        line.ends = []
        return True

    def _found(self, line: _Line, request: Request) -> int:
        rule = self.provider.rule
        block = rule.block_tokens or 1
        match self.provider.units:
            case "none":
                found = 0
            case "blocks":
                found = min(request.common, line.ends[-1]) // block * block if line.ends else 0
            case _:
                found = line.ends[-1] // block * block if line.ends else 0
        return found if found >= (rule.minimum_tokens or 0) else 0

    def _is_long(self, request: Request, found: int) -> bool:
        """The product's own choice of a lifetime, for every strategy."""
        rule = self.provider.rule
        if rule.long_lifetime_seconds is None or request.at is None:
            return False
        outlook = Outlook(waits=self._waits, has_runs=False, size_tokens=request.total, held_tokens=found)
        return is_long_worth(outlook, rule, price=self.provider.price)

    def _keep(self, line: _Line, request: Request, *, is_long: bool) -> None:
        parted = request.common if request.common < line.total else 0
        line.total = request.total
        rule = self.provider.rule
        line.lifetime = rule.long_lifetime_seconds if is_long else rule.lifetime_seconds
        match self.provider.units:
            case "blocks":
                line.ends = [request.total]
            case "requests":
                self._add(line, parted, request.total, request.total + request.reply if request.reply else 0)
            case "marks":
                self._add(line, request.fixed, request.stable, request.total)
            case "none":
                return

    def _add(self, line: _Line, *ends: int) -> None:
        for end in ends:
            if end and (not line.ends or end > line.ends[-1]):
                line.ends.append(end)
