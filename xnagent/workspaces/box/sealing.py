"""What a box is to whoever starts a command in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Final, Protocol

from xnagent.core.values import dataclass
from xnagent.ports import Workspace
from xnagent.workspaces.box.pins import Pins
from xnagent.workspaces.box.visible import Sight

STATUS_DESCRIPTOR: Final = 4
"""Where bubblewrap says that the command was begun."""

_FIRST_DESCRIPTOR: Final = 10

INSIDE: Final = """\
trap : TERM INT HUP
exec 4>&2 2> /dev/null
( exec "$@" 2>&4 3>&- 4>&- )
code=$?
n=0
while [ $n -lt 10 ]; do
    set -- /proc/[0-9]*
    [ $# -gt 2 ] || exit $code
    n=$((n + 1))
    sleep 0.02
done
echo left >&3
exit $code
"""
"""Runs the command inside, and gives what is just ending time to end: with this shell all others go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What commands may do, the same for all of a session."""

    network: bool = False
    unix_sockets: bool = False
    debug: bool = False
    """Whether commands may look into each other, as debuggers do."""
    memory_bytes: int | None = None
    """Of all processes of a run together."""
    processes: int = 512
    """Of a run, threads included."""
    processors: float | None = None
    """That a run may use at once; None: all."""
    cpu_seconds: int = 3_600
    """Of processor time, for each process."""
    open_files: int = 4_096
    """In each process."""
    file_bytes: int = 1024**3
    """A single file's size."""
    disk_bytes: int = 8 * 1024**3
    """By how much a run may fill the disk."""
    temporary_bytes: int = 1024**3
    """Of folders that are kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """Where a session's boxes stand."""

    sight: Sight
    rules: Rules
    objects: tuple[Path, ...] = ()
    """Git objects that the session's trees borrow; read only."""
    skills: tuple[Path, ...] = ()
    """Folders of the user's skills; read only, and whoever removes one breaks no command."""
    hidden: tuple[Path, ...] = ()
    """What must not be seen even if it lies in a folder that is."""
    owner: int | None = None
    """As root: the user and group that commands run as; None: whoever runs xnagent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A command line that runs another one in a box."""

    line: tuple[str, ...]
    descriptors: tuple[int, ...] = ()
    """To be passed on, and closed afterwards."""
    pins: Pins = field(default_factory=Pins)

    def close(self) -> None:
        """Close the descriptors: whoever was started has them."""
        for descriptor in self.descriptors:
            with suppress(OSError):
                os.close(descriptor)


class Box(Protocol):
    """One way to confine a command."""

    @property
    def grounds(self) -> Grounds:
        """Where it stands and what it allows."""

    def seal(self, workspace: Workspace, line: Sequence[str], *, shell: str, script: Path | None = None) -> Sealed:
        """The line in a box of its own, with the workspace as its folder; `script` can be read too.

        Blocks. Raises OSError.
        """


def in_memory(content: bytes, name: str) -> int:
    """A descriptor from which the content can be read; not one of those that a shell line redirects."""
    with os.fdopen(os.memfd_create(name), "wb") as file:
        file.write(content)
        file.flush()
        file.seek(0)
        return fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)


def private_folders(workspace: Workspace) -> tuple[Path, Path]:
    """HOME and TMPDIR of a run."""
    return workspace.scratch / "home", workspace.scratch / "tmp"


def users(owner: int, *, home: Path) -> bytes:
    """The machine's accounts, and one for the commands."""
    with suppress(OSError):
        known = Path("/etc/passwd").read_bytes().splitlines()
        kept = [line for line in known if line.split(b":")[2:3] != [str(owner).encode()]]
        return b"\n".join([*kept, f"worker:x:{owner}:{owner}::{home}:/bin/bash".encode(), b""])
    return f"worker:x:{owner}:{owner}::{home}:/bin/bash\n".encode()
