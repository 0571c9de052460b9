"""Files from one folder into another in two phases; no step goes through a symlink."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What is to be done to a tree."""

    root: Path
    staging: Path
    """Holds the new content of `written` under the same paths."""
    written: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    path: str
    folder: str
    """The nearest folder above the path that is there already."""
    name: str
    """Of the temporary file in that folder."""


def prepare(placement: Placement) -> tuple[_Prepared, ...]:
    """Write all new content under temporary names; OSError if something fails, then nothing is left of it."""
    done: list[_Prepared] = []
    try:
        for path in placement.written:
            done.append(_describe(placement.root, path))
            _write(placement, done[-1])
    except OSError:
        withdraw(placement.root, tuple(done))
        raise
    return tuple(done)


def withdraw(root: Path, prepared: tuple[_Prepared, ...]) -> None:
    """Remove the temporary files."""
    for item in prepared:
        with suppress(OSError), _folder(root, item.folder) as folder:
            os.unlink(item.name, dir_fd=folder)


def settle(placement: Placement, prepared: tuple[_Prepared, ...]) -> None:
    """Remove what is to go, then give the new files their names."""
    for path in placement.removed:
        _unlink(placement.root, path)
    for item in prepared:
        _rename(placement.root, item)


def _describe(root: Path, path: str) -> _Prepared:
    name = ".xnagent-" + hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
    return _Prepared(path=path, folder=_nearest(root, path), name=name)


def _nearest(root: Path, path: str) -> str:
    """The deepest real folder above a path; "" is the root."""
    reached = ""
    for part in path.split("/")[:-1]:
        below = f"{reached}/{part}" if reached else part
        try:
            mode = (root / below).lstat().st_mode
        except FileNotFoundError:
            break
        if not stat.S_ISDIR(mode):
            break
        reached = below
    return reached


def _write(placement: Placement, item: _Prepared) -> None:
    source, target = placement.staging / item.path, placement.root / item.path
    with _folder(placement.root, item.folder) as folder:
        with suppress(FileNotFoundError):
            os.unlink(item.name, dir_fd=folder)
        if source.is_symlink():
            os.symlink(source.readlink(), item.name, dir_fd=folder)
            return
        descriptor = os.open(item.name, _NEW_FILE, 0o600, dir_fd=folder)
        with source.open("rb") as old, os.fdopen(descriptor, "wb") as new:
            shutil.copyfileobj(old, new, 1024 * 1024)
            _dress(new.fileno(), source=source, target=target)


def _dress(descriptor: int, *, source: Path, target: Path) -> None:
    """Permissions as git gave them; of a file that is replaced, its own, and its owner."""
    wanted = stat.S_IMODE(source.stat().st_mode)
    with suppress(OSError):
        replaced = target.lstat()
        if stat.S_ISREG(replaced.st_mode):
            kept = stat.S_IMODE(replaced.st_mode) & 0o777
            wanted = (kept | (kept & 0o444) >> 2) if wanted & stat.S_IXUSR else kept & ~0o111
            with suppress(PermissionError):
                os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
    os.fchmod(descriptor, wanted)


def _unlink(root: Path, path: str) -> None:
    above, _, name = path.rpartition("/")
    with suppress(FileNotFoundError, NotADirectoryError), _folder(root, above) as folder:
        os.unlink(name, dir_fd=folder)
    while above:
        parent, _, name = above.rpartition("/")
        try:
            with _folder(root, parent) as folder:
                os.rmdir(name, dir_fd=folder)
        except OSError:
            return
        above = parent


def _rename(root: Path, item: _Prepared) -> None:
    above, _, name = item.path.rpartition("/")
    missing = above[len(item.folder) :].strip("/")
    made = item.folder
    for part in missing.split("/") if missing else ():
        with _folder(root, made) as folder, suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
        made = f"{made}/{part}" if made else part
    with _folder(root, item.folder) as source, _folder(root, above) as target:
        _clear(root / item.path)
        os.replace(item.name, name, src_dir_fd=source, dst_dir_fd=target)


def _clear(path: Path) -> None:
    """Remove a folder that holds nothing but empty folders."""
    if path.is_symlink() or not path.is_dir():
        return
    for current, _, _ in os.walk(path, topdown=False):
        Path(current).rmdir()


@contextmanager
def _folder(root: Path, path: str) -> Iterator[int]:
    """A folder of the tree, opened part by part so that no symlink is followed."""
    descriptor = os.open(root, _FOLDER)
    try:
        for part in path.split("/") if path else ():
            below = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)
