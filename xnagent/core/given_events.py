"""Tools that a Python program gave to a session, as the session froze them, and the event that records it."""

from __future__ import annotations

from typing import Literal

from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTool:
    """A tool as its program describes it."""

    name: str
    description: str
    parameters: str
    """Its JSON Schema as canonical JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsGiven:
    """The tools that Workers get beside their own, for the whole session; their code is the program's."""

    tools: tuple[GivenTool, ...]
    """By name."""
    type: Literal["tools_given"] = "tools_given"
