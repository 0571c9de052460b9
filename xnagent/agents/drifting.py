"""What a reply says of the cache, compared with what the request before it must have left there."""

from __future__ import annotations

from dataclasses import replace

from xnagent.agents.desk import Answered, Desk, Seat
from xnagent.agents.lasting import lifetime_of
from xnagent.core.drift import Served, find_drift
from xnagent.core.ids import AgentId
from xnagent.core.spine_events import CacheDrifted, ReplyReceived
from xnagent.core.state import SessionState, spine_of


def drifted(desk: Desk, seat: Seat, *, reply: ReplyReceived, sent_at_seconds: float) -> tuple[CacheDrifted, ...]:
    """The drift of a reply that is not in the log yet, if there is one; the reply is remembered for the next."""
    before = desk.answered.get(seat.agent)
    now = desk.clock.monotonic()
    spine = spine_of(desk.log.state, seat.agent)
    desk.answered[seat.agent] = Answered(
        sent_at_seconds=sent_at_seconds,
        at_seconds=now,
        lifetime_seconds=lifetime_of(spine, seat.cache),
    )
    predicted, reported = spine.held_tokens, reply.usage.cached_tokens
    served = Served(
        predicted_tokens=predicted,
        reported_tokens=None if reply.usage.is_estimated else reported,
        is_extension=not _has_broken(desk.log.state, seat.agent, request=reply.request),
        is_first_of_process=before is None,
        is_first_of_model=spine.held_manifest not in {"", seat.manifest.manifest},
        pause_seconds=0.0 if before is None else sent_at_seconds - before.at_seconds,
    )
    rule = seat.cache
    if before is not None and before.lifetime_seconds != rule.lifetime_seconds:
        rule = replace(rule, lifetime_seconds=before.lifetime_seconds)
    cause = find_drift(served, rule)
    if cause is None or predicted is None or reported is None:
        return ()
    drift = CacheDrifted(
        agent=seat.agent,
        request=reply.request,
        predicted_tokens=predicted,
        reported_tokens=reported,
        cause=cause,
    )
    return (drift,)


def _has_broken(state: SessionState, agent: AgentId, *, request: int) -> bool:
    return any(broken.agent == agent and broken.request == request for broken in state.breaks)
