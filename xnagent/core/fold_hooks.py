"""The part of `fold` that is about hooks: what a resumed session need not run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from xnagent.core.evolve import evolve
from xnagent.core.hook_events import HookKey, HookRan
from xnagent.core.state import SessionState


def _hook_ran(state: SessionState, event: HookRan) -> SessionState:
    return evolve(state, hooks={**state.hooks, event.key: event})


def keys_of_call(hooks: Mapping[HookKey, HookRan], agent: str, *, call_id: str) -> list[HookKey]:
    """What is remembered of a call: once it has its result, nothing is run for it any more."""
    return [key for key, ran in hooks.items() if (ran.agent, ran.call_id) == (agent, call_id)]


HANDLERS: Final[Mapping[type[Any], Callable[[SessionState, Any], SessionState]]] = {HookRan: _hook_ran}
"""By event type."""
