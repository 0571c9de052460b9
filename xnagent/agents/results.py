"""A call's one result: what the model reads of it, within what the step has room for, and how it reaches the log."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeAlias

from xnagent.agents.desk import Desk
from xnagent.core.events import Stored
from xnagent.core.ids import AgentId
from xnagent.core.items import ToolCall, ToolResult
from xnagent.core.offload import cuts, offloaded, results_limit, whole_of
from xnagent.core.spine import Spine, Whole, missing_calls
from xnagent.core.spine_events import ResultOffloaded, ResultShortened, Rung, ToolFinished
from xnagent.core.state import spine_of, work_of
from xnagent.core.text import clean, first_line
from xnagent.ports import Outcome

Cut: TypeAlias = ResultShortened | ResultOffloaded

ADVICE_AFTER = 3
REMARKED = (3, 5, 8, 13, 21)
"""How often a call that works was made in a row."""


def finish(
    desk: Desk, agent: AgentId, *, call: ToolCall, outcome: Outcome, seconds: float
) -> Awaitable[tuple[Stored, ...]]:
    """Submit the result with what it changed; with the last of a step, cut those that are too long together.

    What it returns is awaited for the commit.
    """
    is_effect = bool(outcome.events) or (agent, call.call_id) in desk.log.state.started_tools
    finished = ToolFinished(
        agent=agent,
        call_id=call.call_id,
        tool=call.name,
        text=clean(_told(desk, agent, call=call, outcome=outcome)),
        code=outcome.code,
        label=outcome.label or first_line(outcome.text),
        artifact=outcome.artifact,
        paths_read=outcome.paths_read,
        paths_changed=outcome.paths_changed,
        seen=outcome.seen,
        pages=outcome.pages,
        exit_code=outcome.exit_code,
        duration_seconds=round(seconds, 3),
    )
    own = _shortened_by_tool(finished, call)
    cut, finished = _within_limit(desk, finished, call=call)
    return desk.log.submit(*own, *cut, *outcome.events, finished, durable=is_effect)


def _shortened_by_tool(finished: ToolFinished, call: ToolCall) -> tuple[ResultShortened, ...]:
    """The tool's own ways: it cut its output and kept the whole, or referred to what was read before."""
    whole = whole_of(finished)
    if whole is None:
        return ()
    if finished.pages and not finished.pages[0][1]:
        return (_shortened(finished.agent, call, text=finished.text, rung="reference", place=whole.name),)
    if finished.artifact is None:
        return ()
    return (_shortened(finished.agent, call, text=finished.text, rung="tool", place=finished.artifact),)


def _shortened(agent: AgentId, call: ToolCall, *, text: str, rung: Rung, place: str) -> ResultShortened:
    return ResultShortened(
        agent=agent, call_id=call.call_id, tool=call.name, rung=rung, characters=len(text), place=place
    )


def _within_limit(desk: Desk, finished: ToolFinished, *, call: ToolCall) -> tuple[tuple[Cut, ...], ToolFinished]:
    """What a result that is too long, alone or with those of its step, leaves in the spine, and the events of it."""
    state = desk.log.ahead
    spine, limit = spine_of(state, finished.agent), results_limit(state, finished.agent)
    last = ToolResult(call_id=finished.call_id, text=finished.text)
    rooms = cuts(spine, last, whole=whole_of(finished), limit=limit)
    events: list[Cut] = []
    for other in spine.open_calls:
        if other.call_id in rooms and other.call_id != last.call_id:
            events += _offload(desk, spine, call=other, room=rooms[other.call_id], limit=limit)
    if last.call_id not in rooms:
        return tuple(events), finished
    whole = whole_of(finished) or _stored(desk, finished.text)
    artifact = finished.artifact if whole.is_page else whole.ticket
    text = offloaded(finished.text, rooms[last.call_id], whole=whole)
    rung = _rung(finished.text, limit)
    told = _shortened(finished.agent, call, text=text, rung=rung, place=whole.name)
    return (told, *events), replace(finished, text=text, artifact=artifact, pages=())


def _rung(text: str, limit: int) -> Rung:
    return "result" if len(text) > limit else "step"


def _offload(desk: Desk, spine: Spine, *, call: ToolCall, room: int, limit: int) -> tuple[Cut, Cut]:
    text = spine.results[call.call_id].text
    whole = spine.wholes.get(call.call_id) or _stored(desk, text)
    shorter = offloaded(text, room, whole=whole)
    told = _shortened(spine.agent, call, text=shorter, rung=_rung(text, limit), place=whole.name)
    return told, ResultOffloaded(agent=spine.agent, call_id=call.call_id, text=shorter, artifact=whole.ticket)


def _stored(desk: Desk, text: str) -> Whole:
    return Whole(name=desk.log.put(text.encode()), is_page=False)


def _told(desk: Desk, agent: AgentId, *, call: ToolCall, outcome: Outcome) -> str:
    """The result; from the third time on with advice: the call failed again, or was only made again (M115)."""
    log, made = work_of(desk.log.ahead, agent), f"{call.name} {call.arguments}"
    failed = log.failures[1] + 1 if log.failures[0] == made else 1
    times = log.repeats[1] + 1 if log.repeats[0] == made else 1
    if outcome.code != "ok" and failed >= ADVICE_AFTER:
        advice = f"This same call has failed {failed} times: it will not work as it stands. Do something else."
        return f"{outcome.text}\n{advice}"
    if outcome.code == "ok" and times in REMARKED:
        return f"[This same call was made {times} times in a row, with nothing else in between.]\n{outcome.text}"
    return outcome.text


async def close_calls(desk: Desk, agent: AgentId, *, code: str) -> None:
    """Give every open call a result that says that it was not finished (B003)."""
    for call in missing_calls(spine_of(desk.log.state, agent)):
        began = (agent, call.call_id) in desk.log.state.started_tools
        what = "stopped while it ran; it may have had part of its effect" if began else "not executed"
        text = f"{code}: {call.name} was {what}: the session or run was stopped."
        await finish(desk, agent, call=call, outcome=Outcome(text=text, code=code, label=what), seconds=0.0)
