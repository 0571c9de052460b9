"""Folders that are whole or not there: made under another name and renamed, renamed away and removed."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,100}")
MAKING: Final = ".making-"
REMOVING: Final = ".removing-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A workspace: a tree, and a private folder beside it."""

    root: Path
    scratch: Path


def require_name(name: str) -> str:
    """The name, if it can be a folder's; WorkspaceError otherwise."""
    if not NAME.fullmatch(name):
        raise WorkspaceError(f"{name!r} cannot name a workspace: use letters, digits, dots, dashes")
    return name


@asynccontextmanager
async def making(final: Path) -> AsyncIterator[Path]:
    """A new folder that gets its name when the block ends well; what had the name before is removed."""
    temporary = half_made(final)
    await anyio.to_thread.run_sync(_begin, temporary)
    yield temporary
    await anyio.to_thread.run_sync(_settle, temporary, final)


def half_made(final: Path) -> Path:
    """Where a folder is until it is whole."""
    return final.with_name(MAKING + final.name)


def _begin(temporary: Path) -> None:
    temporary.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove(temporary)
    temporary.mkdir(mode=0o700)


def _settle(temporary: Path, final: Path) -> None:
    remove(final)
    temporary.rename(final)


def remove(folder: Path) -> None:
    """Remove a folder, also if parts of it are write-protected; fine if it is not there."""
    if folder.is_symlink():
        folder.unlink()
    if not folder.exists():
        return
    going = folder.with_name(REMOVING + folder.name)
    if not folder.name.startswith((MAKING, REMOVING)) and not going.exists():
        folder = folder.rename(going)
    with suppress(OSError, RecursionError):
        shutil.rmtree(folder)
        return
    with suppress(OSError):
        _open_up(folder)
    # A worker may have nested folders deeper than Python's stack or the longest path; rm goes down step by step.
    done = subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkspaceError(f"{folder} cannot be removed: {done.stderr.strip()[:200]}")


def sweep(folder: Path) -> None:
    """Remove what a crash left half-made or half-removed."""
    if folder.is_dir():
        for left in (*folder.glob(MAKING + "*"), *folder.glob(REMOVING + "*")):
            remove(left)


def _open_up(folder: Path) -> None:
    pending = [folder]
    while pending:
        current = pending.pop()
        current.chmod(stat.S_IRWXU)
        pending += [path for path in current.iterdir() if path.is_dir() and not path.is_symlink()]
