"""A tree in advance: made while nobody waits for one, given to whoever wants the next.

To write the files of a large repository takes seconds, most of them the kernel's. The spare is such a tree, in which
nobody worked: whoever takes it renames it and changes the few files that differ. Where the difference says more than
which files there are (attributes, submodules), it is dropped and a fresh tree is made.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from xnagent.errors import WorkspaceError
from xnagent.workspaces.box.pins import give, give_parts
from xnagent.workspaces.changes import SUBMODULE, Change, changes_between
from xnagent.workspaces.folders import half_made, making, remove
from xnagent.workspaces.git import Git
from xnagent.workspaces.integration import HEAD_REF, Planted, move_to, plant

LEAST_FILES: Final = 5_000
"""A repository with fewer is written in a moment."""
ROOM: Final = 8
"""So many times its size must be free on the disk."""
BLOCK_BYTES: Final = 4_096
"""What a file takes at least."""


class Spare:
    """One tree of a session's integration head in advance, while `keep` runs; `folder` is the session's own."""

    def __init__(self, folder: Path, *, environ: Mapping[str, str], least_files: int = LEAST_FILES) -> None:
        self._place = Planted(folder=folder.resolve() / "spare")
        self._git = Git(environ=environ, git_dir=folder.resolve() / "integration.git")
        self._least_files = least_files
        self._owner: int | None = None
        self._base: str | None = None
        """The commit of the one that is there."""
        self._lock = anyio.Lock()
        self._opening = 0
        self._is_quiet = anyio.Event()

    @property
    def base(self) -> str | None:
        """The commit of the tree that is ready; None: there is none."""
        return self._base

    async def keep(self, *, owner: int | None = None) -> None:
        """Have one until this is cancelled, then remove it; as root, it belongs to the owner.

        Returns if the repository is small or the disk nearly full, and at the first fault: whoever wants a tree meets
        that as well, and can say so.
        """
        self._owner = owner
        try:
            with suppress(WorkspaceError, OSError):
                await self._keep()
        finally:
            with anyio.CancelScope(shield=True):
                await self._drop()

    async def opened(self, commit: str, *, final: Path) -> Planted:
        """A fresh tree of the commit at that place, which was the spare if that is of use. Raises WorkspaceError."""
        self._opening += 1
        try:
            async with self._lock:
                has_taken = await self._has_taken(commit, final)
            return Planted(folder=final) if has_taken else await plant(self._git, commit, final=final)
        finally:
            self._opening -= 1
            if not self._opening:
                self._is_quiet.set()

    async def _keep(self) -> None:
        if not await self._is_worth_it():
            return
        while True:
            await self._renew()
            await self._is_quiet.wait()
            self._is_quiet = anyio.Event()

    async def _is_worth_it(self) -> bool:
        listed = (await self._git.run("ls-tree", "-r", "-l", "-z", "--full-tree", HEAD_REF)).output.split(b"\0")
        sizes = [line.partition(b"\t")[0].split()[-1] for line in listed if line]
        whole = sum(int(size) for size in sizes if size.isdigit()) + BLOCK_BYTES * len(sizes)
        free = shutil.disk_usage(self._place.folder.parent).free
        return len(sizes) >= self._least_files and free > ROOM * whole

    async def _renew(self) -> None:
        async with self._lock:
            if self._base is not None or self._opening:
                return
            head = await self._git.text("rev-parse", HEAD_REF)
            await plant(self._git, head, final=self._place.folder, dress=self._given)
            self._base = head

    async def _given(self, planted: Planted) -> None:
        owner = self._owner
        if owner is not None:
            await anyio.to_thread.run_sync(lambda: give(planted.tree.root, owner=owner))

    async def _has_taken(self, commit: str, final: Path) -> bool:
        base = self._base
        if base is None:
            return False
        changes = await self._changes(base, commit)
        if changes is None:
            await self._drop()
            return False
        async with making(final) as folder:
            self._base = None
            self._place.folder.rename(folder)
            if commit != base:
                await self._move(Planted(folder=folder), commit, changes=changes)
        return True

    async def _changes(self, base: str, commit: str) -> tuple[Change, ...] | None:
        """What to change; None where changing files alone does not make what a fresh tree is."""
        if base == commit:
            return ()
        changes = await changes_between(self._git, base=base, commit=commit)
        return None if any(map(_says_more, changes)) else changes

    async def _move(self, planted: Planted, commit: str, *, changes: tuple[Change, ...]) -> None:
        root, git_dir, owner = planted.tree.root, planted.tree.root / ".git", self._owner
        planted.marker.unlink()
        for old in ("logs", "refs/heads/work"):
            await anyio.to_thread.run_sync(remove, git_dir / old)
        await move_to(commit, planted, environ=self._git.environ)
        if owner is not None:
            paths = [change.path for change in changes if change.new]
            await anyio.to_thread.run_sync(lambda: give_parts(root, paths, owner=owner))
            git = Git(environ=self._git.environ, git_dir=git_dir, work_tree=root, index=planted.index)
            await git.run("update-index", "-q", "--refresh")
            await anyio.to_thread.run_sync(shutil.copyfile, planted.index, git_dir / "index")
        planted.settle(commit)

    async def _drop(self) -> None:
        self._base = None
        for folder in (self._place.folder, half_made(self._place.folder)):
            await anyio.to_thread.run_sync(remove, folder)


def _says_more(change: Change) -> bool:
    is_submodule = any(entry is not None and entry.mode == SUBMODULE for entry in (change.old, change.new))
    return is_submodule or change.path.rpartition("/")[2] == ".gitattributes"
