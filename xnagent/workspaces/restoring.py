"""The integration repository made again from the log: the base, then each merge in order, every commit with its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread

from xnagent.core.commits import Conflict, Patched
from xnagent.core.values import dataclass
from xnagent.errors import UsageError, WorkspaceError
from xnagent.workspaces.folders import remove
from xnagent.workspaces.git import Git
from xnagent.workspaces.integration import ORIGIN_REF, make_integration
from xnagent.workspaces.merging import commit_merged, merge_trees
from xnagent.workspaces.origin import Origin, locate
from xnagent.workspaces.snapshots import SNAPSHOT_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMerge:
    """A run's patch on the integration branch."""

    run: str
    base: str
    patch: bytes
    message: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the log says of the integration branch."""

    base: str
    is_shadow: bool
    snapshot: Patched | None
    merges: Sequence[RecordedMerge]


async def has_commit(git: Git, commit: str) -> bool:
    """Whether the commit and its tree can be read."""
    return await tree_of(git, commit) is not None


async def tree_of(git: Git, commit: str) -> str | None:
    """The tree of a commit that is here with it; None for another."""
    name = f"{commit}^{{tree}}"
    found = await git.run("rev-parse", "--verify", "--quiet", "--end-of-options", name, accepted=(0, 1, 128))
    tree = found.output.decode().strip()
    is_here = bool(tree) and not (await git.run("cat-file", "-e", tree, accepted=(0, 1, 128))).code
    return tree if is_here and not found.code else None


async def restore_integration(git: Git, recorded: Recorded, *, repository: Path) -> None:
    """Make it again. WorkspaceError, which says what is missing, if that cannot be done with the same ids."""
    if git.git_dir is None:
        raise WorkspaceError("there is no place for an integration repository")
    final, new = git.git_dir, git.git_dir.with_name("restoring.git")
    origin = await _origin(git, repository, is_shadow=recorded.is_shadow)
    try:
        await _fill(replace(git, git_dir=new), recorded, origin=origin)
        await anyio.to_thread.run_sync(_swap, new, final)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(remove, new)


def _swap(new: Path, final: Path) -> None:
    remove(final)
    new.rename(final)


async def _fill(git: Git, recorded: Recorded, *, origin: Origin) -> None:
    await make_integration(git, origin)
    await _restore_base(git, recorded, repository=origin.root)
    if not origin.has_tree:
        await git.run("update-ref", ORIGIN_REF, recorded.base)
    head = recorded.base
    for merge in recorded.merges:
        head = await _merge_again(git, merge, head=head)


async def patched(git: Git, parent: str | None, *, patch: bytes) -> str:
    """The tree that a patch makes of a commit or tree; None: of nothing. WorkspaceError if it does not apply."""
    with TemporaryDirectory(prefix="xnagent-") as folder:
        ours = replace(git, index=Path(folder) / "index")
        await ours.run("read-tree", *([parent] if parent else ["--empty"]))
        if patch:
            await ours.run("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch)
        return await ours.text("write-tree")


async def run_commit(git: Git, tree: str, *, run: str, base: str) -> str:
    """The commit of a run's tree: the same one whenever it is made."""
    dated = git.dated(await git.seconds(base))
    return await dated.commit(tree, parents=(base,), message=f"xnagent: {run}")


async def _origin(git: Git, repository: Path, *, is_shadow: bool) -> Origin:
    if is_shadow and not await anyio.Path(repository).exists():
        return Origin(root=repository, checkout=None)
    try:
        return await locate(repository, git.environ)
    except UsageError as error:
        raise WorkspaceError(f"RESTORE_FAILED: the session began from {repository}: {error}") from error


async def _restore_base(git: Git, recorded: Recorded, *, repository: Path) -> None:
    snapshot = recorded.snapshot
    if snapshot is not None and (snapshot.parent is None or await has_commit(git, snapshot.parent)):
        tree = await patched(git, snapshot.parent, patch=snapshot.patch)
        parents = (snapshot.parent,) if snapshot.parent else ()
        _same(await git.dated(snapshot.seconds).commit(tree, parents=parents, message=SNAPSHOT_MESSAGE), recorded.base)
    elif not await has_commit(git, recorded.base):
        missing = snapshot.parent if snapshot is not None else recorded.base
        why = "" if snapshot is not None else "; the log does not hold it (see workspace.save and workspace.save_bytes)"
        raise WorkspaceError(f"RESTORE_FAILED: {repository} has no commit {missing}{why}. Fetch it there, then resume")


async def _merge_again(git: Git, merge: RecordedMerge, *, head: str) -> str:
    commit = await run_commit(git, await patched(git, merge.base, patch=merge.patch), run=merge.run, base=merge.base)
    tree = await merge_trees(git, head=head, base=merge.base, commit=commit)
    if isinstance(tree, Conflict):
        raise WorkspaceError(f"RESTORE_FAILED: the patch of {merge.run} conflicts now: {tree.detail}")
    return _same(await commit_merged(git, tree, head=head, commit=commit, message=merge.message), merge.commit)


def _same(made: str, wanted: str) -> str:
    if made != wanted:
        raise WorkspaceError(
            f"RESTORE_FAILED: the log names commit {wanted}, but what it holds makes {made}; "
            f"was it written with another version of git?"
        )
    return made
