"""Looking after a command while it runs, and telling afterwards what its box did to it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.ports import Workspace
from xnagent.workspaces.box.groups import Group, Groups
from xnagent.workspaces.box.sealing import Box, Rules, private_folders
from xnagent.workspaces.processes import Family, Identity, members

BLOCK_BYTES: Final = 512
STEP: Final = 1024
TOO_LARGE_CODE: Final = 153
"""128 and SIGXFSZ."""
TOO_LONG_CODE: Final = 152
"""128 and SIGXCPU."""
METER_SECONDS: Final = 2.0
METER_PAUSES: Final = 20.0
"""How many times longer than a measurement the pause after it is."""
LOOKED_AT_BYTES: Final = 4_000
NO_NETWORK: Final = re.compile(
    rb"Could not resolve|Temporary failure in name resolution|Name or service not known|getaddrinfo|EAI_AGAIN"
    rb"|Network is unreachable|ENETUNREACH|Failed to establish a new connection|error sending request"
)
NO_SOCKET: Final = re.compile(rb"[Ss]ocket[^\n]*(Operation not permitted|Permission denied|EPERM)")
TOO_LONG: Final = re.compile(rb"CPU time limit exceeded")
"""As a shell says it of what it started."""
TOO_MANY_FILES: Final = re.compile(rb"Too many open files|EMFILE")
READ_ONLY: Final = re.compile(rb"Read-only file system|EROFS")


class Meter:
    """Measures folders now and then: the longer that takes, the less often."""

    def __init__(self) -> None:
        self._next_at = time.monotonic() + METER_SECONDS

    def is_due(self) -> bool:
        """Whether it is time again, whatever the disk looks like: others may have freed as much as this run took."""
        return time.monotonic() >= self._next_at

    def measured(self, folders: Iterable[Path]) -> int:
        """What they take on the disk. Blocks."""
        began = time.monotonic()
        total = sum(map(size_of, folders))
        ended = time.monotonic()
        self._next_at = ended + max(METER_SECONDS, METER_PAUSES * (ended - began))
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One command under watch."""

    rules: Rules
    group: Group
    folders: tuple[Path, ...]
    before: Mapping[str, int]
    """How often limits of the group had been hit when it began."""
    free_bytes: int
    """Of the disk when the run began."""
    meter: Meter

    def excess(self, family: Family) -> str | None:
        """What the command has too much of, so that it must be stopped. Blocks."""
        return self._disk() or self._memory(family) or self._processes(family)

    def notes(self, *, exit_code: int | None, output: bytes) -> tuple[str, ...]:
        """What the box did to it, for whoever reads the end of its output."""
        rules, after = self.rules, self.group.counts()
        told = []
        if after.get("memory", 0) > self.before.get("memory", 0) and rules.memory_bytes:
            told.append(f"[killed: out of memory (limit {sized(rules.memory_bytes)} for all processes of the run)]")
        if after.get("pids", 0) > self.before.get("pids", 0):
            told.append(f"[blocked: no more than {rules.processes} processes and threads at once in this sandbox]")
        if exit_code == TOO_LARGE_CODE:
            told.append(f"[killed: a file would have grown over {sized(rules.file_bytes)}]")
        if exit_code == TOO_LONG_CODE or (exit_code != 0 and TOO_LONG.search(output)):
            told.append(f"[killed: a process had used {rules.cpu_seconds} s of processor time]")
        if exit_code is None and after.get("cpu", 0) > self.before.get("cpu", 0):
            told.append(f"[slowed: no more than {rules.processors:g} processors at once in this sandbox]")
        if exit_code != 0:
            told += _hints(output, rules)
        return tuple(told)

    def _disk(self) -> str | None:
        taken, limit = self.free_bytes - free_bytes(self.folders[0]), self.rules.disk_bytes
        if (taken < limit and not self.meter.is_due()) or self.meter.measured(self.folders) < limit:
            return None
        return f"[killed: the run had filled more than {sized(self.rules.disk_bytes)} of the disk]"

    def _memory(self, family: Family) -> str | None:
        limit = self.rules.memory_bytes
        if limit is None or "memory" in self.group.controllers or sum(map(_resident, members(family))) < limit:
            return None
        return f"[killed: out of memory (limit {sized(limit)} for all processes of the run)]"

    def _processes(self, family: Family) -> str | None:
        if "pids" in self.group.controllers or len(members(family)) <= self.rules.processes:
            return None
        return f"[killed: more than {self.rules.processes} processes at once]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Warden:
    """Watches the commands of a session's box."""

    rules: Rules
    groups: Groups
    began: dict[str, int] = field(default_factory=dict)

    def watch(self, workspace: Workspace) -> Watch:
        """Begin. Blocks."""
        group = self.groups.of(workspace.scratch)
        free = self.began.setdefault(str(workspace.scratch), free_bytes(workspace.root))
        folders = (workspace.root, *private_folders(workspace))
        return Watch(
            rules=self.rules,
            group=group,
            folders=folders,
            before=group.counts(),
            free_bytes=free,
            meter=Meter(),
        )

    def close(self) -> None:
        """Remove what was made for it."""
        self.groups.close()


def warden_of(box: Box) -> Warden:
    """The warden of a box."""
    rules = box.grounds.rules
    return Warden(rules=rules, groups=Groups(rules=rules))


def half_of_memory() -> int:
    """Half of the machine's memory."""
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 4 * 1024**3


def free_bytes(folder: Path) -> int:
    """What is free on a folder's disk; 0 if the folder is gone."""
    with suppress(OSError):
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize
    return 0


def size_of(folder: Path) -> int:
    """What a folder takes on the disk. Blocks."""
    total, pending = 0, [str(folder)]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                total += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
                pending += [entry.path] if entry.is_dir(follow_symlinks=False) else []
    return total


def sized(count: int) -> str:
    """A size for people."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < STEP:
            return f"{value:.0f} {unit}"
        value /= STEP
    return f"{value:.1f} GiB"


def _resident(process: Identity) -> int:
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{process.number}/statm").read_text("utf-8").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _hints(output: bytes, rules: Rules) -> list[str]:
    end = output[-LOOKED_AT_BYTES:]
    if not rules.network and NO_NETWORK.search(end):
        return ["[blocked: network is off in this sandbox]"]
    if NO_SOCKET.search(end):
        return ["[blocked: this kind of socket is off in this sandbox]"]
    if TOO_MANY_FILES.search(end):
        return [f"[blocked: no more than {rules.open_files} open files in a process of this sandbox]"]
    if READ_ONLY.search(end):
        return ["[blocked: only the workspace, $HOME and $TMPDIR can be written in this sandbox]"]
    return []
