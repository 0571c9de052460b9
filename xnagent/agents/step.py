"""A step: one model call, then the calls it asked for, in order, each with exactly one result.

Contract. The caller has appended the step's news. `step` leaves the spine balanced whatever happens: a call that could
not run has a result that says so (I3). Effects are in the log before they begin and after they end; state changes of a
tool are committed together with its result.
"""

from __future__ import annotations

from collections.abc import Awaitable

import anyio

from xnagent.agents.asking import ask
from xnagent.agents.desk import Desk, RunFailedError, Seat
from xnagent.agents.hooking import permitted, told_after
from xnagent.agents.results import close_calls, finish
from xnagent.core.events import Stored
from xnagent.core.items import ToolCall
from xnagent.core.limits import is_last_step
from xnagent.core.spine import missing_calls
from xnagent.core.spine_events import ToolStarted
from xnagent.core.state import has_ended, spine_of, work_of
from xnagent.ports import Call, Intent, Outcome, Parsed, Workspace

ENDING_TOOLS = frozenset({"finish", "submit"})
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
    """The turn ends when the result is submitted: from then on others see it, and its commit can wait for theirs."""
    if _needs_tree(seat, call):
        committed = await _carry_out(desk, seat, call=call)
    else:
        async with desk.turn:
            committed = await _carry_out(desk, seat, call=call)
    await committed


def _needs_tree(seat: Seat, call: ToolCall) -> bool:
    """Whether the call acts on the tree; all others act on the state, one at a time."""
    return call.name in seat.placed


async def _carry_out(desk: Desk, seat: Seat, *, call: ToolCall) -> Awaitable[tuple[Stored, ...]]:
    began = desk.clock.monotonic()
    outcome = await _outcome(desk, seat, call=call)
    return finish(desk, seat.agent, call=call, outcome=outcome, seconds=desk.clock.monotonic() - began)


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
            return await told_after(desk.hooks, call, prepared=prepared, outcome=known)
    intent = await permitted(desk.hooks, call, parsed=parsed, prepared=prepared)
    if isinstance(intent, Outcome):
        return intent
    await _announce(desk, seat, call=call, intent=intent)
    return await told_after(desk.hooks, call, prepared=prepared, outcome=await parsed.tool.run(prepared, intent))


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
