"""State tools, called again with what stood in the log: pure functions, so the same must come out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xnagent.config import Settings
from xnagent.core.events import (
    Event,
    FactCorrected,
    FactRecorded,
    FactRetracted,
    FinishRequested,
    LimitReached,
    ProgressNoted,
    RunCancelRequested,
    RunMessageSent,
    RunStarted,
    RunSubmitted,
    Stored,
    TaskAdded,
    TaskDropped,
    TaskRevised,
)
from xnagent.core.ids import AgentId, Ticket
from xnagent.core.masking import is_same_but_masked
from xnagent.core.reserving import Prospect
from xnagent.core.spine_events import ToolFinished
from xnagent.core.state import SessionState
from xnagent.ports import Call, Outcome
from xnagent.store.artifacts import digest, ticket_of
from xnagent.tools.facts import fact_tools, reporting_tools
from xnagent.tools.looking import status_tool
from xnagent.tools.planning import planning_tools
from xnagent.tools.state_tool import StateTool
from xnagent.tools.toolbox import toolbox

STATE_TOOL_EVENTS = (
    TaskAdded,
    TaskRevised,
    TaskDropped,
    RunStarted,
    RunMessageSent,
    RunCancelRequested,
    FactRecorded,
    FactCorrected,
    FactRetracted,
    FinishRequested,
    LimitReached,
    ProgressNoted,
    RunSubmitted,
)
"""What state tools put into the log, just before their result."""

FROM_OUTSIDE = frozenset(
    {"CANCELLED", "CLOSED", "DENIED", "LIMIT", "NOT_EXECUTED", "STOPPED", "UNKNOWN_TOOL", "UNPAID"}
)
"""Codes of results that no state tool gave, or that lean on what was foreseen that day."""


def is_recalled(event: ToolFinished, settings: Settings) -> bool:
    """Whether the result is a state tool's own, so that it can be made again."""
    return event.code not in FROM_OUTSIDE and event.tool in {tool.spec.name for tool in state_tools(settings)}


def is_same_call(
    event: ToolFinished, arguments: str, *, state: SessionState, own: list[Event], settings: Settings
) -> bool:
    """Whether the call, made in this state, has this result and these events of its own."""
    made = made_again(event, arguments, state=state, tools=state_tools(settings, own))
    if made is None or made.code != event.code or not _has_told(event.text, made.text):
        return False
    pairs = zip(made.events, own, strict=False)
    return len(made.events) == len(own) and all(a == b or is_same_but_masked(str(a), str(b)) for a, b in pairs)


def _has_told(told: str, text: str) -> bool:
    """Advice may stand before what a tool answered, or behind it."""
    return told.endswith(text) or told.startswith(text) or is_same_but_masked(text, told)


def made_again(
    event: ToolFinished, arguments: str, *, state: SessionState, tools: Iterable[StateTool]
) -> Outcome | None:
    """What the tool answers now; None if there is no such tool."""
    tool = {tool.spec.name: tool for tool in tools}.get(event.tool)
    if tool is None:
        return None
    parsed = toolbox([tool]).parse(event.tool, arguments)
    if isinstance(parsed, Outcome):
        return parsed
    nothing = _Nothing()
    call = Call(
        agent=event.agent,
        call_id=event.call_id,
        arguments=parsed.arguments,
        state=state,
        artifacts=nothing,
        history=nothing,
    )
    return tool.act(call)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Foreseen:
    """What was foreseen when the run began: of histories and prices of that day, so it is not made again."""

    events: tuple[Event, ...] = ()

    def of(self, _state: SessionState, started: RunStarted) -> Prospect | None:
        known = [event.forecast for event in self.events if isinstance(event, RunStarted) and event.run == started.run]
        return Prospect(forecast=known[0]) if known and known[0] is not None else None


def state_tools(settings: Settings, own: Iterable[Event] = ()) -> tuple[StateTool, ...]:
    """All of them; runs get the forecasts that `own` says."""
    planning = planning_tools(limits=settings.limits.to_limits(), prospects=_Foreseen(events=tuple(own)))
    return (*planning, *fact_tools(), *reporting_tools(), status_tool())


class _Nothing:
    """State tools read neither artifacts nor history; what they store is in the session's file already."""

    def put(self, data: bytes, *, is_verbatim: bool = False) -> Ticket:
        return ticket_of(digest(data))

    async def get(self, ticket: Ticket) -> bytes | None:
        raise NotImplementedError

    async def history(self, agent: AgentId) -> tuple[Stored, ...]:
        raise NotImplementedError
