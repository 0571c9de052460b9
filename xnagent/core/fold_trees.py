"""The part of `fold` that is about the trees of runs: what a workspace can be made again from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from xnagent.core.evolve import evolve
from xnagent.core.ids import AgentId, RunId, Ticket, agent_of
from xnagent.core.state import SessionState, work_of
from xnagent.core.tree_events import RunTreeRestored, RunTreeSaved
from xnagent.core.trees import TreeLog


def with_tree(state: SessionState, agent: AgentId, *, tree: TreeLog) -> SessionState:
    """The state with another record of an agent's tree."""
    work = dict(state.work)
    work[agent] = evolve(work_of(state, agent), tree=tree)
    return evolve(state, work=work)


def with_touch(tree: TreeLog, step: int) -> TreeLog:
    """A call began in this step that may change the tree: what is saved is older than it."""
    return tree if step in tree.unsaved else evolve(tree, unsaved=(*tree.unsaved, step))


def told(state: SessionState, agent: AgentId) -> SessionState:
    """The Worker has read what became of its tree."""
    tree = work_of(state, agent).tree
    return state if tree.restored is None else with_tree(state, agent, tree=evolve(tree, restored=None))


def taken(state: SessionState, run: RunId, *, commit: str, patch: Ticket) -> SessionState:
    """The patch that is to be merged holds the whole tree."""
    if run not in state.board.runs:
        return state
    tree = work_of(state, agent_of(run)).tree
    return with_tree(state, agent_of(run), tree=evolve(tree, patches=(patch,), commit=commit, unsaved=()))


def _run_tree_saved(state: SessionState, event: RunTreeSaved) -> SessionState:
    run = state.board.runs.get(event.run)
    if run is None:
        return state
    tree = work_of(state, agent_of(event.run)).tree
    before = () if event.since == run.base else tree.patches
    patches = before if event.patch is None else (*before, event.patch)
    tree = evolve(tree, patches=patches, commit=event.commit, unsaved=())
    return with_tree(state, agent_of(event.run), tree=tree)


def _run_tree_restored(state: SessionState, event: RunTreeRestored) -> SessionState:
    run = state.board.runs.get(event.run)
    if run is None:
        return state
    tree = work_of(state, agent_of(event.run)).tree
    earlier = () if tree.restored is None else tree.restored.lost
    restored = evolve(event, lost=tuple(sorted({*earlier, *event.lost})))
    is_bare = event.commit == run.base
    tree = TreeLog(
        patches=() if is_bare else tree.patches,
        commit=None if is_bare else event.commit,
        times_restored=tree.times_restored + 1,
        restored=restored,
    )
    return with_tree(state, agent_of(event.run), tree=tree)


HANDLERS: Final[Mapping[type[Any], Callable[[SessionState, Any], SessionState]]] = {
    RunTreeSaved: _run_tree_saved,
    RunTreeRestored: _run_tree_restored,
}
"""By event type."""
