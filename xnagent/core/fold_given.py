"""The part of `fold` that is about tools of a Python program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from xnagent.core.evolve import evolve
from xnagent.core.given_events import ToolsGiven
from xnagent.core.state import SessionState


def _tools_given(state: SessionState, event: ToolsGiven) -> SessionState:
    """The first stands: tools do not change later."""
    return state if state.given else evolve(state, given=event.tools)


HANDLERS: Final[Mapping[type[Any], Callable[[SessionState, Any], SessionState]]] = {ToolsGiven: _tools_given}
"""By event type."""
