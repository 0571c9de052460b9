"""Usage to money, and when a rebase pays for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xnagent.core.tokens import Usage

PER_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars for a million tokens."""

    input_usd: float
    cached_usd: float
    output_usd: float
    cache_write_usd: float | None = None
    """What a token costs that is written to a cache; None: the same as any other input."""


def cost_usd(usage: Usage, price: Price | None) -> float | None:
    """What the usage costs; None if the price or the number of tokens is unknown."""
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
    fresh = usage.input_tokens - cached - written
    write_usd = price.input_usd if price.cache_write_usd is None else price.cache_write_usd
    parts = (
        fresh * price.input_usd,
        cached * price.cached_usd,
        written * write_usd,
        usage.output_tokens * price.output_usd,
    )
    return sum(parts) / PER_MILLION


def ceiling_usd(input_tokens: int, max_output_tokens: int, *, price: Price | None) -> float | None:
    """The most that a request can cost: nothing cached and the whole output used."""
    if price is None:
        return None
    dearest = max(price.input_usd, price.cache_write_usd or 0.0)
    return (input_tokens * dearest + max_output_tokens * price.output_usd) / PER_MILLION


def write_usd(tokens: int, price: Price) -> float:
    """What it costs to send tokens that no cache holds."""
    per_token = price.input_usd if price.cache_write_usd is None else price.cache_write_usd
    return tokens * per_token / PER_MILLION


def reread_usd(tokens: int, price: Price) -> float:
    """What it costs to send tokens once more that a cache holds."""
    return tokens * price.cached_usd / PER_MILLION


def break_even_steps(*, dropped: int, written: int, price: Price | None) -> float | None:
    """After how many steps the re-reads that a rebase saves have paid for what it writes; None if unknown or never."""
    if price is None or dropped <= 0:
        return None
    saved_per_step = reread_usd(dropped, price)
    if saved_per_step == 0:
        return None
    return max(0.0, write_usd(written, price) - reread_usd(written, price)) / saved_per_step
