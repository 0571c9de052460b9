"""How long what a request writes to a cache should live: as long as its agent is likely to wait, if that pays.

The rule that is decided under (Anthropic's): what is written for the longer lifetime costs more; a request may name
both, the longer one first; each use renews an entry. A request is written for the longer lifetime as a whole or not at
all: only its end holds everything, and only the end of the request before is found for certain by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from xnagent.core.caching import CacheRule
from xnagent.core.pricing import Price, price_for, short_write_usd

Lifetime = Literal["auto", "5m", "1h"]
"""What the user asks for; `auto` decides for each request."""

WAITS_KEPT: Final = 32
"""Older ones say little of the next."""
PRIOR_WAITS: Final = 2.0
"""How many waits the assumption below weighs as much as."""
PRIOR_SHARE: Final = 0.25
"""Assumed share of waits that only the longer lifetime outlives, while runs are active and before any was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """From one request of an agent to its next."""

    seconds: float
    had_runs: bool
    """Whether runs were active when the first was sent: their end is what a Planner waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is known when a request is about to be sent."""

    waits: tuple[Wait, ...]
    """The agent's newest ones."""
    has_runs: bool
    """Whether runs are active."""
    size_tokens: int
    """Of the request."""
    held_tokens: int
    """What of it a cache holds already."""


def is_long_worth(outlook: Outlook, rule: CacheRule, *, price: Price | None) -> bool:
    """Whether the longer lifetime is expected to save more than it costs; without known prices it is not.

    It costs the dearer write of what is new. It saves, if the wait turns out longer than the shorter lifetime and not
    longer than the longer one, writing the whole request again in place of reading it.
    """
    tier = None if price is None else price_for(price, outlook.size_tokens)
    if tier is None or tier.cache_write_long_usd is None:
        return False
    short, long = short_write_usd(tier), tier.cache_write_long_usd
    new = max(0, outlook.size_tokens - outlook.held_tokens)
    saved = long_wait_share(outlook, rule) * (short - tier.cached_usd) * outlook.size_tokens
    return saved > (long - short) * new


def long_wait_share(outlook: Outlook, rule: CacheRule) -> float:
    """How likely the next wait is one that only the longer lifetime outlives, from waits in the same situation."""
    if rule.lifetime_seconds is None or rule.long_lifetime_seconds is None:
        return 0.0
    seen = [wait.seconds for wait in outlook.waits if wait.had_runs == outlook.has_runs]
    long = sum(rule.lifetime_seconds < seconds <= rule.long_lifetime_seconds for seconds in seen)
    prior = PRIOR_SHARE * PRIOR_WAITS if outlook.has_runs else 0.0
    return (long + prior) / (len(seen) + PRIOR_WAITS)


def with_wait(waits: Iterable[Wait], seconds: float | None, *, had_runs: bool) -> tuple[Wait, ...]:
    """The waits with one more at the end, if it is known."""
    known = tuple(waits)
    return known if seconds is None else (*known, Wait(seconds=seconds, had_runs=had_runs))[-WAITS_KEPT:]
