"""Tools of the program that runs a session: they are frozen when it begins, and needed whenever it goes on."""

from __future__ import annotations

from collections.abc import Sequence

from xnagent.app.crew import planner_toolbox, worker_toolbox
from xnagent.core.given_events import GivenTool, ToolsGiven
from xnagent.core.ids import SessionId
from xnagent.core.limits import Limits
from xnagent.core.permissions import Rules
from xnagent.errors import UsageError
from xnagent.tools.given import GivenFunction
from xnagent.tools.skill import SkillTool
from xnagent.workspaces.shell import ProcessShell


def given_event(functions: Sequence[GivenFunction]) -> ToolsGiven | None:
    """What the log says of them; None where there are none.

    Raises UsageError for two of one name, and for the name of a tool that Workers have anyway.
    """
    taken = own_names() if functions else frozenset()
    names = [function.spec.name for function in functions]
    for name in names:
        if name in taken or name.startswith("mcp_"):
            raise UsageError(f'TOOL_NAME: "{name}" is the name of a tool that is there already; give yours another one')
        if names.count(name) > 1:
            raise UsageError(f'TOOL_NAME: two tools are called "{name}"; give one of them another name')
    tools = sorted((function.definition for function in functions), key=lambda tool: tool.name)
    return ToolsGiven(tools=tuple(tools)) if tools else None


def check_given(frozen: Sequence[GivenTool], functions: Sequence[GivenFunction], *, session: SessionId) -> None:
    """Raise UsageError unless the program gives the tools that the session was begun with.

    A description may differ: models go on with the one that the session began with.
    """
    before = {tool.name: tool.parameters for tool in frozen}
    now = {function.spec.name: function.definition.parameters for function in functions}
    if missing := sorted(before.keys() - now.keys()):
        raise UsageError(
            f"TOOL_MISSING: {session} was begun with tools of a Python program: {', '.join(missing)}; go on from "
            f"Python with xnagent.open({str(session)!r}, tools=[…]) that has them"
        )
    if added := sorted(now.keys() - before.keys()):
        raise UsageError(
            f"TOOL_ADDED: {session} was begun without {', '.join(added)}, and its tools do not change; leave out what "
            f"it does not know, or begin a new session"
        )
    if changed := sorted(name for name in before if before[name] != now[name]):
        raise UsageError(
            f"TOOL_CHANGED: {', '.join(changed)} had other arguments when {session} began; go on with the function as "
            f"it was, or begin a new session"
        )


def own_names() -> frozenset[str]:
    """The names of all tools that agents have without any others being given."""
    boxes = [planner_toolbox(Limits(), rules=Rules()), worker_toolbox(ProcessShell(environ={}), rules=Rules())]
    return frozenset(name for box in boxes for name in box.tools) | {SkillTool().spec.name}
