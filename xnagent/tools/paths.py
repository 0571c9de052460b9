"""Where a path leads: inside the root or nowhere. The check is on real paths; the opening follows no link.

A `Place` is found with `realpath`, so it has no link in it; `folder_of` then walks down with one descriptor for each
folder and `O_NOFOLLOW`, so a link that appears in between is an error and never a way out.
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.tools.outcome import RefusedError
from xnagent.tools.walk import entries

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
MAX_SIMILAR: Final = 3
MAX_SEARCHED_FOLDERS: Final = 2_000
UNSEARCHED: Final = frozenset({".git", "node_modules", ".venv", "__pycache__"})
KINDS: Final = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "directory"),
    (stat.S_ISLNK, "symbolic link"),
    (stat.S_ISFIFO, "FIFO"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "character device"),
    (stat.S_ISBLK, "block device"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path inside a root, without links."""

    root: str
    """Absolute and real."""
    name: str
    """Relative, with `/`; `.` is the root itself."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders and the file that lead from the root to the place."""
        return () if self.name == "." else tuple(self.name.split("/"))

    @property
    def full(self) -> str:
        """The absolute path: to name the place, not to open it."""
        return self.root if self.name == "." else f"{self.root}/{self.name}"


def locate(root: Path, path: str) -> Place:
    """The place that a path from a model leads to; raises RefusedError (`OUTSIDE`, `BAD_ARGS`)."""
    if not path.strip():
        raise RefusedError("BAD_ARGS", "the path is empty; `.` is the workspace root.")
    if "\0" in path:
        raise RefusedError("BAD_ARGS", "the path holds a NUL character.")
    real_root = os.path.realpath(root)
    if _is_home(path, real_root):
        raise RefusedError("OUTSIDE", f"{path} is in a home folder. Paths are relative to the workspace root.")
    real = _real(real_root, path)
    if real == real_root:
        return Place(root=real_root, name=".")
    inside = real_root.rstrip("/") + "/"
    if not real.startswith(inside):
        raise RefusedError("OUTSIDE", f"{path} is outside the workspace. Paths are relative to the workspace root.")
    return Place(root=real_root, name=real.removeprefix(inside))


def _real(root: str, path: str) -> str:
    try:
        real = os.path.realpath(Path(root, path))
        real.encode()
    except RecursionError:
        raise RefusedError("OUTSIDE", f"{path} is a chain of too many links.") from None
    except UnicodeEncodeError:
        raise RefusedError("BAD_ARGS", f"{path} leads to a name that is not UTF-8; use bash for it.") from None
    return real


def _is_home(path: str, root: str) -> bool:
    first, slash, _ = path.partition("/")
    is_name = first == "~" or (first.startswith("~") and bool(slash))
    return is_name and not os.path.lexists(f"{root}/{first}")


def locate_for_change(root: Path, path: str) -> Place:
    """As `locate`, for a file that is to be written: git's own folder is refused (`DENIED`)."""
    place = locate(root, path)
    if any(part.casefold() == ".git" for part in place.parts):
        raise RefusedError("DENIED", f"{place.name} belongs to git. Use git commands in bash.")
    if place.name == "." or path.endswith("/"):
        raise RefusedError("IS_DIRECTORY", f"{path} names a directory; give the path of a file.")
    return place


@contextmanager
def folder_of(place: Place, *, is_made: bool = False) -> Iterator[int]:
    """A descriptor of the folder that holds the place; `is_made` makes the folders that are missing."""
    folder = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in place.parts[:-1]:
            below = _enter(folder, part, is_made=is_made)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _enter(folder: int, part: str, *, is_made: bool) -> int:
    try:
        return os.open(part, FOLDER_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        if not is_made:
            raise
    except NotADirectoryError:
        raise RefusedError("NOT_FOUND", f"{part} is a file, not a directory, so nothing can be below it.") from None
    os.mkdir(part, dir_fd=folder)
    below = os.open(part, FOLDER_FLAGS, dir_fd=folder)
    give_to_owner(below, os.fstat(folder))
    return below


def give_to_owner(descriptor: int, like: os.stat_result) -> None:
    """As root: let a new file belong to the owner of its surroundings, who may not be root inside the sandbox."""
    if os.geteuid() == 0:
        os.fchown(descriptor, like.st_uid, like.st_gid)


def status_of(place: Place) -> os.stat_result | None:
    """What is there, links not followed; None: nothing."""
    if place.name == ".":
        return Path(place.root).stat()
    try:
        with folder_of(place) as folder:
            return os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise RefusedError("BAD_ARGS", "the path is too long.") from None
        raise


def kind_of(status: os.stat_result) -> str:
    """What it is: `file`, `directory`, `FIFO`."""
    return next((name for test, name in KINDS if test(status.st_mode)), "special file")


def not_found(place: Place) -> RefusedError:
    """`NOT_FOUND`, with names that are like the one that was asked for."""
    near = similar(place)
    advice = f" Similar: {', '.join(near)}." if near else " Look with glob, such as `**/NAME*`."
    return RefusedError("NOT_FOUND", f"{place.name} does not exist.{advice}")


def similar(place: Place) -> list[str]:
    """Up to three paths that may have been meant: like names in the same folder, the same name elsewhere."""
    wanted = place.parts[-1] if place.parts else ""
    parent = "/".join(place.parts[:-1])
    prefix = f"{parent}/" if parent else ""
    near = difflib.get_close_matches(wanted, _names(f"{place.root}/{parent}"), n=MAX_SIMILAR)
    found = [prefix + name for name in near]
    return list(dict.fromkeys([*found, *_same_name(place.root, wanted)]))[:MAX_SIMILAR]


def _names(folder: str) -> list[str]:
    try:
        return sorted(path.name for path in Path(folder).iterdir())
    except OSError:
        return []


def _same_name(root: str, wanted: str) -> list[str]:
    found: list[str] = []
    folders = deque([""])
    for _ in range(MAX_SEARCHED_FOLDERS):
        if not folders or len(found) >= MAX_SIMILAR:
            break
        folder = folders.popleft()
        below = entries(f"{root}/{folder}")
        found += [folder + entry.name for entry in below if entry.name == wanted]
        is_near = (entry for entry in below if entry.name not in UNSEARCHED and entry.is_dir(follow_symlinks=False))
        folders.extend(f"{folder}{entry.name}/" for entry in is_near)
    return found
