"""From a folder to a tree object, with a repository and an index of ours.

Not `git add`: that would start git inside nested repositories, with their configuration. Here git only lists
(`diff-files`, `ls-files`) and hashes (`update-index`); submodules stay as they are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from xnagent.core.masking import Mask
from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.workspaces.git import LISTED_PATHS, Git, joined, listed, shown
from xnagent.workspaces.pointers import smudged
from xnagent.workspaces.withholding import Held, withheld

READ_BY_GIT: Final = frozenset({".gitignore", ".gitattributes"})
"""Git opens these wherever they stand; a FIFO of that name would stop it for ever."""
GIT_FOLDERS: Final = frozenset({".git", "git~1"})
"""Names that some file system takes for `.git`."""
FEW_FILES: Final = 200
"""More new files than this go into one pack; each as a file of its own would have to be synced to disk."""
IGNORED_BYTES: Final = 256 * 1024
NO_MASK: Final = Mask()
_INTO_ONE_PACK: Final = ("core.bigFileThreshold=1",)
_IGNORED_BY_HFS: Final = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What could not go into the index."""

    nested: tuple[str, ...] = ()
    """Repositories within the tree."""
    unreadable: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    """Paths through a `.git` folder under some spelling."""
    withheld: tuple[Held, ...] = ()
    """Files that hold secrets: the index has what it had before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is in the tree at some paths."""

    present: tuple[str, ...]
    """Files and symlinks."""
    absent: tuple[str, ...]
    """Nothing, or nothing that git keeps."""
    unreadable: tuple[str, ...]


async def stage_all(git: Git, *, mask: Mask = NO_MASK) -> Staged:
    """Make the index what the folder is, `.gitignore` respected; what Git LFS checked out stays a pointer.

    Files that hold a secret of the mask stay out.
    """
    changed = listed((await git.run("diff-files", "-z", "--name-only", "--ignore-submodules=all")).output)
    others = await git.run("ls-files", "-z", "--others", "--exclude-standard")
    found = listed(others.output)
    nested = tuple(path.rstrip("/") for path in found if path.endswith("/"))
    forbidden = tuple(path for path in found if is_forbidden(path))
    kept = await smudged(git, changed)
    changed = tuple(path for path in changed if path not in kept)
    wanted = (*changed, *(path for path in found if not path.endswith("/") and not is_forbidden(path)))
    held = await withheld(git, wanted, mask=mask)
    shut = {one.path for one in held}
    standing = await stage(git, tuple(path for path in wanted if path not in shut))
    closed = tuple(line.strip() for line in others.errors.splitlines() if "could not open directory" in line)
    return Staged(nested=nested, unreadable=(*standing.unreadable, *closed), forbidden=forbidden, withheld=held)


async def ignored(git: Git) -> tuple[str, ...]:
    """Some of what stands in the tree and is ignored; a folder with nothing else as one entry, with a slash."""
    options = ("-z", "--others", "--ignored", "--exclude-standard", "--directory", "--no-empty-directory")
    answer = await git.run("ls-files", *options, can_be_cut=True, limit_bytes=IGNORED_BYTES)
    return tuple(shown(path) for path in listed(answer.output)[:LISTED_PATHS])


async def stage(git: Git, paths: tuple[str, ...]) -> Standing:
    """Make the index at these paths what the folder is."""
    if git.work_tree is None:
        raise WorkspaceError("there is no tree to read")
    standing = await anyio.to_thread.run_sync(look, git.work_tree, paths)
    if standing.absent:
        await git.run("update-index", "--force-remove", "-z", "--stdin", stdin=joined(standing.absent))
    if standing.present:
        together = replace(git, settings=_INTO_ONE_PACK) if len(standing.present) > FEW_FILES else git
        options = ("--add", "--remove", "--replace", "-z", "--stdin")
        await together.run("update-index", *options, stdin=joined(standing.present))
    return standing


def is_forbidden(path: str) -> bool:
    """Whether a path goes through something that may be taken for a `.git` folder."""
    return any(
        part.translate(_IGNORED_BY_HFS).rstrip(" .").partition(":")[0].lower() in GIT_FOLDERS
        for part in path.replace("\\", "/").split("/")
    )


def look(root: Path, paths: Iterable[str]) -> Standing:
    """Sort paths by what stands there; a path beyond a symlink is absent."""
    sorted_by: dict[str, list[str]] = {"present": [], "absent": [], "unreadable": []}
    real: dict[str, bool] = {"": True}
    for path in paths:
        sorted_by[_look_at(root, path, real=real)].append(path)
    return Standing(**{name: tuple(found) for name, found in sorted_by.items()})


def _look_at(root: Path, path: str, *, real: dict[str, bool]) -> str:
    full = root / path
    try:
        if not _is_real_folder(root, path.rpartition("/")[0], real=real):
            return "absent"
        mode = full.lstat().st_mode
    except PermissionError:
        return "unreadable"
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    if stat.S_ISLNK(mode):
        return "unreadable" if full.name.lower() == ".gitmodules" else "present"
    if not stat.S_ISREG(mode):
        return "absent"
    return "present" if os.access(full, os.R_OK) else "unreadable"


def _is_real_folder(root: Path, path: str, *, real: dict[str, bool]) -> bool:
    if path not in real:
        above = _is_real_folder(root, path.rpartition("/")[0], real=real)
        real[path] = above and stat.S_ISDIR((root / path).lstat().st_mode)
    return real[path]


def unblock(root: Path) -> None:
    """Remove what would stop git from reading the tree: special files under names that git opens."""
    pending = [root]
    while pending:
        with os.scandir(pending.pop()) as entries:
            found = list(entries)
        pending += [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
        for entry in found:
            if entry.name in READ_BY_GIT and not (entry.is_symlink() or entry.is_dir() or entry.is_file()):
                Path(entry.path).unlink()
