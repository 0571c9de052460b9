"""Usage to money."""

from __future__ import annotations

from typing import Final

from xnagent.core.tokens import Usage
from xnagent.core.values import dataclass

PER_MILLION: Final = 1_000_000
SATURDAY: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars for a million tokens."""

    input_usd: float
    cached_usd: float
    output_usd: float
    cache_write_usd: float | None = None
    """What a token costs that is written to a cache; None: the same as any other input."""
    cache_write_long_usd: float | None = None
    """The same for the longer of two lifetimes; None: there is but one, or its price is unknown."""
    tiers: tuple[Tier, ...] = ()
    """What longer requests cost."""
    off_peak: OffPeak | None = None
    """When all of that is cheaper; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPeak:
    """When a provider charges a share of its prices: outside the hours that are given."""

    share: float
    peaks: tuple[tuple[int, int], ...]
    """Minutes of the UTC day, from and up to: there the whole price holds."""
    has_weekends: bool = True
    """Whether Saturdays and Sundays have peaks too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The price of requests whose input is longer than this: of all their tokens, not only of those above."""

    above_tokens: int
    price: Price


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time of the week, in UTC."""

    weekday: int
    """Monday is 0."""
    minute: int
    """Of the day."""


def price_for(price: Price, input_tokens: int) -> Price:
    """The price of a request of that size: its own, or that of the highest tier which it reaches."""
    reached = [tier for tier in price.tiers if input_tokens > tier.above_tokens]
    return max(reached, key=lambda tier: tier.above_tokens).price if reached else price


def share_at(price: Price, at: Moment | None) -> float:
    """The share of the price that is charged at a time; without one all of it."""
    off_peak = price.off_peak
    if off_peak is None or at is None:
        return 1.0
    has_peaks = off_peak.has_weekends or at.weekday < SATURDAY
    is_peak = has_peaks and any(begin <= at.minute < end for begin, end in off_peak.peaks)
    return 1.0 if is_peak else off_peak.share


def cost_usd(usage: Usage, price: Price | None, *, at: Moment | None = None) -> float | None:
    """What the usage of one request costs; None if the price or the number of tokens is unknown.

    `at` is when it was sent, for prices that depend on it; None: at their highest.
    """
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    share = share_at(price, at)
    price = price_for(price, usage.input_tokens)
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
    long = min(usage.cache_write_long_tokens or 0, written)
    fresh = usage.input_tokens - cached - written
    parts = (
        fresh * price.input_usd,
        cached * price.cached_usd,
        (written - long) * short_write_usd(price),
        long * long_write_usd(price),
        usage.output_tokens * price.output_usd,
    )
    return sum(parts) * share / PER_MILLION


def short_write_usd(price: Price) -> float:
    """What a million tokens cost that are written for the shorter lifetime."""
    return price.input_usd if price.cache_write_usd is None else price.cache_write_usd


def long_write_usd(price: Price) -> float:
    """The same for the longer lifetime; where nobody says, as for the shorter one."""
    return short_write_usd(price) if price.cache_write_long_usd is None else price.cache_write_long_usd


def ceiling_usd(
    input_tokens: int, max_output_tokens: int, *, price: Price | None, is_long: bool = False
) -> float | None:
    """The most that a request can cost: nothing cached, the whole output used, with `is_long` all written for long."""
    if price is None:
        return None
    price = price_for(price, input_tokens)
    dearest = max(price.input_usd, short_write_usd(price), long_write_usd(price) if is_long else 0.0)
    return (input_tokens * dearest + max_output_tokens * price.output_usd) / PER_MILLION


def write_usd(tokens: int, price: Price) -> float:
    """What it costs to send tokens that no cache holds."""
    return tokens * short_write_usd(price) / PER_MILLION


def rewrite_usd(tokens: int, price: Price | None, *, size_tokens: int = 0) -> float | None:
    """What writing tokens anew costs more than reading them from a cache, in a request of that size; None: unknown."""
    if price is None:
        return None
    price = price_for(price, max(tokens, size_tokens))
    return tokens * max(0.0, short_write_usd(price) - price.cached_usd) / PER_MILLION
