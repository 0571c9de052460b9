"""The result in the user's tree, if that loses nothing of theirs.

A path is written only if it is as the session found it. All new content is written beside its place first; then
every path is looked at again; only then things are renamed and removed. Doing it again after a crash goes on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

import anyio

from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.workspaces.changes import SUBMODULE, Change, staged_changes
from xnagent.workspaces.git import Git, joined
from xnagent.workspaces.placing import Placement, prepare, settle, withdraw
from xnagent.workspaces.staging import stage

Signature = tuple[int, ...] | None
"""What `lstat` says about a path, as far as it tells one state from another; None: nothing there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """What became of the files: all written, or none."""

    is_applied: bool
    overlaps: tuple[str, ...] = ()
    """Paths that the user changed too, or that something else stands at."""
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    pending: tuple[Change, ...]
    overlaps: tuple[str, ...]
    signatures: Mapping[str, Signature] = field(default_factory=dict)


async def land(ours: Git, changes: tuple[Change, ...], *, base: str, head: str, staging: Path) -> Landed:
    """Write the session's changes into the tree of `ours`; `staging` is an empty folder, `ours` has an index to use."""
    try:
        plan = await _plan(ours, changes, base=base)
        if plan.overlaps:
            return Landed(is_applied=False, overlaps=plan.overlaps)
        await _render(ours, plan.pending, head=head, staging=staging)
        return await anyio.to_thread.run_sync(_carry_out, plan, _placement(plan, _root(ours), staging=staging))
    except WorkspaceError as error:
        return Landed(is_applied=False, failure=str(error))
    except OSError as error:
        return Landed(is_applied=False, failure=f"{error.strerror}: {error.filename}")


def _root(ours: Git) -> Path:
    if ours.work_tree is None:
        raise WorkspaceError("there is no tree to write to")
    return ours.work_tree


async def _plan(ours: Git, changes: tuple[Change, ...], *, base: str) -> _Plan:
    root = _root(ours)
    paths = tuple(change.path for change in changes)
    signatures = await anyio.to_thread.run_sync(_signatures, root, paths)
    await ours.run("read-tree", base)
    standing = await stage(ours, paths)
    actual = await staged_changes(ours, base)
    removed = {change.path for change in changes if change.new is None}
    overlaps = set(standing.unreadable)
    pending: list[Change] = []
    for change in changes:
        current = actual.get(change.path, change.old)
        if current is None and _is_in_the_way(root, change, removed=removed):
            overlaps.add(change.path)
        if current != change.new:
            pending.append(change)
            if current != change.old or _is_submodule(change):
                overlaps.add(change.path)
    return _Plan(pending=tuple(pending), overlaps=tuple(sorted(overlaps)), signatures=signatures)


def _is_submodule(change: Change) -> bool:
    return any(entry is not None and entry.mode == SUBMODULE for entry in (change.old, change.new))


def _is_in_the_way(root: Path, change: Change, *, removed: set[str]) -> bool:
    """Whether something that git does not see stands where a file is to come: a folder with content, a special file."""
    if change.new is None:
        return False
    parts = change.path.split("/")
    for length in range(1, len(parts)):
        above = "/".join(parts[:length])
        mode = _mode(root / above)
        if mode is not None and not stat.S_ISDIR(mode):
            return above not in removed
    mode = _mode(root / change.path)
    if mode is None:
        return False
    return not stat.S_ISDIR(mode) or not _holds_only(root / change.path, root=root, removed=removed)


def _holds_only(folder: Path, *, root: Path, removed: set[str]) -> bool:
    for current, _, files in os.walk(folder):
        if any((Path(current) / name).relative_to(root).as_posix() not in removed for name in files):
            return False
    return True


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


async def _render(ours: Git, pending: tuple[Change, ...], *, head: str, staging: Path) -> None:
    """The new files as they are to stand in the tree, line ends and links included."""
    wanted = tuple(change.path for change in pending if change.new is not None)
    await ours.run("read-tree", head)
    if wanted:
        git = Git(environ=ours.environ, git_dir=ours.git_dir, index=ours.index, work_tree=staging)
        await git.run("checkout-index", "-f", "-q", "-z", "--stdin", stdin=joined(wanted))


def _placement(plan: _Plan, root: Path, *, staging: Path) -> Placement:
    return Placement(
        root=root,
        staging=staging,
        written=tuple(change.path for change in plan.pending if change.new is not None),
        removed=tuple(change.path for change in plan.pending if change.new is None),
    )


def _carry_out(plan: _Plan, placement: Placement) -> Landed:
    prepared = prepare(placement)
    now = _signatures(placement.root, tuple(change.path for change in plan.pending))
    moved = tuple(path for path, signature in now.items() if signature != plan.signatures[path])
    if moved:
        withdraw(placement.root, prepared)
        return Landed(is_applied=False, overlaps=moved)
    try:
        settle(placement, prepared)
    except OSError as error:
        withdraw(placement.root, prepared)
        raise WorkspaceError(
            f"stopped half-way at {error.filename} ({error.strerror}); apply again to go on"
        ) from error
    return Landed(is_applied=True)


def _signatures(root: Path, paths: tuple[str, ...]) -> dict[str, Signature]:
    return {path: _signature(root / path) for path in paths}


def _signature(path: Path) -> Signature:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
