"""The user's tree as a commit."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

import anyio

from xnagent.core.commits import Patched
from xnagent.core.masking import Mask
from xnagent.errors import WorkspaceError
from xnagent.workspaces.changes import patch_between
from xnagent.workspaces.git import LISTED_PATHS, Git, few, shown
from xnagent.workspaces.origin import Checkout, Origin
from xnagent.workspaces.staging import NO_MASK, Staged, stage_all
from xnagent.workspaces.withholding import unstage_secrets

SNAPSHOT_MESSAGE: Final = "xnagent: the tree as the session found it"


async def take_snapshot(git: Git, origin: Origin, *, at: str, mask: Mask = NO_MASK) -> tuple[str, Staged]:
    """A commit of the tree, and what could not be in it; the user's own commit if nothing differs from it.

    `git` is ours, with the user's folder as tree and an index that may be filled. Files that hold a secret of the mask
    are in it as they were committed, or not at all.
    """
    if origin.checkout:
        await _fill(git, origin.checkout)
        await unstage_secrets(git, origin.checkout.head or await empty_tree(git), mask=mask)
    else:
        await git.run("read-tree", "--empty")
    staged = await stage_all(git, mask=mask)
    tree = await git.text("write-tree")
    head = origin.checkout.head if origin.checkout else None
    if head and tree == await git.text("rev-parse", f"{head}^{{tree}}"):
        return head, staged
    dated = git.dated(seconds_of(at))
    parents = (head,) if head else ()
    return await dated.commit(tree, parents=parents, message=SNAPSHOT_MESSAGE), staged


async def keep_snapshot(git: Git, origin: Origin, *, commit: str, limit_bytes: int) -> Patched | None:
    """What makes the snapshot's commit again; None where it is the user's own, or takes more than the limit."""
    head = origin.checkout.head if origin.checkout else None
    if commit == head or not limit_bytes:
        return None
    against = head or await empty_tree(git)
    patch = await patch_between(git, base=against, commit=commit, limit_bytes=limit_bytes)
    return None if patch is None else Patched(parent=head, seconds=await git.seconds(commit), patch=patch)


async def empty_tree(git: Git) -> str:
    """The tree without a file."""
    return await git.text("mktree")


def seconds_of(at: str) -> str:
    """ISO 8601 as whole seconds since 1970."""
    try:
        return str(int(datetime.fromisoformat(at).timestamp()))
    except ValueError as error:
        raise WorkspaceError(f"{at!r} is no time in ISO 8601") from error


async def _fill(git: Git, checkout: Checkout) -> None:
    """Begin from a copy of the user's index, so that unchanged files need no hashing; else from the commit."""
    if checkout.index.is_file() and git.index:
        await anyio.to_thread.run_sync(_copy_index, checkout, git)
        with suppress(WorkspaceError):
            await git.run("ls-files", "--", ".git")
            return
        git.index.unlink()
    if checkout.head:
        await replace(git, work_tree=None).run("read-tree", checkout.head)
    else:
        await git.run("read-tree", "--empty")


def _copy_index(checkout: Checkout, git: Git) -> None:
    """With its times, which decide what git believes of it, and the shared part of a split index."""
    if git.index is None or git.git_dir is None:
        raise WorkspaceError("there is no place for an index")
    for shared in checkout.git_dir.glob("sharedindex.*"):
        shutil.copy2(shared, git.git_dir / shared.name)
    shutil.copy2(checkout.index, git.index)


def notes_of(staged: Staged) -> tuple[str, ...]:
    """What a person should know of a snapshot."""
    kinds = {
        "left out, repositories of their own": staged.nested,
        "left out, not readable": staged.unreadable,
        "left out, inside a .git folder": staged.forbidden,
    }
    return (*withheld_in(staged), *(f"{kind}: {few(paths)}" for kind, paths in kinds.items() if paths))


def withheld_in(staged: Staged) -> tuple[str, ...]:
    """What a person and the Planner should know of files that hold secrets."""
    held = [one.told for one in staged.withheld]
    if not held:
        return ()
    more = f" and {len(held) - LISTED_PATHS} more files" if len(held) > LISTED_PATHS else ""
    return (f"not in the repositories that runs and checks work in: {'; '.join(held[:LISTED_PATHS])}{more}",)


def problems_in(staged: Staged) -> tuple[str, ...]:
    """Why what a run left must not be merged."""
    nested = [
        f"NESTED_REPOSITORY: {shown(path)} has a .git of its own, its content would be lost; remove {shown(path)}/.git"
        for path in staged.nested
    ]
    forbidden = [f"FORBIDDEN_PATH: {shown(path)} is inside a .git folder; remove it" for path in staged.forbidden]
    unreadable = [f"UNREADABLE: {shown(path)} could not be read" for path in staged.unreadable]
    secret = [
        f"SECRET: {one.told}; take the value out, let it be read from outside the tree" for one in staged.withheld
    ]
    return (*nested, *forbidden, *unreadable, *secret)
