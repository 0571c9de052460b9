"""What a command sees of the machine: system folders and the programs on its PATH, without what is private there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.workspaces.environment import TOOLCHAINS
from xnagent.workspaces.git import search_path

SYSTEM: Final = ("/usr", "/etc", "/opt", "/nix/store", "/run/current-system/sw")
TOP_LEVEL: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into `/usr`, or folders of their own."""
BESIDE_PROGRAMS: Final = ("conf", "include", "jmods", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg")
"""What programs in a `bin` need from the folder around it. The rest may hold anything: `~/.cargo` has credentials."""
INTERPRETERS: Final = ("python3", "python", "node")
"""Often links to a place that is not on the PATH."""
RESOLVER: Final = Path("/etc/resolv.conf")
ALWAYS_PRIVATE: Final = ("shadow", "gshadow", "shadow-", "gshadow-", "sudoers", "sudoers.d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What of the machine is there to be read; nothing of it can be changed."""

    folders: tuple[Path, ...]
    """Folders and files, at their own places."""
    links: tuple[tuple[Path, str], ...]
    """Symlinks and where they lead."""
    private: tuple[Path, ...]
    """Within the folders: what only its owner may read."""


def sight(environ: Mapping[str, str], *, has_network: bool) -> Sight:
    """What commands with this PATH need."""
    top = [Path(name) for name in TOP_LEVEL]
    folders = [Path(name) for name in SYSTEM if can_be_shown(Path(name))]
    folders += [path for path in top if path.is_dir() and not path.is_symlink()]
    folders += [path for path in programs(environ) if not is_within(path, (*folders, *top))]
    if has_network and not is_within(RESOLVER.resolve(), folders) and RESOLVER.is_file():
        folders.append(RESOLVER.resolve())
    return Sight(
        folders=_outermost(folders),
        links=tuple((path, str(path.readlink())) for path in top if path.is_symlink()),
        private=private_parts("/etc"),
    )


def with_folders(known: Sight, folders: Iterable[Path]) -> Sight:
    """The same, and these folders and files, as far as this user can read them."""
    wanted = [path.absolute() for path in folders if os.access(path, os.R_OK) and path.absolute() != Path("/")]
    new = [path for path in dict.fromkeys(wanted) if not is_within(path, known.folders)]
    return replace(known, folders=(*known.folders, *_outermost(new)))


def is_within(path: Path, folders: Iterable[Path]) -> bool:
    """Whether the path is one of the folders or below one."""
    return any(path.is_relative_to(folder) for folder in folders)


def _outermost(folders: list[Path]) -> tuple[Path, ...]:
    distinct = dict.fromkeys(folders)
    return tuple(path for path in distinct if not is_within(path.parent, distinct))


def programs(environ: Mapping[str, str]) -> list[Path]:
    """Where the programs on the PATH are, with what stands beside them; never a whole home folder."""
    found: dict[Path, None] = {}
    for name in search_path(environ).split(os.pathsep):
        folder = Path(name)
        if not folder.is_absolute() or folder == Path("/") or not can_be_shown(folder):
            continue
        found.update(dict.fromkeys(_around(folder)))
        for program in INTERPRETERS:
            with suppress(OSError, RuntimeError):
                real = (folder / program).resolve(strict=True).parent
                found.update(dict.fromkeys(_around(real)) if real != folder and can_be_shown(real) else {})
    home = environ.get("HOME")
    for variable, usual in TOOLCHAINS.items():
        place = environ.get(variable) or (str(Path(home, usual)) if home else "")
        if place and can_be_shown(Path(place)):
            found[Path(place)] = None
    return list(found)


def _around(folder: Path) -> Iterator[Path]:
    yield folder
    if folder.name in {"bin", "sbin", "shims"}:
        beside = [folder.parent / name for name in BESIDE_PROGRAMS]
        yield from (path for path in beside if os.access(path, os.R_OK))


def can_be_shown(folder: Path) -> bool:
    """Whether it is a folder that this user can read; False where even looking is forbidden."""
    with suppress(OSError):
        return folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)
    return False


@cache
def private_parts(top: str) -> tuple[Path, ...]:
    """The files and folders below that this user may read and not everybody, and what holds passwords.

    Looked up once: a box without a uid of its own would show them to a command of their owner.
    """
    return tuple(_private_in(Path(top)))


def _private_in(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_symlink():
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            is_folder = stat.S_ISDIR(mode)
            is_open = mode & stat.S_IROTH and (mode & stat.S_IXOTH or not is_folder)
            if entry.name in ALWAYS_PRIVATE or not is_open:
                yield from (path for path in (Path(entry.path),) if os.access(path, os.R_OK))
            elif is_folder:
                yield from _private_in(Path(entry.path))


def lenders(objects: Path) -> tuple[Path, ...]:
    """A folder of git objects and those that it borrows from. Only for repositories that no command could touch."""
    found: dict[Path, None] = {}
    pending = [objects]
    while pending:
        folder = pending.pop()
        if folder in found or not can_be_shown(folder):
            continue
        found[folder] = None
        pending += _borrowed_by(folder)
    return tuple(found)


def _borrowed_by(objects: Path) -> list[Path]:
    with suppress(OSError):
        lines = (objects / "info" / "alternates").read_bytes().splitlines()
        names = [os.fsdecode(line) for line in lines if line and not line.startswith(b"#")]
        return [(objects / _unquoted(name)).resolve() for name in names]
    return []


def _unquoted(name: str) -> str:
    if not (name.startswith('"') and name.endswith('"') and len(name) > 1):
        return name
    inner = name[1:-1].replace("\\n", "\n").replace('\\"', '"')
    return inner.replace("\\\\", "\\")
