"""What of a repository a command may read but not change: what git would run or be configured by.

Missing files are made for the time of a command, because only what exists can be covered by a read-only mount. Each
step is looked at without following links: mounting through a link that a command has left would happen outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.workspaces.stamps import true_stamps

FOLDERS: Final = ("hooks",)
FILES: Final = ("config", "config.worktree", "info/attributes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The parts of one tree's repository."""

    git_dir: Path | None = None
    """Stays where it is, and may be written to; None: there is none of the usual kind."""
    fixed: tuple[Path, ...] = ()
    """Can only be read."""
    made: tuple[Path, ...] = ()
    """Were not there and go away again."""


def pin(root: Path) -> Pins:
    """Look at a tree's repository and make what is missing."""
    git_dir = root / ".git"
    if not _is_folder(git_dir):
        return Pins()
    made: list[Path] = []
    wanted = {git_dir / name: True for name in FOLDERS} | {git_dir / name: False for name in FILES}
    fixed = [path for path, is_folder in wanted.items() if _is_there(path, is_folder=is_folder, made=made)]
    return Pins(git_dir=git_dir, fixed=tuple(fixed), made=tuple(made))


def unpin(pins: Pins) -> None:
    """Remove what was made, if it is still empty."""
    for path in pins.made:
        with suppress(OSError):
            if _is_folder(path):
                path.rmdir()
            elif path.lstat().st_size == 0:
                path.unlink()


def _is_there(path: Path, *, is_folder: bool, made: list[Path]) -> bool:
    if not _is_folder(path.parent):
        return False
    with suppress(FileExistsError):
        if is_folder:
            path.mkdir(mode=0o755)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        made.append(path)
    return _is_folder(path) if is_folder else _is_file(path)


def _is_folder(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISDIR(path.lstat().st_mode)
    return False


def _is_file(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def give(root: Path, *, owner: int, others: Iterable[Path] = ()) -> None:
    """As root: let a tree and folders belong to a user, if the tree does not yet. Links are not followed.

    A file with a second name somewhere is left alone: that name may be outside.
    """
    if root.lstat().st_uid != owner:
        with true_stamps(root):
            _give_all(root, owner=owner)
    for folder in others:
        if folder.lstat().st_uid != owner:
            _give_all(folder, owner=owner)


def give_parts(root: Path, paths: Iterable[str], *, owner: int) -> None:
    """As root: the same for these paths of a tree that the user has, the folders on the way, and its repository."""
    parts = {part for path in paths for part in (root / path, *(root / path).parents)}
    for part in parts:
        if part.is_relative_to(root) and part != root:
            _give(part, owner=owner)
    _give_all(root / ".git", owner=owner)


def _give_all(top: Path, *, owner: int) -> None:
    for current, folders, files in os.walk(top, topdown=False):
        for name in (*folders, *files):
            _give(Path(current, name), owner=owner)
    os.chown(top, owner, owner, follow_symlinks=False)


def _give(path: Path, *, owner: int) -> None:
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
        os.chown(path, owner, owner, follow_symlinks=False)
