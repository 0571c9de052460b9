"""How long what the next request leaves in a cache is to live: the user's choice, or what the waits so far advise."""

from __future__ import annotations

from xnagent.agents.desk import Desk, Seat
from xnagent.core.caching import CacheRule
from xnagent.core.ids import PLANNER
from xnagent.core.lifetime import Outlook, is_long_worth
from xnagent.core.spine import Spine, held_by
from xnagent.core.state import active_runs, spine_of
from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """What the log keeps of it, so that the request can be made again."""

    long_items: int
    """Up to how many items the markers ask for the longer lifetime."""
    waited_seconds: float | None
    """Since the agent's request before was sent; None: unknown."""


def lasting(desk: Desk, seat: Seat, *, size_tokens: int) -> Lasting:
    """The choice for the agent's next request, which is `size_tokens` long; one that is sent again keeps its own."""
    spine = spine_of(desk.log.state, seat.agent)
    before = desk.answered.get(seat.agent)
    waited = None if before is None else round(desk.clock.monotonic() - before.sent_at_seconds, 3)
    if spine.pending_request is not None:
        return Lasting(long_items=spine.long_items, waited_seconds=waited)
    return Lasting(long_items=_long_items(desk, seat, waited=waited, size_tokens=size_tokens), waited_seconds=waited)


def _long_items(desk: Desk, seat: Seat, *, waited: float | None, size_tokens: int) -> int:
    state = desk.log.state
    spine, rule = spine_of(state, seat.agent), seat.cache
    if seat.lifetime == "5m" or rule.long_lifetime_seconds is None:
        return 0
    outlook = Outlook(
        waits=spine.waits,
        has_runs=seat.agent == PLANNER and bool(active_runs(state)),
        size_tokens=size_tokens,
        held_tokens=held_by(spine, seat.manifest.manifest) or 0 if _is_alive(spine, rule, waited=waited) else 0,
    )
    if seat.lifetime == "1h" or is_long_worth(outlook, rule, price=seat.price):
        return len(spine.items)
    lives_on = waited is not None and waited <= rule.long_lifetime_seconds
    return spine.long_items if lives_on else 0


def lifetime_of(spine: Spine, rule: CacheRule) -> float | None:
    """How long what the agent's last request left in the cache is served; None: nobody says."""
    return rule.long_lifetime_seconds if spine.is_long_lived else rule.lifetime_seconds


def _is_alive(spine: Spine, rule: CacheRule, *, waited: float | None) -> bool:
    """Whether the cache still holds the request before."""
    lifetime = lifetime_of(spine, rule)
    return waited is not None and lifetime is not None and waited <= lifetime
