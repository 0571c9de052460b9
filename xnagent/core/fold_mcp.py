"""The part of `fold` that is about MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from xnagent.core.evolve import evolve
from xnagent.core.mcp_events import McpServerChanged, McpToolsFrozen
from xnagent.core.state import SessionState


def _mcp_tools_frozen(state: SessionState, event: McpToolsFrozen) -> SessionState:
    """The first stands: tools do not change later."""
    return state if state.mcp is not None else evolve(state, mcp=event)


def _mcp_server_changed(state: SessionState, _event: McpServerChanged) -> SessionState:
    return state


HANDLERS: Final[Mapping[type[Any], Callable[[SessionState, Any], SessionState]]] = {
    McpToolsFrozen: _mcp_tools_frozen,
    McpServerChanged: _mcp_server_changed,
}
"""By event type."""
