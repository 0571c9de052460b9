"""One model call: room, limits, prefix check, the request in the log, attempts with pauses, the reply in the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from xnagent.agents.contract import find_broken, refused
from xnagent.agents.desk import Desk, HaltError, Seat, Sent
from xnagent.agents.drifting import drifted
from xnagent.agents.lasting import lasting
from xnagent.agents.moment import moment_of
from xnagent.agents.room import check_fit, conditions_of, exhausted, rebase, room_of
from xnagent.core.caching import predicted_tokens
from xnagent.core.due import costs_of
from xnagent.core.events import Event
from xnagent.core.fallback import model_in_force, replacement
from xnagent.core.items import AssistantText, ReplyItem, ToolCall, made_by, with_unique_ids
from xnagent.core.limits import Wanted, refuse_request
from xnagent.core.occupancy import find_filled
from xnagent.core.pricing import Moment, ceiling_usd, cost_usd
from xnagent.core.rebase import size_of
from xnagent.core.rent import Costs
from xnagent.core.retry import Tried, next_wait_seconds
from xnagent.core.spine import Spine, held_by, most_tokens
from xnagent.core.spine_events import ReplyReceived, RequestFailed, RequestRetried, RequestStarted
from xnagent.core.state import SessionState, spine_of
from xnagent.core.tokens import Usage, estimate_items
from xnagent.errors import ModelError, PrefixBrokenError
from xnagent.ports import Body, Reply

EMPTY_REPLY: Final = "(empty reply)"


async def ask(desk: Desk, seat: Seat) -> None:
    """Send the spine as it is and append the reply.

    An overflow leads to one rebase and one more try, if the request shrank. A model that failed for good is replaced,
    if there is another: then there is no reply, and who asks next takes the seat that is in force. Raises ModelError
    when the request failed for good (it is in the log), HaltError when a limit forbids it, PrefixBrokenError in strict
    mode.
    """
    fault = await _ask_once(desk, seat)
    while fault is not None and fault.fault == "context_overflow":
        spine = spine_of(desk.log.state, seat.agent)
        if spine.unanswered_rebases or not await rebase(desk, seat, cause="overflow"):
            await exhausted(desk, seat, size=size_of(spine, room_of(desk.log.state, seat)))
        fault = await _ask_once(desk, seat)
    if fault is not None and not _is_replaced(desk.log.state, seat):
        raise fault


def _is_replaced(state: SessionState, seat: Seat) -> bool:
    chain = [one.model for one in seat.chain]
    return bool(chain) and model_in_force(state, seat.agent, chain=chain) != seat.manifest.model


async def _ask_once(desk: Desk, seat: Seat) -> ModelError | None:
    """The fault in place of a reply; None: there is a reply."""
    await check_fit(desk, seat)
    request, body = await _open(desk, seat)
    began, at = desk.clock.monotonic(), moment_of(desk.clock.now())
    reply = await attempts(desk, seat, request=request, body=body)
    if isinstance(reply, ModelError):
        await _failed(desk, seat, request=request, error=reply)
        return reply
    took = desk.clock.monotonic() - began
    received = received_of(desk, seat, reply=reply, request=request, seconds=took, at=at)
    await desk.log.append(received, *drifted(desk, seat, reply=received, sent_at_seconds=began))
    return None


async def _open(desk: Desk, seat: Seat) -> tuple[int, Body]:
    """Put the next request into the log, if limits and prefix allow it.

    Nothing is awaited between the look at what was submitted so far and the submission of the request, so that two
    agents can't both take the last room, or the same number.
    """
    state = desk.log.ahead
    spine = spine_of(state, seat.agent)
    size = size_of(spine, room_of(state, seat))
    chosen = lasting(desk, seat, size_tokens=size)
    wanted = wanted_for(seat, spine, size=size, is_long=chosen.long_items > 0)
    refusal = refuse_request(state, desk.limits, wanted=wanted)
    if refusal is not None:
        await desk.log.append(refusal)
        raise HaltError(refusal.detail)
    body = seat.model.encode(seat.manifest, _lasting_for(spine, chosen.long_items))
    request = spine.pending_request or state.request_count + 1
    broken = find_broken(desk, seat, body=body, request=request)
    if broken is not None and desk.prefix == "strict":
        # The orchestrator may have begun another step before the first one's error reaches it.
        if broken not in state.breaks:
            await desk.log.append(broken)
        raise PrefixBrokenError(refused(broken))
    owed = _owed(desk, seat)
    started = replace(
        started_of(seat, spine, request=request, body=body, wanted=wanted, size=size),
        long_items=chosen.long_items,
        waited_seconds=chosen.waited_seconds,
        rent_usd=None if owed is None else owed.rent_usd,
        rebase_usd=owed.price_usd if owed is not None and owed.is_warm else None,
    )
    told = find_filled(spine, seat.room, tokens=size, levels=seat.policy.warn_shares, request=request)
    events: list[Event] = [*told, started] if broken is None else [broken, *told, started]
    await desk.log.append(*events, durable=broken is not None)
    desk.sent[seat.agent] = Sent(lineage=spine.lineage, segments=body.segments, manifest=seat.manifest)
    return request, body


def started_of(seat: Seat, spine: Spine, *, request: int, body: Body, wanted: Wanted, size: int) -> RequestStarted:
    """A request as the log has it before it is sent: what it is, may cost, and should find in the cache."""
    return RequestStarted(
        agent=seat.agent,
        request=request,
        manifest=seat.manifest.manifest,
        items=len(spine.items),
        estimate_tokens=size,
        predicted_cached_tokens=predicted_tokens(seat.cache, held_by(spine, seat.manifest.manifest)),
        sha256=body.sha256,
        size_bytes=len(body.content),
        ceiling_usd=ceiling_usd(
            wanted.input_tokens, wanted.max_output_tokens, price=seat.price, is_long=wanted.is_long
        ),
        ceiling_tokens=wanted.input_tokens + wanted.max_output_tokens,
        long_items=spine.long_items,
    )


def _owed(desk: Desk, seat: Seat) -> Costs | None:
    state = desk.log.state
    spine, room = spine_of(state, seat.agent), room_of(state, seat)
    return costs_of(spine, room, policy=seat.policy, conditions=conditions_of(desk, seat))


def _lasting_for(spine: Spine, long_items: int) -> Spine:
    return spine if spine.long_items == long_items else replace(spine, long_items=long_items)


def wanted_for(seat: Seat, spine: Spine, *, size: int, is_long: bool) -> Wanted:
    """The request at its largest; more than the window no provider takes."""
    return Wanted(
        agent=seat.agent,
        input_tokens=min(most_tokens(spine, seat.head_tokens), max(size, seat.manifest.window_tokens)),
        max_output_tokens=seat.manifest.max_output_tokens,
        price=seat.price,
        is_long=is_long,
    )


async def attempts(desk: Desk, seat: Seat, *, request: int, body: Body) -> Reply | ModelError:
    """The reply; the last error where there is none, after as many attempts and pauses as the retry policy allows."""
    waited, attempt = 0.0, 0
    while True:
        attempt += 1
        try:
            return await seat.model.send(body)
        except ModelError as error:
            tried = Tried(attempts=attempt, waited_seconds=waited, key=f"{desk.log.state.session}/{request}")
            wait = next_wait_seconds(desk.retry, error, tried=tried)
            if wait is None:
                return error
            retried = RequestRetried(
                agent=seat.agent,
                request=request,
                attempt=attempt,
                fault=error.fault,
                detail=str(error),
                wait_seconds=round(wait, 3),
            )
            await desk.log.append(retried, durable=False)
            await desk.clock.sleep(wait)
            waited += wait


async def _failed(desk: Desk, seat: Seat, *, request: int, error: ModelError) -> None:
    """A context overflow is not the end yet; everything else is, for this request: who goes on is told with it."""
    if error.fault == "context_overflow":
        return
    failed = RequestFailed(agent=seat.agent, request=request, fault=error.fault, detail=str(error))
    heir = replacement(desk.log.state, failed, chain=seat.chain)
    await desk.log.append(failed, *(() if heir is None else (heir,)))


def received_of(desk: Desk, seat: Seat, *, reply: Reply, request: int, seconds: float, at: Moment) -> ReplyReceived:
    """The reply as the log keeps it: with call ids that are new in the spine, its usage and its price."""
    spine = spine_of(desk.log.state, seat.agent)
    items = with_unique_ids(_answered(made_by(seat.manifest.model, reply.items)), spine.call_ids)
    usage = _filled(reply, spine)
    return ReplyReceived(
        agent=seat.agent,
        request=request,
        items=items,
        usage=usage,
        cost_usd=cost_usd(usage, seat.price, at=at),
        finish="tool_calls" if any(isinstance(item, ToolCall) for item in items) else reply.finish,
        duration_seconds=round(seconds, 3),
        first_token_seconds=reply.first_token_seconds,
        note=reply.note,
    )


def _answered(items: tuple[ReplyItem, ...]) -> tuple[ReplyItem, ...]:
    """A reply without text and calls gets a text, so that the history stays valid on every wire."""
    if any(isinstance(item, AssistantText | ToolCall) for item in items):
        return items
    return (*items, AssistantText(text=EMPTY_REPLY))


def _filled(reply: Reply, spine: Spine) -> Usage:
    """The reported usage; where there is none that can be used, our estimate, marked as such (B069)."""
    usage = reply.usage
    if usage.input_tokens is not None and usage.output_tokens is not None and not usage.is_estimated:
        return usage
    return Usage(
        input_tokens=spine.sent_estimate if usage.is_estimated or usage.input_tokens is None else usage.input_tokens,
        output_tokens=usage.output_tokens if usage.output_tokens is not None else estimate_items(reply.items),
        cached_tokens=usage.cached_tokens,
        is_estimated=True,
    )
