"""The trees of runs as patches: saved after a step, and made again where the folder is gone. `ports.Trees` on git.

A save costs what `git status` does and a patch of what changed since the last one. Its index stands beside the run's
tree, out of the Worker's reach, so that a file is hashed once for each change.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from xnagent.core.commits import TreeSave
from xnagent.core.ids import RunId
from xnagent.core.masking import Mask
from xnagent.core.trees import TreeLog
from xnagent.errors import WorkspaceError
from xnagent.workspaces.changes import patch_between
from xnagent.workspaces.folders import Tree, require_name
from xnagent.workspaces.git import Git
from xnagent.workspaces.integration import CHECKOUT, RESTORED, Planted, plant, require_commit, with_tree
from xnagent.workspaces.restoring import Recorded, has_commit, patched, restore_integration, run_commit, tree_of
from xnagent.workspaces.spool import spool_at
from xnagent.workspaces.staging import NO_MASK, stage_all, unblock


class RunTrees:
    """`folder` and `mask` are the session's own, as in `SessionWorkspaces`; no patch is larger than `limit_bytes`."""

    def __init__(self, folder: Path, *, environ: Mapping[str, str], limit_bytes: int, mask: Mask = NO_MASK) -> None:
        self._folder = folder.resolve()
        self._git = Git(environ=environ, git_dir=self._folder / "integration.git")
        self._limit_bytes = limit_bytes
        self._mask = mask

    async def has_integration(self, *commits: str) -> bool:
        """Whether the integration repository is there and has the commits."""
        is_there = await anyio.Path(self._folder / "integration.git").is_dir()
        return is_there and all([await has_commit(self._git, commit) for commit in commits])

    async def restore_integration(self, recorded: Recorded, *, repository: Path) -> None:
        """Make the integration repository again."""
        await restore_integration(self._git, recorded, repository=repository)

    async def files(self, commit: str) -> tuple[str, ...]:
        """The paths of all files in a commit, sorted."""
        answer = await self._git.run("ls-tree", "-r", "-z", "--name-only", require_commit(commit))
        return tuple(sorted(os.fsdecode(name) for name in answer.output.split(b"\0") if name))

    async def holds(self, run: RunId, base: str, *, tree: TreeLog) -> bool:
        """Whether the run's tree is there, begun from that commit, and no other place went on with it since."""
        planted = self._planted(run)
        if planted.base != require_commit(base) or planted.times_restored != tree.times_restored:
            return False
        return tree.commit is None or await tree_of(self._git, tree.commit) is not None

    async def save(self, run: RunId, base: str, *, since: str | None) -> TreeSave:
        """The run's tree, against an earlier save if that is still known."""
        planted = self._planted(run)
        root = planted.tree.root
        if root.is_symlink() or planted.base != require_commit(base):
            raise WorkspaceError(f"the tree of {run} is gone")
        await anyio.to_thread.run_sync(_ready, planted)
        git = with_tree(self._git, root, index=planted.saving)
        await stage_all(git, mask=self._mask)
        tree = await git.text("write-tree")
        known = None if since is None else await tree_of(self._git, since)
        if since is not None and tree == known:
            return TreeSave(commit=since, since=since, patch=b"")
        since = base if since is None or known is None else since
        commit = await run_commit(self._git, tree, run=run, base=base)
        patch = await patch_between(self._git, base=since, commit=commit, limit_bytes=self._limit_bytes)
        if patch is None:
            raise WorkspaceError(f"the changes of {run} are larger than {self._limit_bytes} bytes and were not saved")
        return TreeSave(commit=commit, since=since, patch=patch)

    async def rebuild(self, run: RunId, base: str, *, patches: Sequence[bytes]) -> str:
        """The commit that the patches, one after another, make of the base."""
        tree = await self._git.text("rev-parse", f"{require_commit(base)}^{{tree}}")
        for patch in patches:
            tree = await patched(self._git, tree, patch=patch)
        return await run_commit(self._git, tree, run=run, base=base)

    async def restore(self, run: RunId, base: str, *, commit: str, spools: Sequence[str], times: int = 1) -> Tree:
        """Make the run's repository again at its base, with the tree of the commit; for how many times now."""

        async def dress(planted: Planted) -> None:
            await anyio.to_thread.run_sync(shutil.copy2, planted.index, planted.saving)
            git = with_tree(self._git, planted.tree.root, index=planted.saving)
            await replace(git, settings=CHECKOUT).run("read-tree", "-m", "-u", base, commit)
            for spool in spools:
                spool_at(planted.tree.scratch, spool).part("run").touch()
            (planted.folder / RESTORED).write_text(str(times), "utf-8")

        planted = await plant(self._git, require_commit(base), final=self._planted(run).folder, dress=dress)
        return planted.tree

    def _planted(self, run: RunId) -> Planted:
        return Planted(folder=self._folder / "runs" / require_name(run))


def _ready(planted: Planted) -> None:
    """The index of the last save, or the one from the beginning; a crash may have left its lock."""
    unblock(planted.tree.root)
    planted.saving.with_name(planted.saving.name + ".lock").unlink(missing_ok=True)
    if not planted.saving.is_file():
        shutil.copy2(planted.index, planted.saving)
