"""Makes room in a spine before a request: the rebase, from stored state, without a model call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from xnagent.agents.desk import Desk, HaltError, RunFailedError, Seat
from xnagent.agents.lasting import lifetime_of
from xnagent.agents.prompting import missed_message
from xnagent.core.checkpoint import checkpoint
from xnagent.core.clearing import old_results
from xnagent.core.due import MOST_REFUSALS, Conditions, is_due, is_over
from xnagent.core.events import LimitReached
from xnagent.core.ids import PLANNER, CallId, Ticket
from xnagent.core.items import ToolResult
from xnagent.core.rebase import (
    MAX_UNANSWERED_REBASES,
    RebaseCause,
    RebasePlan,
    Room,
    kept_tail,
    plan_rebase,
    room_for,
    size_of,
)
from xnagent.core.receipts import Occasion, receipt
from xnagent.core.rent import Rates
from xnagent.core.spine import Spine
from xnagent.core.spine_events import RebaseRefused, RebasesSuspended, SpineExtended
from xnagent.core.state import SessionState, ratio_of, spine_of, work_of
from xnagent.core.tokens import estimate_items

LEAST_RESERVES: Final = 8
"""The reserve is at most this part of the window: an eighth."""


def room_of(state: SessionState, seat: Seat) -> Room:
    """How much fits into a request, in the tokens of the seat's model."""
    return replace(seat.room, ratio=ratio_of(state, seat.manifest.model))


def conditions_of(desk: Desk, seat: Seat) -> Conditions:
    """What the agent's next request would find in the cache, and what it would pay."""
    spine = spine_of(desk.log.state, seat.agent)
    is_long = spine.is_long_lived or seat.lifetime == "1h"
    rates = None if seat.price is None else Rates(price=seat.price, cache=seat.cache, is_long=is_long)
    return Conditions(rates=rates, has_expired=_has_expired(desk, seat, spine=spine))


def _has_expired(desk: Desk, seat: Seat, *, spine: Spine) -> bool:
    """Since the agent's last reply in this process; before its first, since the process before stopped."""
    before = desk.answered.get(seat.agent)
    if before is None:
        idle, lifetime = desk.log.state.idle_seconds, lifetime_of(spine, seat.cache)
    else:
        idle, lifetime = desk.clock.monotonic() - before.at_seconds, before.lifetime_seconds
    return bool(spine.requests) and idle is not None and lifetime is not None and idle > lifetime


async def make_room(desk: Desk, seat: Seat) -> None:
    """Rebase if it is due, before the step's news is appended (M20)."""
    state = desk.log.state
    spine = spine_of(state, seat.agent)
    cause = is_due(spine, room_of(state, seat), policy=seat.policy, conditions=conditions_of(desk, seat))
    if cause is not None:
        await rebase(desk, seat, cause=cause)


async def append_news(desk: Desk, seat: Seat, *, make: Callable[[SessionState], SpineExtended | None]) -> None:
    """Append what `make` finds to tell, if there is anything; before that rebase, if it would not fit.

    Others append while a rebase is made or refused, so the message is made anew from the state that it is folded onto.
    """
    news = make(desk.log.ahead)
    if news is None:
        return
    spine, room = spine_of(desk.log.state, seat.agent), room_of(desk.log.state, seat)
    limit = seat.policy.hard_share * room.usable_tokens
    fits = size_of(spine, room) + estimate_items(news.items) * room.ratio <= limit
    if not fits and len(spine.items) > spine.head + 1 and not spine.unanswered_rebases and not spine.is_suspended:
        await rebase(desk, seat, cause="hard")
        news = make(desk.log.ahead)
    if news is not None:
        await desk.log.append(news)


async def check_fit(desk: Desk, seat: Seat) -> None:
    """The last look before a request: over the hard limit it is rebased once more, over the window it is not sent."""
    state = desk.log.state
    spine, room = spine_of(state, seat.agent), room_of(state, seat)
    if spine.pending_request is None and is_over(spine, room, policy=seat.policy) and not spine.is_suspended:
        await rebase(desk, seat, cause="hard")
    if _size(desk, seat) > room.usable_tokens and spine.pending_request is None and seat.policy.may_drop:
        await rebase(desk, seat, cause="hard", is_last=True)
    size = _size(desk, seat)
    if size > room.usable_tokens:
        await exhausted(desk, seat, size=size)


async def is_full(desk: Desk, seat: Seat) -> bool:
    """Whether less than the reserve is left, whatever a rebase frees: what fits now is the request to hand in."""
    room = room_of(desk.log.state, seat)
    most = room.usable_tokens - min(seat.policy.reserve_tokens, room.window_tokens // LEAST_RESERVES)
    if _size(desk, seat) > most and seat.policy.may_drop:
        await rebase(desk, seat, cause="hard", is_last=True)
    return _size(desk, seat) > most


def _size(desk: Desk, seat: Seat) -> int:
    return size_of(spine_of(desk.log.state, seat.agent), room_of(desk.log.state, seat))


async def rebase(desk: Desk, seat: Seat, *, cause: RebaseCause, is_last: bool = False) -> bool:
    """Replace the spine, or refuse and say why; returns whether it was replaced.

    The last one that can be tried is not refused as long as it frees something. Where a seat has a way of its own, that
    is tried first, and the stored state stands behind it when room must be made.
    """
    if seat.condenser is not None and not is_last:
        if await seat.condenser.condense(desk, seat, cause=cause):
            return True
        if cause not in {"hard", "overflow"} and not seat.condenser.is_given_up(desk.log.state, seat.agent):
            return False
    state = desk.log.ahead
    spine = spine_of(state, seat.agent)
    room = room_for(spine, room_of(state, seat), cause=cause)
    tickets = tickets_of(desk, seat, spine=spine, room=room)
    plan = plan_rebase(spine, checkpoint(state, seat.agent), room=room, policy=seat.policy, tickets=tickets)
    policy = replace(seat.policy, min_gain_share=0.0) if is_last else seat.policy
    if spine.unanswered_rebases >= MAX_UNANSWERED_REBASES or not plan.has_gain(policy):
        if not is_last:
            await desk.log.append(*_refused(spine, plan, cause=cause))
        return False
    occasion = Occasion(
        cause=cause,
        cursor=state.cause_count,
        steps=work_of(state, seat.agent).steps,
        manifest=seat.manifest.manifest,
        conditions=conditions_of(desk, seat),
    )
    told = missed_message(state) if seat.agent == PLANNER else None
    news = () if told is None else (told,)
    await desk.log.append(receipt(spine, plan, room=room, occasion=occasion), *news)
    return True


def tickets_of(desk: Desk, seat: Seat, *, spine: Spine, room: Room) -> Mapping[CallId, Ticket]:
    """A Worker's old results are stored whole, as its model read them: that text is in the log already."""
    if seat.agent == PLANNER:
        return {}
    old = set(old_results(kept_tail(spine, room, policy=seat.policy)))
    whole = [item for item in spine.items if isinstance(item, ToolResult) and item.call_id in old] if old else []
    return {item.call_id: desk.log.put(item.text.encode(), is_verbatim=True) for item in whole}


def _refused(spine: Spine, plan: RebasePlan, *, cause: str) -> tuple[RebaseRefused | RebasesSuspended, ...]:
    """With the third refusal in a row no more rebases are tried."""
    detail = f"it would leave {plan.tokens_after:,} of {plan.tokens_before:,} tokens"
    refused = RebaseRefused(
        agent=spine.agent,
        cause=cause,
        tokens_before=plan.tokens_before,
        tokens_after=plan.tokens_after,
        detail=detail,
        checkpoint_tokens=plan.checkpoint_tokens,
    )
    refusals = spine.refusals + 1
    if refusals < MOST_REFUSALS or spine.is_suspended:
        return (refused,)
    suspended = RebasesSuspended(
        agent=spine.agent,
        refusals=refusals,
        tokens=plan.tokens_before,
        detail=f"{refusals} rebases in a row were refused; no more before the spine has grown",
    )
    return refused, suspended


async def exhausted(desk: Desk, seat: Seat, *, size: int) -> None:
    """Nothing that may be dropped is left: the Planner's session halts, a Worker's run fails."""
    spine = spine_of(desk.log.state, seat.agent)
    usable, first = seat.room.usable_tokens, estimate_items(spine.items[: spine.head])
    what = "objective" if seat.agent == PLANNER else "task"
    detail = (
        f"context exhausted: {size:,} tokens do not fit into the usable {usable:,} "
        f"(window {seat.room.window_tokens:,}, output {seat.room.max_output_tokens:,}); "
        f"system and tools take {seat.head_tokens:,}, the {what} {first:,}, "
        f"neither can shrink. Use a model with a larger window or a smaller task"
    )
    if seat.agent != PLANNER:
        raise RunFailedError(detail)
    await desk.log.append(LimitReached(limit="context", detail=detail))
    raise HaltError(detail)
