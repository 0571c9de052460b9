"""A session's result as one file that `git fetch` reads, on any machine that has the commit it began from."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from xnagent.core.commits import Applied
from xnagent.core.ids import SessionId
from xnagent.errors import WorkspaceError
from xnagent.workspaces.git import Git
from xnagent.workspaces.integration import ORIGIN_REF


async def write_bundle(git: Git, *, head: str, session: SessionId, folder: Path) -> Path:
    """Write `SESSION.bundle` with the branch `xnagent/SESSION`; whole or not at all. WorkspaceError if it cannot be."""
    final = folder / f"{session}.bundle"
    temporary = final.with_name(f".{final.name}.part")
    branch = f"refs/heads/xnagent/{session}"
    known = await git.run("rev-parse", "--verify", "--quiet", ORIGIN_REF, accepted=(0, 1))
    without = [f"^{known.output.decode().strip()}"] if known.output else []
    await git.run("update-ref", branch, head)
    try:
        await anyio.to_thread.run_sync(lambda: folder.mkdir(parents=True, exist_ok=True))
        await git.run("bundle", "create", "--quiet", str(temporary.absolute()), branch, *without)
        await anyio.to_thread.run_sync(temporary.replace, final)
    except OSError as error:
        raise WorkspaceError(f"{final}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return final


async def with_bundle(applied: Applied, git: Git, *, head: str, session: SessionId, folder: Path) -> Applied:
    """Write the bundle too; a failure is told in the detail, for the result is safe without it."""
    try:
        await write_bundle(git, head=head, session=session, folder=folder)
    except WorkspaceError as error:
        return replace(applied, detail=f"{applied.detail}; no bundle was written: {error}".removeprefix("; "))
    return applied
