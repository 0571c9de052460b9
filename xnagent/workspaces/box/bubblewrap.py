"""Namespaces by bubblewrap: a root of its own in which nothing but the workspace can be written.

As root, commands get a real user id of their own: a process whose id is 0 outside may change kernel settings even
without any capability. Where that cannot be (`Grounds.owner` is None), they are root of a user namespace only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.ports import Workspace
from xnagent.workspaces.box.pins import Pins, give, pin
from xnagent.workspaces.box.sealing import (
    INSIDE,
    STATUS_DESCRIPTOR,
    Grounds,
    Sealed,
    in_memory,
    private_folders,
    users,
)
from xnagent.workspaces.box.seccomp import Openings, assemble
from xnagent.workspaces.box.visible import is_within, lenders

INNER_ID: Final = 1000
_NAMESPACES: Final = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_ENDS: Final = ("--die-with-parent", "--new-session", "--hostname", "box")
_TO_CHANGE_USER: Final = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
_TEMPORARY: Final = Path("/tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """`program` is bubblewrap, `options` what it knows; `setpriv` changes the user inside, if there is an owner."""

    program: str
    options: frozenset[str]
    architecture: int
    grounds: Grounds
    setpriv: str | None = None

    def seal(self, workspace: Workspace, line: Sequence[str], *, shell: str, script: Path | None = None) -> Sealed:
        """The line in a box of its own, with the workspace as its folder; `script` can be read too.

        Blocks. Raises OSError.
        """
        grounds, private = self.grounds, private_folders(workspace)
        pins = pin(workspace.root)
        if os.geteuid() == 0:
            give(workspace.root, owner=grounds.owner or 0, others=private)
        rules = grounds.rules
        openings = Openings(internet=True, unix_sockets=rules.unix_sockets, debug=rules.debug)
        accounts = in_memory(users(grounds.owner or INNER_ID, home=private[0]), "accounts")
        descriptors = (in_memory(assemble(self.architecture, openings), "filter"), accounts)
        words = [
            *self._isolation(),
            *self._machine(workspace),
            *_writable((*private, workspace.root)),
            *_pinned(pins),
            *_read_only((*_borrowed(grounds), *([script] if script else []))),
            *(word for path in grounds.skills for word in ("--ro-bind-try", str(path), str(path))),
            *("--ro-bind-data", str(accounts), "/etc/passwd"),
            *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
            *("--chdir", str(workspace.root), "--seccomp", str(descriptors[0])),
            *("--json-status-fd", str(STATUS_DESCRIPTOR)),
        ]
        inside = (*self._as_owner(), shell, "-c", INSIDE, "inside", *line)
        return Sealed(line=(self.program, *words, "--", *inside), descriptors=descriptors, pins=pins)

    def _isolation(self) -> list[str]:
        words = [*_NAMESPACES, *_ENDS, "--cap-drop", "ALL"]
        if self.grounds.owner is None:
            words += ["--unshare-user", "--uid", str(INNER_ID), "--gid", str(INNER_ID)]
        else:
            words += [word for name in _TO_CHANGE_USER for word in ("--cap-add", name)]
        return words if self.grounds.rules.network else [*words, "--unshare-net"]

    def _machine(self, workspace: Workspace) -> list[str]:
        """What is kept in memory comes first: what is mounted below it must not be covered by it."""
        sight, memory = self.grounds.sight, ["/dev/shm", "/run", "/var/tmp"]
        words = ["--proc", "/proc", "--dev", "/dev"]
        if any(is_within(place, (_TEMPORARY,)) for place in self._places(workspace)):
            memory.append(str(_TEMPORARY))
        else:
            words += ["--bind", str(private_folders(workspace)[1]), str(_TEMPORARY)]
        words += [word for folder in memory for word in self._in_memory(folder)]
        words += [*_folders(path.parent for path in sight.folders), *_read_only(sight.folders)]
        words += [word for path, target in sight.links for word in ("--symlink", target, str(path))]
        for path in sight.private if self.grounds.owner is None else ():
            words += self._covered(path)
        for path in self.grounds.hidden:
            if is_within(path, sight.folders) and path.is_dir():
                words += self._in_memory(str(path), mode="0755")
        return [*words, *_folders((workspace.root.parent, workspace.scratch, *self._lent()))]

    def _places(self, workspace: Workspace) -> tuple[Path, ...]:
        """Where something will be mounted: below a folder that commands can change, that would not be safe."""
        return (workspace.root, workspace.scratch, *self._lent(), *self.grounds.sight.folders)

    def _lent(self) -> tuple[Path, ...]:
        return (*_borrowed(self.grounds), *self.grounds.skills)

    def _in_memory(self, folder: str, *, mode: str = "1777") -> list[str]:
        size = ["--size", str(self.grounds.rules.temporary_bytes)] if "--size" in self.options else []
        perms = ["--perms", mode] if "--perms" in self.options else []
        return [*perms, *size, "--tmpfs", folder]

    def _covered(self, path: Path) -> list[str]:
        if path.is_dir():
            return [*self._in_memory(str(path), mode="0700"), "--remount-ro", str(path)]
        return ["--ro-bind", os.devnull, str(path)]

    def _as_owner(self) -> list[str]:
        if self.setpriv is None or self.grounds.owner is None:
            return []
        owner = str(self.grounds.owner)
        return [
            *(self.setpriv, "--reuid", owner, "--regid", owner, "--clear-groups"),
            *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs"),
        ]


def _borrowed(grounds: Grounds) -> tuple[Path, ...]:
    return tuple(part for folder in grounds.objects for part in lenders(folder))


def _folders(paths: Iterable[Path]) -> list[str]:
    """Made one by one: those that a mount makes for itself may be closed to others."""
    wanted = {part for path in paths for part in (path, *path.parents)} - {Path("/")}
    return [word for path in sorted(wanted) for word in ("--dir", str(path))]


def _read_only(paths: Iterable[Path]) -> list[str]:
    return [word for path in paths for word in ("--ro-bind", str(path), str(path))]


def _writable(paths: Iterable[Path]) -> list[str]:
    return [word for path in paths for word in ("--bind", str(path), str(path))]


def _pinned(pins: Pins) -> list[str]:
    return [] if pins.git_dir is None else [*_writable((pins.git_dir,)), *_read_only(pins.fixed)]
