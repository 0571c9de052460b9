"""What MCP servers offer, as a session froze it, and the events that record it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool of a server. All of it but the names was written by the server: data that nobody vouches for."""

    name: str
    """As models know it: `mcp__server__tool`, at most 64 characters."""
    server: str
    tool: str
    """As the server knows it."""
    description: str
    """Capped, and labelled with its origin."""
    parameters: str
    """Its JSON Schema as canonical JSON, without what no provider takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A configured server when the session began."""

    server: str
    protocol: str = ""
    """The version of the protocol that was agreed on; empty if it did not answer."""
    fault: str = ""
    """Why none of its tools is there."""
    skipped: tuple[str, ...] = ()
    """Tools that cannot be used: name and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolsFrozen:
    """What Workers are told of MCP servers, for the whole session; without the servers it is still the same."""

    servers: tuple[McpServer, ...]
    """By name."""
    listed: tuple[McpTool, ...]
    """By server and tool."""
    deferred: tuple[str, ...] = ()
    """Names of the tools that stand behind search, inspect and invoke; the others are told with their schemas."""
    pool_tokens: int = 0
    """Estimate of the definitions that could be deferred."""
    inline_tokens: int = 0
    """What they would take in all requests of a Worker, as far as that can be foreseen."""
    detour_tokens: int = 0
    """What search, inspect and invoke would take instead."""
    type: Literal["mcp_tools_frozen"] = "mcp_tools_frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerChanged:
    """A server offers other tools than the session froze; that is told, not followed."""

    server: str
    detail: str
    type: Literal["mcp_server_changed"] = "mcp_server_changed"


McpEvent: TypeAlias = McpToolsFrozen | McpServerChanged
