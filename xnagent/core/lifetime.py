"""How long what a request writes to a cache should live: as long as its agent is likely to wait, if that pays.

The rule that is decided under (Anthropic's): what is written for the longer lifetime costs more; a request may name
both, the longer one first; each use renews an entry. A request is written for the longer lifetime as a whole or not at
all: only its end holds everything, and only the end of the request before is found for certain by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from xnagent.core.caching import CacheRule
from xnagent.core.pricing import Price, price_for, short_write_usd
from xnagent.core.values import dataclass

Lifetime = Literal["auto", "5m", "1h"]
"""What the user asks for; `auto` decides for each request."""

WAITS_KEPT: Final = 32
"""Older ones say little of the next."""
PRIOR_WAITS: Final = 2.0
"""How many waits the assumption below weighs as much as."""
PRIOR_SHARE: Final = 0.25
"""Assumed share of waits that only the longer lifetime outlives, while runs are active and before any was seen."""


PATIENCE_SECONDS: Final = 60.0
"""A request whose cache has nothing to lose waits for those that have less time left than this, and for no others."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A lineage in a cache."""

    at_seconds: float | None
    """When it was last used; None: never, or unknown."""
    lifetime_seconds: float | None
    """How long it is served after that; None: nobody says."""


def due_seconds(used: Used, now: float) -> float:
    """Until when the next request of a lineage should begin: of requests that wait, the first one due goes first.

    As long as its entry lives, before it expires; with nothing to lose, within `PATIENCE_SECONDS`.
    """
    if used.at_seconds is None or used.lifetime_seconds is None:
        return now + PATIENCE_SECONDS
    expires = used.at_seconds + used.lifetime_seconds
    return expires if now < expires else now + PATIENCE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A wait that goes on while an entry is about to expire."""

    size_tokens: int
    """What the cache holds."""
    waits: tuple[Wait, ...]
    """Of the agent, the newest ones."""
    has_runs: bool
    waited_seconds: float
    least_output_tokens: int = 1
    """What a request that only renews the entry is billed of output at least."""


def is_renewal_worth(pending: Pending, rule: CacheRule, *, price: Price | None) -> bool:
    """Whether reading the entry once more, only to keep it, is expected to cost less than writing it again.

    It is needed if the wait ends while the renewed entry lives: as often as waits of the same situation that lasted
    this long did. Else it was in vain, and the question comes again.
    """
    if price is None or rule.lifetime_seconds is None:
        return False
    tier = price_for(price, pending.size_tokens)
    cost = pending.size_tokens * tier.cached_usd + pending.least_output_tokens * tier.output_usd
    saved = pending.size_tokens * max(0.0, short_write_usd(tier) - tier.cached_usd)
    return ending_share(pending, rule.lifetime_seconds) * saved > cost


def ending_share(pending: Pending, lifetime_seconds: float) -> float:
    """How likely a wait that has lasted so long ends within one more lifetime."""
    same = [wait.seconds for wait in pending.waits if wait.had_runs == pending.has_runs]
    left = [seconds for seconds in same if seconds > pending.waited_seconds]
    ending = sum(seconds <= pending.waited_seconds + lifetime_seconds for seconds in left)
    return (ending + PRIOR_SHARE * PRIOR_WAITS) / (len(left) + PRIOR_WAITS)
