"""Keeps the trees of runs in the log where that is wanted, and takes them from there where their folder is gone."""

from __future__ import annotations

from collections.abc import Sequence

from xnagent.core.ids import RunId, agent_of
from xnagent.core.state import work_of
from xnagent.core.tree_events import RunTreeRestored, RunTreeSaved
from xnagent.core.trees import TreeLog
from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.ports import Log, Trees, Workspace, Workspaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Opens runs' trees and saves them."""

    log: Log
    workspaces: Workspaces
    trees: Trees
    is_saving: bool
    """Whether trees under way are kept in the log."""

    async def open(self, run: RunId, base: str) -> Workspace:
        """The run's repository: new, as it stands, or made again; then the Worker will be told what is missing."""
        was_there = self.log.state.board.runs[run].base is not None
        tree = work_of(self.log.state, agent_of(run)).tree
        if not was_there or await self.trees.holds(run, base, tree=tree):
            return await self.workspaces.open_run(run, base)
        if tree == TreeLog():
            return await self.workspaces.open_run(run, base)
        commit, lost = await self._rebuilt(run, base, tree=tree)
        await self.log.append(RunTreeRestored(run=run, commit=commit, lost=lost))
        restored = work_of(self.log.state, agent_of(run)).tree.times_restored
        return await self.trees.restore(run, base, commit=commit, spools=self._begun(run), times=restored)

    async def save(self, run: RunId) -> None:
        """Keep the tree, if a call may have changed it since the last save; where that fails the steps stay unsaved."""
        state = self.log.state
        base, tree = state.board.runs[run].base, work_of(state, agent_of(run)).tree
        if not self.is_saving or base is None or not tree.unsaved:
            return
        try:
            saved = await self.trees.save(run, base, since=tree.commit)
        except WorkspaceError:
            return
        patch = self.log.put(saved.patch, is_verbatim=True) if saved.patch else None
        event = RunTreeSaved(run=run, step=tree.unsaved[-1], commit=saved.commit, since=saved.since, patch=patch)
        await self.log.append(event, durable=patch is not None)

    async def _rebuilt(self, run: RunId, base: str, *, tree: TreeLog) -> tuple[str, tuple[int, ...]]:
        """The tree's commit, and the steps whose changes are not in it."""
        if not tree.patches:
            return base, tree.unsaved
        patches = [await self.log.get(ticket) for ticket in tree.patches]
        whole = [patch for patch in patches if patch is not None]
        try:
            if len(whole) == len(patches):
                return await self.trees.rebuild(run, base, patches=whole), tree.unsaved
        except WorkspaceError:
            pass
        return base, tuple(range(1, work_of(self.log.state, agent_of(run)).steps + 1))

    def _begun(self, run: RunId) -> Sequence[str]:
        started = self.log.state.started_tools.items()
        return [tool.spool for (owner, _), tool in started if owner == agent_of(run) and tool.spool]
