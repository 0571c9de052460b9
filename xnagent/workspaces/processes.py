"""Which processes belong to a command, and ending them.

A process belongs if its environment carries the command's marker, if it is in the session that the command began, or if
it descends from one that does. A daemon that leaves the session *and* clears its environment *and* outlives its parent
is not found; only a process namespace holds that one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

from xnagent.core.values import dataclass

MARKER: Final = "XNAGENT_RUN"
FIRST_POLL_SECONDS: Final = 0.001
POLL_SECONDS: Final = 0.02
"""The pause between two looks doubles up to this."""
REAP_SECONDS: Final = 5.0
_PROC: Final = Path("/proc")
_STATE, _PARENT, _SESSION, _STARTED = 0, 1, 3, 19
"""Places in `/proc/N/stat` after the name of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process for as long as the machine runs: a number is used again, the pair is not."""

    number: int
    started: int
    """Kernel ticks since boot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The processes of one command."""

    mark: str
    """The value in `MARKER` that is this command's own."""
    leader: Identity | None = None
    """The process that began the session, if it is known."""
    has_keeper: bool = False
    """What the leader started is a box: it would end at once, so only what is inside is asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    identity: Identity
    parent: int
    session: int


def identify(stat: str) -> Identity | None:
    """The process that a line of `/proc/N/stat` is about."""
    number, _, rest = stat.partition(" ")
    fields = rest.rpartition(")")[2].split()
    if not number.isdigit() or len(fields) <= _STARTED:
        return None
    return Identity(number=int(number), started=int(fields[_STARTED]))


def members(family: Family) -> frozenset[Identity]:
    """The living processes of a family."""
    running = {process.identity.number: process for process in _running()}
    own = {number for number, process in running.items() if _belongs(process, family)}
    leader = family.leader
    if leader and leader.number in running and running[leader.number].identity == leader:
        own.add(leader.number)
    grown = len(own)
    while grown:
        more = {number for number, process in running.items() if process.parent in own} - own
        own |= more
        grown = len(more)
    return frozenset(running[number].identity for number in own)


def end(family: Family, *, grace_seconds: float, limit_seconds: float = 2.0) -> bool:
    """Ask all to stop, and after the grace time make them. True if none is left. Blocks."""
    if grace_seconds > 0:
        _send(family, signal.SIGTERM)
        if wait_until(lambda: not members(family), limit_seconds=grace_seconds):
            return True

    def is_gone() -> bool:
        return not _send(family, signal.SIGKILL)

    return wait_until(is_gone, limit_seconds=limit_seconds)


async def reaped(process: Process) -> None:
    """Wait until the event loop knows that the process, which was killed, has ended.

    Closing it earlier kills it again, and that looks whether it has ended: whoever looks first takes its exit status
    away from the loop's own watcher, which then complains about an unknown child.
    """
    with anyio.move_on_after(REAP_SECONDS):
        await process.wait()


def wait_until(condition: Callable[[], bool], *, limit_seconds: float) -> bool:
    """Poll a condition. Blocks."""
    deadline, pause = time.monotonic() + limit_seconds, FIRST_POLL_SECONDS
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(POLL_SECONDS, 2 * pause)
    return True


def _send(family: Family, number: signal.Signals) -> bool:
    """Send a signal to all; whether there were any. The group goes first, at once: a fork bomb cannot outrun that.

    Then the oldest: a shell that cleans up must not end because its children did.
    """
    found, leader = members(family), family.leader
    if leader and family.has_keeper and number == signal.SIGTERM:
        spared = {leader.number, *_children(leader.number)}
        found = frozenset(process for process in found if process.number not in spared)
    elif leader and leader in found:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.number, number)
    for process in sorted(found, key=lambda process: (process.started, process.number)):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.number, number)
    return bool(found)


def _children(number: int) -> set[int]:
    return {process.identity.number for process in _running() if process.parent == number}


def _running() -> Iterator[_Process]:
    own = str(os.getpid())
    with os.scandir(_PROC) as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        process = None if name == own else _read(name)
        if process is not None:
            yield process


def _read(name: str) -> _Process | None:
    try:
        descriptor = os.open(f"{_PROC}/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    identity = identify(text)
    fields = text.rpartition(")")[2].split()
    if identity is None or fields[_STATE] in "ZX":
        return None
    return _Process(identity=identity, parent=int(fields[_PARENT]), session=int(fields[_SESSION]))


def _belongs(process: _Process, family: Family) -> bool:
    leader = family.leader
    if leader and process.identity.started < leader.started:
        return False
    if leader and process.session == leader.number:
        return True
    try:
        environment = (_PROC / str(process.identity.number) / "environ").read_bytes()
    except OSError:
        return False
    prefix = f"{MARKER}=".encode()
    return any(
        family.mark.encode() in entry.removeprefix(prefix).split(b":")
        for entry in environment.split(b"\0")
        if entry.startswith(prefix)
    )
