"""Which box works on this machine: each is tried, by really running something in it, from the tightest down."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

from xnagent.core.values import dataclass
from xnagent.workspaces.box.bubblewrap import Bubblewrap
from xnagent.workspaces.box.landlock import Landlock, landlock_version
from xnagent.workspaces.box.pins import unpin
from xnagent.workspaces.box.sealing import Box, Grounds, Rules, private_folders
from xnagent.workspaces.box.syscalls import ARCHITECTURES
from xnagent.workspaces.box.visible import lenders, sight
from xnagent.workspaces.folders import Tree
from xnagent.workspaces.git import search_path
from xnagent.workspaces.spool import BOXED_WRAPPER

Kind: TypeAlias = Literal["bubblewrap", "bubblewrap-root", "landlock", "sockets"]
"""`sockets` is no box: only the network is shut."""

KINDS: Final[tuple[Kind, ...]] = ("bubblewrap", "bubblewrap-root", "landlock")
FIRST_OWNER: Final = 60720
OWNERS: Final = 400
"""User ids that no distribution gives to anybody."""
PROBE_SECONDS: Final = 20.0
READ_BY_ALL: Final = 0o005
_PROBE: Final = """\
echo inside > made || exit 11
(echo x > "$1/secret") 2> /dev/null
cat "$1/secret" 2> /dev/null | grep -q secret && exit 12
exit 7
"""
_PROBE_CODE: Final = 7
_PROBE_LIMITS: Final = ("1024", "1024", "60", "60")
_MEANINGS: Final[Mapping[int, str]] = {
    11: "the workspace cannot be written to in it",
    12: "a file outside the workspace could be read in it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One kind of box, and how trying it went."""

    kind: Kind
    fault: str | None
    """Why it cannot be used; None: it works."""


def kinds() -> tuple[Kind, ...]:
    """The kinds that make a difference for this user, tightest first."""
    return KINDS if os.geteuid() == 0 else ("bubblewrap", "landlock")


def try_all(environ: Mapping[str, str]) -> tuple[Tried, ...]:
    """Every kind, tried once in a process. Blocks for some tenths of a second."""
    return tuple(Tried(kind=kind, fault=_fault(kind, search_path(environ))) for kind in kinds())


def first_that_works(environ: Mapping[str, str]) -> Kind | None:
    """The tightest box that works; what is below is not tried. Blocks."""
    path = search_path(environ)
    return next((kind for kind in kinds() if _fault(kind, path) is None), None)


def make_box(kind: Kind, grounds: Grounds, *, environ: Mapping[str, str]) -> Box:
    """A box of the kind. Raises OSError if its program is gone."""
    architecture = ARCHITECTURES[platform.machine()]
    if kind in {"landlock", "sockets"}:
        version = landlock_version() if kind == "landlock" else 0
        return Landlock(architecture=architecture, version=version, grounds=grounds)
    program = shutil.which("bwrap", path=search_path(environ))
    if program is None:
        raise FileNotFoundError(2, "bubblewrap is not there any more", "bwrap")
    return Bubblewrap(
        program=program,
        options=_options(program),
        architecture=architecture,
        grounds=grounds,
        setpriv=shutil.which("setpriv", path=search_path(environ)),
    )


def owner_for(kind: Kind, session: str, *, objects: tuple[Path, ...] = ()) -> int | None:
    """As root, the user id that a session's commands get; None if they keep that of whoever runs xnagent.

    They keep it too where git objects that they need are closed to other users.
    """
    if os.geteuid() != 0 or kind != "bubblewrap":
        return None
    borrowed = [part for folder in objects for part in lenders(folder)]
    if not all(_is_open(folder) and _is_open(folder / "pack") for folder in borrowed):
        return None
    return FIRST_OWNER + zlib.crc32(session.encode()) % OWNERS


def _is_open(folder: Path) -> bool:
    with suppress(OSError):
        return folder.stat().st_mode & READ_BY_ALL == READ_BY_ALL
    return True


@cache
def _options(program: str) -> frozenset[str]:
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False, timeout=PROBE_SECONDS)
    words = (done.stdout + done.stderr).split()
    return frozenset(word for word in words if word.startswith("--"))


@cache
def _fault(kind: Kind, path: str) -> str | None:
    environ = {"PATH": path}
    missing = _missing(kind, environ)
    if missing:
        return missing
    with tempfile.TemporaryDirectory(prefix="xnagent-probe-", ignore_cleanup_errors=True) as name:
        place = Path(name).resolve()
        try:
            return _run_in(place, kind=kind, environ=environ)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)


def _missing(kind: Kind, environ: Mapping[str, str]) -> str | None:
    path = search_path(environ)
    if platform.machine() not in ARCHITECTURES:
        return f"no filter of system calls for {platform.machine()}"
    if kind == "landlock":
        return None if landlock_version() > 0 else "this kernel does not offer it"
    if shutil.which("bwrap", path=path) is None:
        return "bwrap is not on the PATH; install bubblewrap"
    if kind == "bubblewrap" and os.geteuid() == 0 and shutil.which("setpriv", path=path) is None:
        return "setpriv is not on the PATH; install util-linux"
    return None


def _run_in(place: Path, *, kind: Kind, environ: Mapping[str, str]) -> str | None:
    tree = Tree(root=place / "tree", scratch=place / "scratch")
    for folder in (tree.root, *private_folders(tree)):
        folder.mkdir(parents=True)
    (place / "secret").write_text("secret", "utf-8")
    grounds = Grounds(sight=sight(environ, has_network=False), rules=Rules(), owner=owner_for(kind, "probe"))
    box = make_box(kind, grounds, environ=environ)
    shell = shutil.which("bash", path=search_path(environ)) or "/bin/sh"
    plain = shutil.which("sh", path=search_path(environ)) or shell
    sealed = box.seal(tree, (shell, "-c", _PROBE, "probe", str(place)), shell=plain)
    line = (plain, "-c", BOXED_WRAPPER, "probe", str(place / "spool"), *_PROBE_LIMITS, "--", *sealed.line)
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            line,
            cwd=tree.root,
            env={"PATH": search_path(environ), "LC_ALL": "C"},
            stdin=reader,
            capture_output=True,
            pass_fds=sealed.descriptors,
            start_new_session=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
        sealed.close()
        unpin(sealed.pins)
    if (place / "secret").read_text("utf-8") != "secret":
        return "a file outside the workspace could be changed in it"
    if done.returncode == _PROBE_CODE:
        return None
    said = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return _MEANINGS.get(done.returncode) or (said[-1] if said else f"it ended with {done.returncode}")
