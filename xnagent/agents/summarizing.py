"""The `summary` strategy: a model writes what a Worker's history comes to, and the rebase shows it.

Contract. The history is not touched until there is a summary that is shorter than what it stands for: then summary,
values and rebase are one append. Whatever else happens is one SummaryFailed, and the history is what it was (M78). The
rebase itself asks no model (I4): it renders its checkpoint from stored state, of which the summary is a part by then,
so that a replay makes the same bytes again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from xnagent.agents.asking import attempts, received_of, started_of, wanted_for
from xnagent.agents.contract import find_broken, refused
from xnagent.agents.desk import Desk, Seat
from xnagent.agents.moment import moment_of
from xnagent.agents.room import conditions_of, room_of, tickets_of
from xnagent.agents.summary_request import (
    NOT_EXECUTED,
    cropped,
    instruction,
    own_manifest,
    read_reply,
    reminder,
    stored_value,
)
from xnagent.core.checkpoint import checkpoint
from xnagent.core.due import costs_of
from xnagent.core.events import Event
from xnagent.core.fold import fold
from xnagent.core.ids import AgentId, Ticket, summarizer_of
from xnagent.core.items import Item, ToolCall, ToolResult, calls_of
from xnagent.core.limits import refuse_request
from xnagent.core.pruning import is_enough, long_results, plan_pruning
from xnagent.core.rebase import MAX_UNANSWERED_REBASES, RebaseCause, plan_rebase, room_for, size_of
from xnagent.core.receipts import Occasion, receipt
from xnagent.core.spine import Spine, held_by
from xnagent.core.spine_events import (
    ManifestRecorded,
    ReplyReceived,
    RequestFailed,
    SpineExtended,
    SpineRebased,
    ToolFinished,
)
from xnagent.core.state import SessionState, spine_of, work_of
from xnagent.core.summary import (
    MOST_FAILURES,
    Answer,
    Values,
    call_usd,
    joined,
    pays,
    replaced_values,
)
from xnagent.core.summary_events import SummaryFailed, SummaryFault, SummaryForm, SummaryMade, SummaryStarted
from xnagent.core.tokens import estimate_items
from xnagent.core.values import dataclass
from xnagent.errors import ModelError, PrefixBrokenError

CROPPED_SHARE: Final = 0.8
"""Of what fits, so much is filled where all is estimated."""
ANY_TICKET: Final = Ticket(f"artifact:{0:016x}")
"""As long as every other."""


class _FailedError(Exception):
    """There will be no summary this time."""

    def __init__(self, fault: SummaryFault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What the model answered."""

    answer: Answer
    values: Values
    replies: tuple[ReplyReceived, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarizer:
    """Implements `desk.Condenser`."""

    def is_given_up(self, state: SessionState, agent: AgentId) -> bool:
        """After three failures in a row (T10)."""
        return work_of(state, agent).summary.is_given_up

    async def condense(self, desk: Desk, seat: Seat, *, cause: RebaseCause) -> bool:
        """Cut long results; if that is not enough, ask for a summary; False: the history is what it was."""
        spine = spine_of(desk.log.ahead, seat.agent)
        if self.is_given_up(desk.log.ahead, seat.agent) or spine.unanswered_rebases >= MAX_UNANSWERED_REBASES:
            return False
        await close_attempt(desk, seat.agent)
        if await _prune(desk, seat, cause=cause):
            return True
        if not _pays(desk, seat, cause=cause):
            return False
        began = desk.clock.monotonic()
        try:
            made = await _ask(desk, seat, cause=cause)
            await _replace(desk, seat, before=spine, made=made, cause=cause, seconds=desk.clock.monotonic() - began)
        except _FailedError as error:
            await desk.log.append(_failed(desk.log.state, seat.agent, fault=error.fault, detail=str(error)))
            return False
        return True


async def close_attempt(desk: Desk, agent: AgentId) -> None:
    """An attempt that a crash cut off is ignored, and the log says so (M92)."""
    if work_of(desk.log.state, agent).summary.attempt is not None:
        detail = "the process stopped while it was made; the history is what it was"
        await desk.log.append(_failed(desk.log.state, agent, fault="interrupted", detail=detail))


def _failed(state: SessionState, agent: AgentId, *, fault: SummaryFault, detail: str) -> SummaryFailed:
    log = work_of(state, agent).summary
    failures = log.failures + (fault != "interrupted")
    return SummaryFailed(
        agent=agent,
        round=log.rounds + 1,
        fault=fault,
        detail=detail,
        tokens=0 if log.attempt is None else log.attempt.tokens,
        failures=failures,
        is_last=failures >= MOST_FAILURES,
    )


async def _prune(desk: Desk, seat: Seat, *, cause: RebaseCause) -> bool:
    state = desk.log.ahead
    spine = spine_of(state, seat.agent)
    room = room_for(spine, room_of(state, seat), cause=cause)
    long = set(long_results(spine))
    texts = {item.call_id: item.text for item in spine.items if isinstance(item, ToolResult) and item.call_id in long}
    foreseen = plan_pruning(spine, room=room, tickets=dict.fromkeys(texts, ANY_TICKET))
    if not texts or not is_enough(foreseen, room=room, policy=seat.policy):
        return False
    tickets = {call_id: desk.log.put(text.encode(), is_verbatim=True) for call_id, text in texts.items()}
    plan = plan_pruning(spine, room=room, tickets=tickets)
    await desk.log.append(receipt(spine, plan, room=room, occasion=_occasion(desk, seat, cause="prune")))
    return True


def _pays(desk: Desk, seat: Seat, *, cause: RebaseCause) -> bool:
    """Room that must be made is made; to save money, the summary's own price counts as well."""
    if cause not in {"economic", "expired"} or seat.price is None:
        return True
    state, conditions = desk.log.state, conditions_of(desk, seat)
    spine, room = spine_of(state, seat.agent), room_of(state, seat)
    now = costs_of(spine, room, policy=seat.policy, conditions=conditions)
    held = 0 if conditions.has_expired else held_by(spine, seat.manifest.manifest) or 0
    own = call_usd(size_of(spine, room), held, price=seat.price)
    return now is not None and pays(spine.rent, now, call_usd=own)


def _occasion(desk: Desk, seat: Seat, *, cause: str) -> Occasion:
    state = desk.log.ahead
    return Occasion(
        cause=cause,
        cursor=state.cause_count,
        steps=work_of(state, seat.agent).steps,
        manifest=seat.manifest.manifest,
        conditions=conditions_of(desk, seat),
    )


async def _ask(desk: Desk, seat: Seat, *, cause: RebaseCause) -> _Made:
    """From the beginning of the attempt to its last answer: at most two requests (M83)."""
    state = desk.log.ahead
    spine, summary = spine_of(state, seat.agent), work_of(state, seat.agent).summary
    form, manifest, items = _request(desk, seat, cause=cause)
    started = SummaryStarted(
        agent=seat.agent,
        round=summary.rounds + 1,
        form=form,
        cause=cause,
        items=items,
        covers=len(spine.items),
        tokens=size_of(spine, room_of(state, seat)),
    )
    await desk.log.append(*([] if manifest.manifest in state.manifests else [manifest]), started)
    aside = replace(seat, agent=summarizer_of(seat.agent), manifest=manifest, head_tokens=manifest.head_tokens)
    replies = [await _send(desk, seat, aside=aside)]
    answer = read_reply(replies[0].items)
    asked = reminder(answer, has_calls=bool(calls_of(replies[0].items)))
    if asked is not None:
        await desk.log.append(
            *_results(replies[0], aside.agent), SpineExtended(agent=aside.agent, kind="nudge", items=(asked,))
        )
        replies.append(await _send(desk, seat, aside=aside))
        await desk.log.append(*_results(replies[1], aside.agent))
        answer = joined(answer, read_reply(replies[1].items))
    if not answer.text:
        raise _FailedError("blank", "the model wrote no summary")
    values = replaced_values(summary.values, answer, history=spine.items)
    return _Made(answer=answer, values=values, replies=tuple(replies))


def _request(desk: Desk, seat: Seat, *, cause: RebaseCause) -> tuple[SummaryForm, ManifestRecorded, tuple[Item, ...]]:
    """The live request with the instruction behind it; where that doesn't fit, or came to nothing, one of its own."""
    state = desk.log.ahead
    spine = spine_of(state, seat.agent)
    room = room_of(state, seat)
    summary = work_of(state, seat.agent).summary
    asked = instruction(summary)
    size = size_of(spine, room) + round(estimate_items([asked]) * room.ratio)
    if cause != "overflow" and not summary.has_been_blank and size <= room.usable_tokens:
        return "aligned", seat.manifest, (asked,)
    manifest = own_manifest(seat.manifest)
    most = CROPPED_SHARE * room_for(spine, room, cause=cause).usable_tokens / room.ratio - manifest.head_tokens
    return "cropped", manifest, (cropped(spine, asked, most_tokens=int(most)),)


async def _send(desk: Desk, seat: Seat, *, aside: Seat) -> ReplyReceived:
    """One request through the same doors as every other. Raises _FailedError; PrefixBrokenError in strict mode."""
    state = desk.log.ahead
    spine = spine_of(state, aside.agent)
    size = size_of(spine, room_of(state, aside))
    wanted = wanted_for(aside, spine, size=size, is_long=spine.long_items > 0)
    refusal = refuse_request(state, desk.limits, wanted=wanted)
    if refusal is not None:
        raise _FailedError("limit", refusal.detail)
    body = seat.model.encode(aside.manifest, replace(spine, agent=seat.agent))
    request = state.request_count + 1
    is_live = aside.manifest.manifest == seat.manifest.manifest
    broken = find_broken(desk, seat, body=body, request=request) if is_live else None
    if broken is not None and desk.prefix == "strict":
        await desk.log.append(broken)
        raise PrefixBrokenError(refused(broken))
    started = started_of(aside, spine, request=request, body=body, wanted=wanted, size=size)
    await desk.log.append(*(() if broken is None else (broken,)), started, durable=broken is not None)
    began, at = desk.clock.monotonic(), moment_of(desk.clock.now())
    reply = await attempts(desk, aside, request=request, body=body)
    if isinstance(reply, ModelError):
        await desk.log.append(RequestFailed(agent=aside.agent, request=request, fault=reply.fault, detail=str(reply)))
        raise _FailedError("overflow" if reply.fault == "context_overflow" else "provider", str(reply))
    seconds = desk.clock.monotonic() - began
    received = received_of(desk, aside, reply=reply, request=request, seconds=seconds, at=at)
    await desk.log.append(received)
    if received.finish == "length":
        raise _FailedError("cut", "the answer reached the output limit before its end")
    return received


def _results(reply: ReplyReceived, agent: AgentId) -> list[Event]:
    """Each call its one result: nothing was executed."""
    return [_not_executed(call, agent) for call in calls_of(reply.items)]


def _not_executed(call: ToolCall, agent: AgentId) -> ToolFinished:
    return ToolFinished(
        agent=agent, call_id=call.call_id, tool=call.name, text=NOT_EXECUTED, code="NOT_EXECUTED", label="not executed"
    )


async def _replace(desk: Desk, seat: Seat, *, before: Spine, made: _Made, cause: RebaseCause, seconds: float) -> None:
    """Summary, values and rebase in one append, if the history is still the one that was summarized (M77, T28)."""
    state = desk.log.ahead
    spine, room = spine_of(state, seat.agent), room_of(state, seat)
    if spine.lineage != before.lineage or spine.items is not before.items:
        raise _FailedError("changed", "the history changed while its summary was made")
    room = room_for(spine, room, cause=cause)
    tickets = tickets_of(desk, seat, spine=spine, room=room)
    summary = _summary_made(desk, seat, made=made, seconds=seconds)
    shown = checkpoint(fold(state, summary), seat.agent)
    plan = plan_rebase(spine, shown, room=room, policy=seat.policy, tickets=tickets)
    if not plan.has_gain(seat.policy):
        detail = f"it would leave {plan.tokens_after:,} of {plan.tokens_before:,} tokens"
        raise _FailedError("not_smaller", detail)
    rebased: SpineRebased = receipt(spine, plan, room=room, occasion=_occasion(desk, seat, cause="summary"))
    told = replace(summary, tokens_before=plan.tokens_before, tokens_after=plan.tokens_after)
    await desk.log.append(told, rebased)


def _summary_made(desk: Desk, seat: Seat, *, made: _Made, seconds: float) -> SummaryMade:
    log = work_of(desk.log.ahead, seat.agent).summary
    values = {
        name: stored_value(value, put=lambda data: desk.log.put(data, is_verbatim=True))
        for name, value in made.values.values.items()
    }
    costs = [reply.cost_usd for reply in made.replies]
    return SummaryMade(
        agent=seat.agent,
        round=log.rounds + 1,
        text=made.answer.text,
        values=tuple(sorted(values.items())),
        tokens_before=0,
        tokens_after=0,
        notes=desk.log.put(made.answer.text.encode(), is_verbatim=True),
        values_kept=made.values.kept,
        values_dropped=made.values.dropped,
        values_refused=made.values.refused,
        has_values=made.answer.values is not None,
        missing=made.answer.missing,
        requests=len(made.replies),
        duration_seconds=round(seconds, 3),
        cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
    )
