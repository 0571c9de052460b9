"""The repositories of one session.

::

    FOLDER/integration.git      what is merged; bare, configured by us, borrows the user's objects
    FOLDER/runs/RUN/tree        a run's own repository; RUN/scratch is private, RUN/index and RUN/base are ours
    FOLDER/checks/NAME/tree     a fresh tree for checks
    FOLDER/spare/tree           the next of either, in advance (spares.py)
    FOLDER/tmp                  indexes in use

Whatever stands in a tree is only read with the integration repository as git folder.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from xnagent.core.commits import Applied, Base, Conflict, Merged, Taken
from xnagent.core.ids import RunId, SessionId
from xnagent.core.masking import Mask
from xnagent.core.values import dataclass
from xnagent.errors import UsageError, WorkspaceError
from xnagent.workspaces.bundling import with_bundle
from xnagent.workspaces.changes import changes_between, patch_between, problems_of
from xnagent.workspaces.delivery import deliver
from xnagent.workspaces.folders import Tree, remove, require_name, sweep
from xnagent.workspaces.git import Git, require_git, shown
from xnagent.workspaces.integration import (
    HEAD_REF,
    ORIGIN_REF,
    Planted,
    make_integration,
    require_commit,
    with_tree,
)
from xnagent.workspaces.merging import commit_merged, merge_trees
from xnagent.workspaces.origin import locate, resolve
from xnagent.workspaces.restoring import run_commit
from xnagent.workspaces.snapshots import keep_snapshot, notes_of, problems_in, take_snapshot, withheld_in
from xnagent.workspaces.spares import Spare
from xnagent.workspaces.staging import NO_MASK, ignored, stage_all, unblock


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """What crosses out of a session's repositories beside patches, and what does not."""

    keep_bytes: int = 0
    """A snapshot of at most so many is handed out to be kept."""
    bundles: Path | None = None
    """Each result is also written as a bundle into this folder."""
    mask: Mask = NO_MASK
    """No commit gets a file that holds one of these secrets, unless the commit before had it."""


NOTHING_MORE: Final = Crossing()


class SessionWorkspaces:
    """`ports.Workspaces` on git.

    `repository` is the user's checkout, a folder in it, or a plain folder; `folder` is the session's own and may be
    removed with it. `environ` says where programs are, and where the user's settings are that decide what is ignored.
    `crossing` says what else comes out of it; `spare` is the session's, so that somebody can keep it.
    """

    def __init__(
        self,
        repository: Path,
        folder: Path,
        *,
        session: SessionId,
        environ: Mapping[str, str],
        crossing: Crossing = NOTHING_MORE,
        spare: Spare | None = None,
    ) -> None:
        self._repository = repository
        self._folder = folder.resolve()
        self._session = session
        self._environ = environ
        self._crossing = crossing
        self._git = Git(environ=environ, git_dir=self._folder / "integration.git")
        self._spare = Spare(self._folder, environ=environ) if spare is None else spare

    async def begin(self, *, at: str, commit: str | None = None) -> Base:
        """Take the user's tree, uncommitted and untracked work included, without touching index, stash or hooks.

        With `commit`, begin from that commit instead.
        """
        await require_git(self._environ)
        origin = await locate(self._repository, self._environ)
        if not (self._folder / "integration.git").is_dir():
            await make_integration(self._git, origin)
        if commit is not None:
            commit = await resolve(origin.root, commit, environ=self._environ)
            await self._git.run("update-ref", ORIGIN_REF, commit)
            await self.advance(commit)
            return Base(commit=commit, is_shadow=False)
        if not origin.has_tree:
            raise UsageError(f"{self._repository} is a mirror; name a commit")
        async with _index(self._folder) as index:
            git = with_tree(self._git, origin.root, index=index)
            commit, staged = await take_snapshot(git, origin, at=at, mask=self._crossing.mask)
        await self.advance(commit)
        snapshot = await keep_snapshot(self._git, origin, commit=commit, limit_bytes=self._crossing.keep_bytes)
        return Base(
            commit=commit,
            is_shadow=origin.checkout is None,
            snapshot=snapshot,
            notes=notes_of(staged),
            withheld=withheld_in(staged),
        )

    async def reset(self, head: str) -> None:
        """After a crash: make the integration head what the log says, and remove what was left half-made."""
        for place in ("runs", "checks", "."):
            await anyio.to_thread.run_sync(sweep, self._folder / place)
        for place in ("tmp", "spare"):
            await anyio.to_thread.run_sync(remove, self._folder / place)
        (self._folder / "integration.git" / f"{HEAD_REF}.lock").unlink(missing_ok=True)
        await self.advance(head)

    async def open_run(self, run: RunId, base: str) -> Tree:
        """A repository of its own at the commit; the one that is there already, if the run goes on."""
        planted = Planted(folder=self._folder / "runs" / require_name(run))
        if planted.base != require_commit(base):
            planted = await self._spare.opened(base, final=planted.folder)
        planted.tree.scratch.mkdir(mode=0o700, exist_ok=True)
        return planted.tree

    async def take(self, run: RunId, base: str) -> Taken:
        """What the run changed since its base. Runs nothing that the tree could configure."""
        planted = Planted(folder=self._folder / "runs" / require_name(run))
        root = planted.tree.root
        if root.is_symlink() or not root.is_dir():
            raise WorkspaceError(f"the tree of {run} is gone; delegate the task again")
        await anyio.to_thread.run_sync(unblock, root)
        async with _index(self._folder) as index:
            git = with_tree(self._git, root, index=index)
            if planted.base == require_commit(base) and planted.index.is_file():
                await anyio.to_thread.run_sync(shutil.copy2, planted.index, index)
            else:
                await git.run("read-tree", base)
            staged = await stage_all(git, mask=self._crossing.mask)
            tree = await git.text("write-tree")
            left = await ignored(git)
        commit = await run_commit(self._git, tree, run=run, base=base)
        patch = await patch_between(self._git, base=base, commit=commit)
        problems = [*await problems_of(self._git, base=base, commit=commit), *problems_in(staged)]
        if patch is None:
            problems.append("TOO_LARGE: the patch is too large to keep; remove generated files or ignore them")
        changed = await self.changed(base, commit)
        return Taken(commit=commit, patch=patch or b"", changed_files=changed, problems=tuple(problems), ignored=left)

    async def merge(self, *, head: str, base: str, commit: str, message: str) -> Merged | Conflict:
        """Merge a run's commit into the head."""
        for name in (head, base, commit):
            require_commit(name)
        tree = await merge_trees(self._git, head=head, base=base, commit=commit)
        if isinstance(tree, Conflict):
            return tree
        merged = await commit_merged(self._git, tree, head=head, commit=commit, message=message)
        return Merged(commit=merged, has_moved=head != base)

    async def advance(self, commit: str) -> None:
        """Make a merged commit the integration head."""
        await self._git.run("update-ref", HEAD_REF, require_commit(commit))

    async def checkout(self, commit: str, name: str) -> Tree:
        """A fresh tree of the commit for checks, as a repository of its own."""
        folder = self._folder / "checks" / require_name(name)
        return (await self._spare.opened(require_commit(commit), final=folder)).tree

    async def discard(self, name: str) -> None:
        """Remove a run's repository or a checkout."""
        for place in ("runs", "checks"):
            await anyio.to_thread.run_sync(remove, self._folder / place / require_name(name))

    async def apply(self, *, base: str, head: str, wanted: bool) -> Applied:
        """Bring the result to the user: the branch, and with `wanted` also the files, if that loses nothing.

        A result without changes makes no branch.
        """
        changes = await changes_between(self._git, base=require_commit(base), commit=require_commit(head))
        if not changes:
            return Applied(is_applied=False, branch=None, changed_files=(), patch=b"", detail="nothing changed")
        patch = await patch_between(self._git, base=base, commit=head)
        names = tuple(shown(change.path) for change in changes)
        try:
            origin = await locate(self._repository, self._environ)
        except UsageError as error:
            return Applied(is_applied=False, branch=None, changed_files=names, patch=patch or b"", detail=str(error))
        async with _index(self._folder) as index:
            ours = with_tree(self._git, origin.root, index=index)
            delivered = await deliver(
                ours,
                origin,
                base=base,
                head=head,
                session=self._session,
                changes=changes if wanted and origin.has_tree else (),
            )
        if self._crossing.bundles is not None:
            delivered = await with_bundle(
                delivered, self._git, head=head, session=self._session, folder=self._crossing.bundles
            )
        return replace(delivered, changed_files=names, patch=patch or b"")

    async def changed(self, base: str, commit: str) -> tuple[str, ...]:
        """The paths that differ between two commits, both names of a rename."""
        changes = await changes_between(self._git, base=require_commit(base), commit=require_commit(commit))
        return tuple(shown(change.path) for change in changes)

    async def read(self, commit: str, path: str) -> bytes | None:
        """A file as it is in a commit, through symlinks within the tree; None if it is not there."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/") or ".." in parts or "\0" in path or not parts:
            return None
        name = f"{require_commit(commit)}:{'/'.join(parts)}".encode("utf-8", "surrogateescape")
        answer = await self._git.run("cat-file", "--batch", "--follow-symlinks", "-z", stdin=name + b"\0")
        head, _, content = answer.output.partition(b"\n")
        fields = head.split(b" ")
        is_file = len(fields) == len(("id", "type", "size")) and fields[1] == b"blob" and fields[2].isdigit()
        return content[: int(fields[2])] if is_file else None


@asynccontextmanager
async def _index(folder: Path) -> AsyncIterator[Path]:
    """A place for an index that is used once."""
    place = folder / "tmp"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as name:
        yield Path(name) / "index"
