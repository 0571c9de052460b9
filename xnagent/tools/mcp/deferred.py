"""Many tools behind three: search, inspect, invoke (M111). Their definitions are the same for all sessions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from xnagent.core.mcp_events import McpTool
from xnagent.core.spine_events import ToolStarted
from xnagent.core.text import canonical, first_line
from xnagent.ports import Call, Intent, Outcome, Tool, ToolSpec
from xnagent.tools.mcp.results import labelled
from xnagent.tools.mcp.tool import Exchange, ask, interrupted, spec_of
from xnagent.tools.outcome import failure
from xnagent.tools.schema import ArgumentProblem, parse_arguments
from xnagent.tools.state_tool import STRING, STRINGS, StateTool, describe, object_schema

MOST_FOUND: Final = 20
MOST_INSPECTED: Final = 5
LINE_CHARACTERS: Final = 160
_WORD: Final = re.compile(r"[a-z0-9]+")

SEARCH = ToolSpec(
    name="mcp_search",
    description=(
        "Find tools of MCP servers that are not listed here. Give words for what you want to do; the best matches come "
        "with their names and what their servers say of them. Without words: all servers and the names of their tools. "
        "Then mcp_inspect shows a tool's arguments, and mcp_invoke calls it."
    ),
    parameters=object_schema({"words": describe(STRING, "What you want to do, in a few words.")}),
)
INSPECT = ToolSpec(
    name="mcp_inspect",
    description=f"The description and the arguments' schema of tools that mcp_search found, at most {MOST_INSPECTED}.",
    parameters=object_schema({"tools": describe(STRINGS, "Names such as mcp__server__tool.")}, required=("tools",)),
)
INVOKE = ToolSpec(
    name="mcp_invoke",
    description="Call a tool that mcp_search found, with arguments that fit what mcp_inspect shows of it.",
    parameters=object_schema(
        {
            "tool": describe(STRING, "A name such as mcp__server__tool."),
            "arguments": {"type": "object", "description": "The tool's own arguments."},
        },
        required=("tool",),
    ),
)


def deferred_tools(pool: Sequence[McpTool], *, exchange: Exchange) -> tuple[Tool, ...]:
    """The three, in front of the pool; none where it is empty."""
    if not pool:
        return ()
    known = {tool.name: tool for tool in pool}
    return (
        StateTool(spec=SEARCH, act=lambda call: _search(call, known)),
        StateTool(spec=INSPECT, act=lambda call: _inspect(call, known)),
        InvokeTool(known=known, exchange=exchange),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InvokeTool:
    """Calls one of the pool."""

    known: Mapping[str, McpTool]
    exchange: Exchange
    spec: ToolSpec = INVOKE

    async def intend(self, call: Call) -> Intent | Outcome:
        """As the tool's own call would, once its arguments fit."""
        name = str(call.arguments["tool"])
        tool = self.known.get(name)
        if tool is None:
            return _unknown(name, self.known)
        parsed = parse_arguments(canonical(call.arguments.get("arguments", {})), spec_of(tool))
        if isinstance(parsed, ArgumentProblem):
            return Outcome(text=parsed.text, code=parsed.code, label=f"{name}: arguments do not fit")
        return Intent(effect="opaque")

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Ask its server."""
        tool = self.known[str(call.arguments["tool"])]
        parsed = parse_arguments(canonical(call.arguments.get("arguments", {})), spec_of(tool))
        arguments = {} if isinstance(parsed, ArgumentProblem) else parsed
        return await ask(tool, arguments, call=call, exchange=self.exchange)

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """It is not repeated."""
        return interrupted(str(call.arguments["tool"]))


def _unknown(name: str, known: Mapping[str, McpTool]) -> Outcome:
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}? " if near else ""
    fact = f"there is no tool {name[:80]!r} behind mcp_search. {hint}Find its name with mcp_search."
    return failure("NOT_FOUND", fact, tool=INVOKE.name)


def _search(call: Call, known: Mapping[str, McpTool]) -> Outcome:
    words = _WORD.findall(str(call.arguments.get("words", "")).lower())
    if not words:
        return Outcome(text=_overview(known), label=f"all {len(known)} tools")
    ranked = sorted(known.values(), key=lambda tool: (-_score(tool, words), tool.name))
    found = [tool for tool in ranked if _score(tool, words) > 0]
    if not found:
        fact = f"none of the {len(known)} tools matches. Use other words, or none for all names."
        return failure("NOT_FOUND", fact, tool=SEARCH.name)
    lines = [labelled(f"{tool.name}: {first_line(tool.description, LINE_CHARACTERS)}", tool) for tool in found]
    more = [f"[{len(found) - MOST_FOUND} more match; use more words]"] if len(found) > MOST_FOUND else []
    text = "\n".join([*lines[:MOST_FOUND], *more])
    return Outcome(text=text, label=f"{len(found)} of {len(known)} tools")


def _overview(known: Mapping[str, McpTool]) -> str:
    counted = Counter(tool.server for tool in known.values())
    names: dict[str, list[str]] = {}
    for tool in known.values():
        names.setdefault(tool.server, []).append(tool.name)
    return "\n".join(f"{server} ({counted[server]} tools): {', '.join(names[server])}" for server in sorted(names))


def _score(tool: McpTool, words: Sequence[str]) -> int:
    """A word in the name counts three times as much as one in the description; a part of a word counts too."""
    name, description = tool.name.lower(), tool.description.lower()
    return sum(3 * (word in name) + (word in description) for word in words)


def _inspect(call: Call, known: Mapping[str, McpTool]) -> Outcome:
    names = [str(name) for name in call.arguments["tools"]]
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        return _unknown(missing, known)
    if not 0 < len(names) <= MOST_INSPECTED:
        return failure("BAD_ARGS", f"name 1 to {MOST_INSPECTED} tools, not {len(names)}.", tool=INSPECT.name)
    shown = [known[name] for name in dict.fromkeys(names)]
    parts = [labelled(f"{tool.name}: {tool.description}\narguments: {tool.parameters}", tool) for tool in shown]
    return Outcome(text="\n".join(parts), label=f"inspect {', '.join(names)}")
