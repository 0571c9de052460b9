"""Makes room in a spine before a request: the rebase, from stored state, without a model call."""

from __future__ import annotations

from collections.abc import Callable

from xnagent.agents.desk import Desk, HaltError, RunFailedError, Seat
from xnagent.agents.prompting import missed_message
from xnagent.core.checkpoint import checkpoint
from xnagent.core.events import LimitReached
from xnagent.core.ids import PLANNER
from xnagent.core.pricing import break_even_steps, price_for, write_usd
from xnagent.core.rebase import MAX_UNANSWERED_REBASES, RebaseCause, RebasePlan, is_due, is_over, plan_rebase, room_for
from xnagent.core.spine import Spine, estimate
from xnagent.core.spine_events import RebaseRefused, SpineExtended, SpineRebased
from xnagent.core.state import SessionState, spine_of
from xnagent.core.tokens import estimate_items


async def make_room(desk: Desk, seat: Seat) -> None:
    """Rebase if it is due, before the step's news is appended (M20)."""
    spine = spine_of(desk.log.state, seat.agent)
    cause = is_due(spine, seat.room, policy=seat.policy, price=seat.price)
    if cause is not None:
        await rebase(desk, seat, cause=cause)


async def append_news(desk: Desk, seat: Seat, *, make: Callable[[SessionState], SpineExtended | None]) -> None:
    """Append what `make` finds to tell, if there is anything; before that rebase, if it would not fit.

    Others append while a rebase is made or refused, so the message is made anew from the state that it is folded onto.
    """
    news = make(desk.log.ahead)
    if news is None:
        return
    spine = spine_of(desk.log.state, seat.agent)
    limit = seat.policy.hard_share * seat.room.usable_tokens
    fits = estimate(spine, seat.head_tokens) + estimate_items(news.items) <= limit
    if not fits and len(spine.items) > spine.head + 1 and spine.unanswered_rebases == 0:
        await rebase(desk, seat, cause="hard")
        news = make(desk.log.ahead)
    if news is not None:
        await desk.log.append(news)


async def check_fit(desk: Desk, seat: Seat) -> None:
    """The last look before a request: over the hard limit it is rebased once more, over the window it is not sent."""
    spine = spine_of(desk.log.state, seat.agent)
    if spine.pending_request is None and is_over(spine, seat.room, policy=seat.policy):
        await rebase(desk, seat, cause="hard")
        spine = spine_of(desk.log.state, seat.agent)
    size = estimate(spine, seat.head_tokens)
    if size > seat.room.usable_tokens:
        await exhausted(desk, seat, size=size)


async def rebase(desk: Desk, seat: Seat, *, cause: RebaseCause) -> bool:
    """Replace the spine, or refuse and say why; returns whether it was replaced."""
    state = desk.log.ahead
    spine = spine_of(state, seat.agent)
    room = room_for(spine, seat.room, cause=cause)
    plan = plan_rebase(spine, checkpoint(state, seat.agent), room=room, policy=seat.policy)
    if spine.unanswered_rebases >= MAX_UNANSWERED_REBASES or not plan.has_gain(seat.policy):
        await desk.log.append(_refused(spine, plan, cause=cause))
        return False
    told = missed_message(state) if seat.agent == PLANNER else None
    news = () if told is None else (told,)
    await desk.log.append(_rebased(seat, plan, cause=cause, cursor=state.cause_count), *news)
    return True


def _refused(spine: Spine, plan: RebasePlan, *, cause: str) -> RebaseRefused:
    detail = f"it would leave {plan.tokens_after:,} of {plan.tokens_before:,} tokens"
    return RebaseRefused(
        agent=spine.agent,
        cause=cause,
        tokens_before=plan.tokens_before,
        tokens_after=plan.tokens_after,
        detail=detail,
    )


def _rebased(seat: Seat, plan: RebasePlan, *, cause: str, cursor: int) -> SpineRebased:
    written = plan.tokens_after - seat.head_tokens
    dropped = plan.tokens_before - plan.tokens_after
    price = None if seat.price is None else price_for(seat.price, plan.tokens_after)
    return SpineRebased(
        agent=seat.agent,
        items=plan.items,
        cursor=cursor if seat.agent == PLANNER else 0,
        cause=cause,
        tokens_before=plan.tokens_before,
        tokens_after=plan.tokens_after,
        items_dropped=plan.items_dropped,
        checkpoint_tokens=plan.checkpoint_tokens,
        manifest=seat.manifest.manifest,
        unreferenced=plan.unreferenced,
        price_usd=None if price is None else write_usd(written, price),
        break_even_steps=break_even_steps(dropped=dropped, written=written, price=price),
    )


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
