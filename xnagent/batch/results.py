"""The file of results: one whole, synced line for each job that came to an end, whatever crashed in between."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from xnagent.core.text import Json, clean
from xnagent.core.values import dataclass
from xnagent.errors import StoreBusyError, StoreWriteError, UsageError

DIGEST_DIGITS: Final = 12
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
    known: dict[str, str] = field(default_factory=dict)
    """Digest of the job's line by job id, as it was when the batch last began or the result was written."""
    lines: Counter[str] = field(default_factory=Counter)
    """How many results a job has; the last one counts."""
    spent_usd: float = 0.0
    """By all lines, superseded ones too."""
    spent_tokens: int = 0

    def __enter__(self) -> Self:
        """Hold the file."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Let others have it."""
        os.close(self.descriptor)

    def append(self, job: str, record: Mapping[str, Json], *, digest: str = "") -> None:
        """Add one line; it is on the disk when this returns. Raises StoreWriteError.

        `digest` tells later which job line it is the result of.
        """
        result = {"id": job, **record} | ({"line": digest[:DIGEST_DIGITS]} if digest else {})
        line = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
        try:
            write_synced(self.descriptor, clean(line).encode() + b"\n")
        except OSError as error:
            raise StoreWriteError(
                f"RESULTS_WRITE_FAILED: {self.path}: {error.strerror}; free space and run it again"
            ) from error
        _count(self, result)

    def remember(self, digests: Mapping[str, str]) -> None:
        """Keep beside the file which lines the jobs had when the batch began."""
        self.known |= digests
        _keep(self.path, self.seed, digests=self.known)

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
        seed, known = _seed(path, is_new=is_new)
        results = Results(path=path, descriptor=descriptor, seed=seed, known=known)
        _read(results)
    except OSError as error:
        os.close(descriptor)
        raise UsageError(f"RESULTS_UNWRITABLE: {path}: {error.strerror}") from error
    except (UsageError, StoreBusyError):
        os.close(descriptor)
        raise
    return results


def peek_results(path: Path) -> Results:
    """What is in the file, without holding, making or mending anything; nothing may be appended."""
    place = _beside(path, SEED_SUFFIX)
    try:
        known = _digests(place.read_text(encoding="utf-8", errors="replace").partition("\n")[2])
    except OSError:
        known = {}
    results = Results(path=path, descriptor=-1, seed="", known=known)
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        lines = []
    except (OSError, ValueError) as error:
        raise UsageError(f"RESULTS_UNREADABLE: {path}: {getattr(error, 'strerror', None) or error}") from error
    for record in filter(None, map(_parse, lines)):
        _count(results, record)
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


def _seed(path: Path, *, is_new: bool) -> tuple[str, dict[str, str]]:
    """The batch's name and the lines of its jobs, as kept beside the file."""
    place = _beside(path, SEED_SUFFIX)
    if not is_new and place.is_file():
        seed, _, rest = place.read_text(encoding="utf-8", errors="replace").partition("\n")
        if seed.strip():
            return seed.strip(), _digests(rest)
    seed = secrets.token_hex(NONCE_BYTES)
    _keep(path, seed, digests={})
    return seed, {}


def _digests(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(job): str(digest) for job, digest in found.items()} if isinstance(found, dict) else {}


def _keep(path: Path, seed: str, *, digests: Mapping[str, str]) -> None:
    draft = _beside(path, f"{SEED_SUFFIX}.new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(f"{seed}\n{json.dumps(digests)}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(_beside(path, SEED_SUFFIX))


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
            _count(results, record)
        elif line.strip():
            results.problems.append(f"{results.path}:{number}: no result, {len(line):,} bytes; left as it is")


def _count(results: Results, record: Mapping[str, Any]) -> None:
    """One more line."""
    job, code, usage = str(record["id"]), record.get("exit_code"), record.get("usage")
    results.done[job] = code if isinstance(code, int) else None
    results.lines[job] += 1
    if isinstance(digest := record.get("line"), str):
        results.known[job] = digest
    if isinstance(usage, dict):
        results.spent_usd += _number(usage.get("cost_usd"))
        results.spent_tokens += int(_number(usage.get("input_tokens")) + _number(usage.get("output_tokens")))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _end(results: Results, rest: bytes, *, start: int) -> list[bytes]:
    """The last line has no end: finish it if only that is missing, else put it aside."""
    if _parse(rest) is not None:
        write_synced(results.descriptor, b"\n")
        return [rest]
    aside = _beside(results.path, TORN_SUFFIX)
    descriptor = os.open(aside, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        write_synced(descriptor, rest + b"\n")
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


def write_synced(descriptor: int, content: bytes) -> None:
    """Write everything; it is on the disk when this returns."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)
