"""Landlock and a filter of system calls: nothing needs to be installed; files are guarded, processes not hidden.

What this box cannot do, others can: it does not hold pathname sockets where they are allowed, does not hide the names
of running processes, does not keep `.git/hooks` and `.git/config` from being changed, does not stop a change of times
and modes of the user's own files elsewhere, and shuts the machine's own network together with the rest.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.ports import Workspace
from xnagent.workspaces.box import cage
from xnagent.workspaces.box.pins import give
from xnagent.workspaces.box.sealing import Grounds, Sealed, in_memory, private_folders
from xnagent.workspaces.box.seccomp import Openings, assemble
from xnagent.workspaces.box.visible import is_within, lenders

OLDEST: Final = 3
"""The first version that guards a file's length."""
DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_VERSION_FLAG: Final = 1
_REST_OF_HEADER: Final = 12
"""Of compiled files: says where they come from, which nobody asks of a program."""


def landlock_version() -> int:
    """Which version of its interface the kernel has; 0 without one, or with one that guards too little."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = int(libc.syscall(cage.CREATE_RULESET, None, 0, _VERSION_FLAG))
    return version if version >= OLDEST else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Landlock:
    """With `version` 0 nothing but sockets is looked at: for commands that are to have no network and no other box."""

    architecture: int
    version: int
    grounds: Grounds

    def seal(self, workspace: Workspace, line: Sequence[str], *, shell: str, script: Path | None = None) -> Sealed:
        """The line in a box of its own, with the workspace as its folder; `script` can be read too.

        Blocks. Raises OSError.
        """
        private, rules = private_folders(workspace), self.grounds.rules
        if os.geteuid() == 0:
            give(workspace.root, owner=0, others=private)
        openings = Openings(
            internet=rules.network,
            unix_sockets=rules.unix_sockets,
            debug=rules.debug,
            is_all_but_sockets=self.version == 0,
        )
        readable = [*self._readable(), *([script] if script else [])]
        fields = [str(self.version), "0" if rules.network else "1", assemble(self.architecture, openings).hex()]
        for kind, paths in (
            ("r", readable),
            ("l", [Path("/etc")]),
            ("w", [workspace.root, *private, *(Path("/dev", name) for name in DEVICES)]),
        ):
            fields += [field for path in paths for field in (kind, str(path))]
        told = in_memory("\0".join(fields).encode("utf-8", "surrogateescape"), "cage")
        program = in_memory(_compiled(), "program")
        start = (sys.executable, "-I", "-S", f"/proc/self/fd/{program}", str(told))
        return Sealed(line=(*start, *line), descriptors=(told, program))

    def _readable(self) -> Iterator[Path]:
        grounds = self.grounds
        shut = (*(grounds.sight.private if os.geteuid() == 0 else ()), *grounds.hidden)
        yield from _all_open_parts((*grounds.sight.folders, *grounds.skills), shut)
        yield from (part for folder in grounds.objects for part in lenders(folder))
        yield Path("/proc")


@cache
def _compiled() -> bytes:
    """The cage as Python's compiler leaves it, so that no command waits for that."""
    code = compile(Path(cage.__file__).read_bytes(), cage.__file__, "exec", dont_inherit=True, optimize=0)
    return MAGIC_NUMBER + bytes(_REST_OF_HEADER) + marshal.dumps(code)


@cache
def _all_open_parts(folders: tuple[Path, ...], shut: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(part for folder in folders for part in _open_parts(folder, shut))


def _open_parts(folder: Path, shut: tuple[Path, ...]) -> Iterator[Path]:
    """The folder, or as much of it as holds nothing that is shut."""
    if is_within(folder, shut):
        return
    if not any(path.is_relative_to(folder) for path in shut):
        yield folder
    elif folder.is_dir() and not folder.is_symlink():
        for path in sorted(folder.iterdir()):
            yield from _open_parts(path, shut)
