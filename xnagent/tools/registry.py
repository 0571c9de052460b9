"""The tools of each role, sorted by name, so that their definitions are the same bytes in every request."""

from __future__ import annotations

from collections.abc import Iterable

from xnagent.core.permissions import Rules
from xnagent.ports import Shell, Tool
from xnagent.tools.bash import BashTool
from xnagent.tools.edit import edit_tool
from xnagent.tools.glob import GlobTool
from xnagent.tools.grep import GrepTool
from xnagent.tools.guard import guarded
from xnagent.tools.known import FileView
from xnagent.tools.read import ReadTool
from xnagent.tools.write import write_tool


def worker_tools(
    shell: Shell, *, ripgrep: str | None = None, view: FileView | None = None, rules: Rules | None = None
) -> tuple[Tool, ...]:
    """bash, edit, glob, grep, read, write, as far as the rules leave them.

    Make one set for each run: it remembers which files its model has seen.
    """
    seen = view or FileView()
    return _sorted(
        [
            BashTool(shell=shell, view=seen),
            ReadTool(field="path", view=seen),
            write_tool(seen),
            edit_tool(seen),
            GrepTool(ripgrep=ripgrep, rules=rules or Rules()),
            GlobTool(),
        ],
        rules or Rules(),
    )


def planner_tools(*, ripgrep: str | None = None, rules: Rules | None = None) -> tuple[Tool, ...]:
    """glob, grep and read, on the folder that the call names; nothing is changed."""
    rules = rules or Rules()
    return _sorted(
        [ReadTool(field="target", view=FileView()), GrepTool(ripgrep=ripgrep, rules=rules), GlobTool()], rules
    )


def _sorted(tools: Iterable[Tool], rules: Rules) -> tuple[Tool, ...]:
    return tuple(sorted(guarded(tools, rules), key=lambda tool: tool.spec.name))
