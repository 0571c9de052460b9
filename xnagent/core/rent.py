"""Rent or buy: when a rebase pays for itself. Sizes and prices in, dollars out; nothing else is known here.

What a rebase could drop costs *rent*: each request reads it again. Getting rid of it has a *price*: checkpoint and tail
are written anew, and some of what was dropped will be fetched again. Rent is summed up since the last rebase, and the
next one is due before the request whose rent would lift the sum above the lowest price that was seen since. Then input
costs at most twice what the best schedule in hindsight costs, as long as that price grows by no more than what came new
(a checkpoint grows by what happened, a tail by what was said). An expired cache needs no rule of its own: everything is
written again then, so writing less costs nothing more.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from xnagent.core.caching import CacheRule, predicted_tokens
from xnagent.core.pricing import PER_MILLION, Price, long_write_usd, price_for, short_write_usd
from xnagent.core.values import dataclass

RECALL_SHARE: Final = 0.5
"""An assumption, and a cautious one: what was dropped is not only paid again but asked for again, with calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A history before a request, in tokens, system and tools included."""

    whole_tokens: int
    """As it is."""
    after_tokens: int
    """As a rebase would leave it."""
    fixed_tokens: int
    """What no rebase replaces: system, tools, first message."""
    held_tokens: int
    """What the cache holds of it; 0: nothing was sent yet, or it has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What reading and writing costs."""

    price: Price
    cache: CacheRule = field(default_factory=CacheRule)
    is_long: bool = False
    """What is written is written for the longer of two lifetimes."""
    recall_share: float = RECALL_SHARE
    """What share of the dropped tokens is likely to be fetched again; that is part of the price of a rebase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Two ways to send the next request, each against sending it as small as a rebase before would have made it."""

    rent_usd: float
    """More for the history as it is."""
    price_usd: float
    """More for a rebase now."""
    is_warm: bool
    """Whether a cache holds something: the price of a rebase without one says nothing about later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """What was paid since the last rebase."""

    paid_usd: float = 0.0
    lowest_usd: float | None = None
    """The lowest price of a rebase that would have freed something; None: there was none yet."""


def costs(sizes: Sizes, rates: Rates) -> Costs:
    """Rent and price for the next request; neither is below 0."""
    new = max(0, sizes.whole_tokens - sizes.held_tokens)
    kept = min(sizes.fixed_tokens, sizes.held_tokens)
    small = _input_usd(sizes.after_tokens, max(kept, sizes.after_tokens - new), rates=rates)
    stay = _input_usd(sizes.whole_tokens, sizes.held_tokens, rates=rates)
    rebased = _input_usd(sizes.after_tokens, kept, rates=rates)
    return Costs(
        rent_usd=max(0.0, stay - small),
        price_usd=max(0.0, rebased - small) + _recall_usd(sizes, rates),
        is_warm=sizes.held_tokens > 0,
    )


def _recall_usd(sizes: Sizes, rates: Rates) -> float:
    dropped = max(0, sizes.whole_tokens - sizes.after_tokens)
    return rates.recall_share * dropped * _write_usd(price_for(rates.price, sizes.after_tokens), rates) / PER_MILLION


def _input_usd(size: int, held: int, *, rates: Rates) -> float:
    price = price_for(rates.price, size)
    cached = min(size, predicted_tokens(rates.cache, held) or 0)
    write = _write_usd(price, rates)
    return (cached * price.cached_usd + (size - cached) * write) / PER_MILLION


def _write_usd(price: Price, rates: Rates) -> float:
    return long_write_usd(price) if rates.is_long else short_write_usd(price)


def is_worth(rent: Rent, now: Costs) -> bool:
    """Whether the rent, with that of the next request, is more than the lowest price."""
    lowest = now.price_usd if rent.lowest_usd is None else min(rent.lowest_usd, now.price_usd)
    return now.rent_usd > 0.0 and rent.paid_usd + now.rent_usd > lowest


def paid(rent: Rent, now: Costs) -> Rent:
    """The rent after a request that was sent without a rebase."""
    lowest = rent.lowest_usd
    if now.is_warm and now.rent_usd > 0.0:
        lowest = now.price_usd if lowest is None else min(lowest, now.price_usd)
    return Rent(paid_usd=rent.paid_usd + now.rent_usd, lowest_usd=lowest)
