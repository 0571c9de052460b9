"""A tool of a server as a tool of ours: its effect is opaque, so a call is never repeated unknowingly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from xnagent.core.ids import AgentId
from xnagent.core.mcp_events import McpTool
from xnagent.core.spine_events import ToolStarted
from xnagent.ports import Call, Intent, Outcome, ToolSpec, Workspace
from xnagent.tools.mcp.connection import Connection
from xnagent.tools.mcp.link import PeerError
from xnagent.tools.mcp.results import fault_of, outcome_of
from xnagent.tools.outcome import failure


class Exchange(Protocol):
    """Knows which connection a call goes over."""

    def connection(self, server: str, *, agent: AgentId, place: Workspace | None) -> Connection | None:
        """The agent's connection to the server; None: it is not configured here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCallTool:
    """One tool of one server."""

    tool: McpTool
    exchange: Exchange

    @property
    def spec(self) -> ToolSpec:
        """As the session froze it."""
        return spec_of(self.tool)

    async def intend(self, call: Call) -> Intent | Outcome:
        """Nobody knows what it does."""
        return Intent(effect="opaque")

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Ask the server."""
        return await ask(self.tool, call.arguments, call=call, exchange=self.exchange)

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """It is not repeated."""
        return interrupted(self.tool.name)


def spec_of(tool: McpTool) -> ToolSpec:
    """What a model is told of it."""
    return ToolSpec(name=tool.name, description=tool.description, parameters=json.loads(tool.parameters))


async def ask(tool: McpTool, arguments: Mapping[str, Any], *, call: Call, exchange: Exchange) -> Outcome:
    """The server's answer as an outcome; whatever fails there is one too."""
    connection = exchange.connection(tool.server, agent=call.agent, place=call.workspace)
    if connection is None:
        fact = f"MCP server {tool.server} is not configured any more. Do it in another way."
        return failure("MCP_DOWN", fact, tool=tool.name)
    try:
        answer = await connection.call(tool.tool, arguments)
    except PeerError as error:
        return fault_of(tool, error, is_given_up=connection.is_given_up)
    return outcome_of(tool, answer, artifacts=call.artifacts)


def interrupted(name: str) -> Outcome:
    """What is known of a call that a killed process had begun."""
    return failure(
        "INTERRUPTED",
        "xnagent stopped while this call was running. It was not repeated. It may have had its effect fully, partly or "
        "not at all. Check the real state before you make it again.",
        tool=name,
    )
