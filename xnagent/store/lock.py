"""Who may write to a session: a `flock` on a file beside it, which names its holder."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.errors import StoreBusyError

ATTEMPTS: Final = 6
PAUSE_SECONDS: Final = 0.02
"""`is_held` takes the lock for an instant, so one refusal proves nothing."""
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
NUMBERS: Final = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The right to write, held by this process until `release` or its death."""

    path: Path
    descriptor: int

    def release(self) -> None:
        """Give it up; the file goes too, unless it already is somebody else's."""
        if _is_current(self.descriptor, self.path):
            with suppress(OSError):
                self.path.unlink()
        os.close(self.descriptor)


def lock_path(path: Path) -> Path:
    """The lock's file for a session's file."""
    return path.with_name(path.name + ".lock")


def acquire(path: Path, *, since: str) -> Lock:
    """Take the right to write to the session's file. Raises StoreBusyError, which names the holder, or OSError."""
    place = lock_path(path)
    for _ in range(ATTEMPTS):
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _is_free(descriptor, fcntl.LOCK_EX) and _is_current(descriptor, place):
            _sign(descriptor, since)
            return Lock(path=place, descriptor=descriptor)
        os.close(descriptor)
        time.sleep(PAUSE_SECONDS)
    raise busy(path.stem, _holder(place))


def is_held(path: Path) -> bool:
    """Whether a living process may write to the session's file."""
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _is_free(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def holder_of(path: Path) -> str:
    """The process that may write to the session's file, for people."""
    return _holder(lock_path(path))


def _is_free(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(descriptor: int, place: Path) -> bool:
    try:
        there = place.stat()
    except OSError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def signature(since: str, *, home: str = "") -> str:
    """What a holder writes down of itself."""
    signed = {"pid": os.getpid(), "host": socket.gethostname(), "since": since, "machine": machine(), "home": home}
    return json.dumps(signed)


def machine() -> str:
    """The running kernel and the process numbers in use here: who shares both can tell whether a process lives."""
    try:
        return f"{BOOT.read_text('ascii').strip()} {NUMBERS.readlink()}"
    except OSError:
        return ""


def who_signed(text: str) -> str:
    """The holder's signature as a person reads it."""
    try:
        signed = json.loads(text)
        pid, host, since = signed["pid"], signed["host"], signed["since"]
    except (ValueError, KeyError, TypeError):
        return "another process"
    who = "this process itself" if (pid, host) == (os.getpid(), socket.gethostname()) else "another process"
    return f"{who} (pid {pid} on {host}, since {since})"


def is_known_dead(text: str) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    try:
        signed = json.loads(text)
        if not signed["machine"] or signed["machine"] != machine():
            return False
        os.kill(int(signed["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return False
    return False


def can_be_followed(text: str, *, home: str) -> bool:
    """Whether a process of this home can end what the holder left running: that one was of it too, and is gone.

    Or it is this process itself, which lost its connection and begins again.
    """
    try:
        signed = json.loads(text)
        is_here = (signed["machine"], signed["home"]) == (machine(), home)
        return is_here and (signed["pid"] == os.getpid() or is_known_dead(text))
    except (ValueError, KeyError, TypeError):
        return False


def busy(name: str, holder: str) -> StoreBusyError:
    """The error for a session that has a writer."""
    return StoreBusyError(
        f"SESSION_BUSY: {name} is run by {holder}. "
        f"Wait until it ends, or stop it with `xnagent cancel {name}`; `xnagent tell` reaches it, and reading "
        f"(`inspect`, `sessions`) works meanwhile."
    )


def _sign(descriptor: int, since: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, signature(since).encode(), 0)


def _holder(place: Path) -> str:
    try:
        return who_signed(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "another process"
