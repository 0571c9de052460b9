"""A step: one model call, then the calls it asked for, in order, each with exactly one result.

Contract. The caller has appended the step's news. `step` leaves the spine balanced whatever happens: a call that could
not run has a result that says so (I3). Effects are in the log before they begin and after they end; state changes of a
tool are committed together with its result.
"""

from __future__ import annotations

import anyio

from xnagent.agents.asking import ask
from xnagent.agents.desk import Desk, RunFailedError, Seat
from xnagent.core.ids import AgentId
from xnagent.core.items import ToolCall
from xnagent.core.limits import is_last_step
from xnagent.core.spine import missing_calls
from xnagent.core.spine_events import ToolFinished, ToolStarted
from xnagent.core.state import has_ended, spine_of, work_of
from xnagent.core.text import clean, first_line
from xnagent.ports import Call, Intent, Outcome, Parsed, Workspace

ENDING_TOOLS = frozenset({"finish", "submit"})
ADVICE_AFTER = 3
STOP_AFTER = 8


async def step(desk: Desk, seat: Seat) -> None:
    """Ask the model, then do what it asked for."""
    await ask(desk, seat)
    await do_calls(desk, seat)


async def do_calls(desk: Desk, seat: Seat) -> None:
    """Give each open call its result, in call order; also after a crash, where some may have begun."""
    try:
        for call in missing_calls(spine_of(desk.log.state, seat.agent)):
            await _do_call(desk, seat, call=call)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await close_calls(desk, seat.agent, code="CANCELLED")
        raise
    if work_of(desk.log.state, seat.agent).failures[1] >= STOP_AFTER:
        message = f"stopped: the same failing call was made {STOP_AFTER} times in a row"
        raise RunFailedError(message)


async def _do_call(desk: Desk, seat: Seat, *, call: ToolCall) -> None:
    if _needs_tree(seat, call):
        await _carry_out(desk, seat, call=call)
        return
    async with desk.turn:
        await _carry_out(desk, seat, call=call)


def _needs_tree(seat: Seat, call: ToolCall) -> bool:
    """Whether the call acts on the tree; all others act on the state, one at a time."""
    return call.name in seat.placed


async def _carry_out(desk: Desk, seat: Seat, *, call: ToolCall) -> None:
    began = desk.clock.monotonic()
    outcome = await _outcome(desk, seat, call=call)
    await _finish(desk, seat.agent, call=call, outcome=outcome, seconds=desk.clock.monotonic() - began)


async def _outcome(desk: Desk, seat: Seat, *, call: ToolCall) -> Outcome:
    if has_ended(desk.log.state, seat.agent):
        return Outcome(text="CLOSED: not executed: you ended your work with an earlier call", code="CLOSED")
    if call.name not in ENDING_TOOLS and is_last_step(desk.log.state, desk.limits):
        return Outcome(text=f"LIMIT: not executed: step limit reached ({desk.limits.steps})", code="LIMIT")
    parsed = seat.toolbox.parse(call.name, call.arguments)
    if isinstance(parsed, Outcome):
        return parsed
    started = desk.log.state.started_tools.get((seat.agent, call.call_id))
    prepared = await _prepare(desk, seat, call=call, parsed=parsed)
    if started is not None:
        known = await parsed.tool.reconcile(prepared, started)
        if known is not None:
            return known
    intent = await parsed.tool.intend(prepared)
    if isinstance(intent, Outcome):
        return intent
    await _announce(desk, seat, call=call, intent=intent)
    return await parsed.tool.run(prepared, intent)


async def _prepare(desk: Desk, seat: Seat, *, call: ToolCall, parsed: Parsed) -> Call:
    workspace: Workspace | None = await seat.place.open() if _needs_tree(seat, call) else None
    return Call(
        agent=seat.agent,
        call_id=call.call_id,
        arguments=parsed.arguments,
        state=desk.log.ahead,
        artifacts=desk.log,
        history=desk.log,
        workspace=workspace,
    )


async def _announce(desk: Desk, seat: Seat, *, call: ToolCall, intent: Intent) -> None:
    """The intent is durable before the effect; a pure call has none."""
    if intent.effect == "pure":
        return
    started = ToolStarted(
        agent=seat.agent,
        call_id=call.call_id,
        tool=call.name,
        effect=intent.effect,
        spool=intent.spool,
        before=intent.before,
        after=intent.after,
    )
    await desk.log.append(started)


async def _finish(desk: Desk, agent: AgentId, *, call: ToolCall, outcome: Outcome, seconds: float) -> None:
    is_effect = bool(outcome.events) or (agent, call.call_id) in desk.log.state.started_tools
    finished = ToolFinished(
        agent=agent,
        call_id=call.call_id,
        tool=call.name,
        text=clean(outcome.text + _advice(desk, agent, call=call, outcome=outcome)),
        code=outcome.code,
        label=outcome.label or first_line(outcome.text),
        artifact=outcome.artifact,
        paths_read=outcome.paths_read,
        paths_changed=outcome.paths_changed,
        seen=outcome.seen,
        exit_code=outcome.exit_code,
        duration_seconds=round(seconds, 3),
    )
    await desk.log.append(*outcome.events, finished, durable=is_effect)


def _advice(desk: Desk, agent: AgentId, *, call: ToolCall, outcome: Outcome) -> str:
    same, repeats = work_of(desk.log.state, agent).failures
    if outcome.code == "ok" or same != f"{call.name} {call.arguments}" or repeats + 1 < ADVICE_AFTER:
        return ""
    return f"\nThis same call has failed {repeats + 1} times: it will not work as it stands. Do something else."


async def close_calls(desk: Desk, agent: AgentId, *, code: str) -> None:
    """Give every open call a result that says that it was not finished (B003)."""
    for call in missing_calls(spine_of(desk.log.state, agent)):
        began = (agent, call.call_id) in desk.log.state.started_tools
        what = "stopped while it ran; it may have had part of its effect" if began else "not executed"
        text = f"{code}: {call.name} was {what}: the session or run was stopped."
        await _finish(desk, agent, call=call, outcome=Outcome(text=text, code=code, label=what), seconds=0.0)
