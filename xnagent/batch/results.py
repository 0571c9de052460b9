"""The file of results: one whole, synced line for each job that came to an end, whatever crashed in between."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from xnagent.core.text import Json, clean
from xnagent.errors import StoreBusyError, StoreWriteError, UsageError

NONCE_BYTES: Final = 6
SEED_SUFFIX: Final = ".batch"
TORN_SUFFIX: Final = ".torn"


@dataclass(slots=True, kw_only=True)
class Results:
    """The file, held by this process until the block that opened it ends."""

    path: Path
    descriptor: int
    seed: str
    """Names this batch: its sessions are found again after a crash, and are new ones once the file was removed."""
    done: dict[str, int | None] = field(default_factory=dict)
    """Exit code by job id."""
    problems: list[str] = field(default_factory=list)
    """What was wrong with the file, for people."""

    def __enter__(self) -> Self:
        """Hold the file."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Let others have it."""
        os.close(self.descriptor)

    def append(self, job: str, record: Mapping[str, Json]) -> None:
        """Add one line; it is on the disk when this returns. Raises StoreWriteError."""
        line = json.dumps({"id": job, **record}, ensure_ascii=False, separators=(",", ":"))
        try:
            _write(self.descriptor, clean(line).encode() + b"\n")
        except OSError as error:
            raise StoreWriteError(
                f"RESULTS_WRITE_FAILED: {self.path}: {error.strerror}; free space and run it again"
            ) from error
        self.done[job] = cast("int | None", record.get("exit_code"))

    def forget_seed(self) -> None:
        """Every job has its line: nothing is left to be found again."""
        with suppress(OSError):
            _beside(self.path, SEED_SUFFIX).unlink()


def open_results(path: Path) -> Results:
    """Open or make the file, read what is done, and put a torn last line aside.

    Raises UsageError for a place that cannot be written, StoreBusyError if another batch writes to it.
    """
    try:
        descriptor, is_new = _open(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"RESULTS_UNWRITABLE: {path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        _hold(descriptor, path)
        results = Results(path=path, descriptor=descriptor, seed=_seed(path, is_new=is_new))
        _read(results)
    except OSError as error:
        os.close(descriptor)
        raise UsageError(f"RESULTS_UNWRITABLE: {path}: {error.strerror}") from error
    except (UsageError, StoreBusyError):
        os.close(descriptor)
        raise
    return results


def _open(path: Path) -> tuple[int, bool]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644), True
    except FileExistsError:
        return os.open(path, flags), False


def _hold(descriptor: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UsageError(f"RESULTS_UNWRITABLE: {path} is no ordinary file; results have to survive a crash")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreBusyError(f"RESULTS_BUSY: another batch writes to {path}; wait until it ends or stop it") from error


def _seed(path: Path, *, is_new: bool) -> str:
    place = _beside(path, SEED_SUFFIX)
    if not is_new and place.is_file() and (kept := place.read_text(encoding="utf-8", errors="replace").strip()):
        return kept
    seed = secrets.token_hex(NONCE_BYTES)
    draft = _beside(path, f"{SEED_SUFFIX}.new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(f"{seed}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(place)
    return seed


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _read(results: Results) -> None:
    content = results.path.read_bytes()
    *lines, rest = content.split(b"\n")
    if rest:
        lines += _end(results, rest, start=len(content) - len(rest))
    for number, line in enumerate(lines, 1):
        record = _parse(line)
        if record is not None:
            code = record.get("exit_code")
            results.done.setdefault(str(record["id"]), code if isinstance(code, int) else None)
        elif line.strip():
            results.problems.append(f"{results.path}:{number}: no result, {len(line):,} bytes; left as it is")


def _end(results: Results, rest: bytes, *, start: int) -> list[bytes]:
    """The last line has no end: finish it if only that is missing, else put it aside."""
    if _parse(rest) is not None:
        _write(results.descriptor, b"\n")
        return [rest]
    aside = _beside(results.path, TORN_SUFFIX)
    descriptor = os.open(aside, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _write(descriptor, rest + b"\n")
    finally:
        os.close(descriptor)
    os.ftruncate(results.descriptor, start)
    os.fsync(results.descriptor)
    results.problems.append(f"{results.path}: the last line was torn ({len(rest):,} bytes); it is in {aside} now")
    return []


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "id" in record else None


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)
