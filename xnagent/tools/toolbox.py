"""The tools of one agent: their definitions as bytes that never vary, and the way from a call to its tool."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from xnagent.core.permissions import Denied, Rule
from xnagent.core.text import canonical
from xnagent.core.values import dataclass
from xnagent.ports import Outcome, Parsed, Tool
from xnagent.tools.guard import denial
from xnagent.tools.schema import ArgumentProblem, parse_arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenToolbox:
    """Tools by name, sorted; the same set gives the same bytes in whatever order it was given (M28, B007)."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    forbidden: Mapping[str, Rule] = field(default_factory=dict)
    """Tools that a rule took away."""

    @property
    def definitions(self) -> str:
        """All specs as canonical JSON; the same object for all sessions of a process that have the same tools."""
        specs = [tool.spec for tool in self.tools.values()]
        text = canonical(
            [{"name": spec.name, "description": spec.description, "parameters": spec.parameters} for spec in specs]
        )
        return sys.intern(text)

    def parse(self, name: str, arguments: str) -> Parsed | Outcome:
        """The tool and its arguments, or what the model should do instead."""
        tool = self.tools.get(name)
        if tool is None and (rule := self.forbidden.get(name)) is not None:
            return denial(Denied(rule=rule.text, how=name, is_forbidden=True), tool=name)
        if tool is None:
            return self._unknown(name)
        found = parse_arguments(arguments, tool.spec)
        if isinstance(found, ArgumentProblem):
            return Outcome(text=found.text, code=found.code, label=f"{name}: arguments do not fit")
        return Parsed(tool=tool, arguments=found)

    def with_tools(self, tools: Sequence[Tool]) -> FrozenToolbox:
        """A toolbox with more tools."""
        return replace(toolbox([*self.tools.values(), *tools]), forbidden=self.forbidden)

    def _unknown(self, name: str) -> Outcome:
        near = difflib.get_close_matches(name, list(self.tools), n=1, cutoff=0.6)
        hint = f"Did you mean {near[0]}? " if near else ""
        known = ", ".join(self.tools)
        text = (
            f"UNKNOWN_TOOL: there is no tool {name[:80]!r}. {hint}Do it yourself with the tools that you have: {known}."
        )
        return Outcome(text=text, code="UNKNOWN_TOOL", label=f"unknown tool {name[:80]}")


def toolbox(tools: Sequence[Tool], *, forbidden: Mapping[str, Rule] | None = None) -> FrozenToolbox:
    """A toolbox of the tools, sorted by name."""
    return FrozenToolbox(tools=dict(sorted((tool.spec.name, tool) for tool in tools)), forbidden=forbidden or {})
