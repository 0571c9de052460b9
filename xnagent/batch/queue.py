"""The queue's file: jobs, leases, cancel requests. A small SQLite file that several processes of one machine write to.

A rollback journal and no WAL: up to SQLite 3.51.2 two processes that write and checkpoint a WAL at the same instant can
damage it, and each session's own file keeps to one writer for that reason. Nothing is synced, because a queue that is
lost loses nothing. Every operation has a connection of its own, so that no two threads or forks can share one.

Times are the machine's monotonic clock, which all processes share and nobody sets. An owner that is dead is known to be
(its process number and start time are gone), and its jobs are free at once; the lease is for one that hangs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xnagent.batch.engine import EngineError, JobLost, JobNews, JobOrder, JobSettled
from xnagent.workspaces.processes import identify

BUSY_SECONDS: Final = 30.0
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
  job TEXT PRIMARY KEY, place INTEGER NOT NULL, payload TEXT NOT NULL, priority INTEGER NOT NULL,
  status TEXT NOT NULL DEFAULT 'ready', owner TEXT, lease_until REAL, epoch INTEGER NOT NULL DEFAULT 0,
  losses INTEGER NOT NULL DEFAULT 0, progress INTEGER NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0,
  cancel TEXT, result TEXT, is_collected INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX IF NOT EXISTS ready ON jobs (status, priority DESC, place);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to do a job, until it is given to somebody else."""

    order: JobOrder
    owner: str
    epoch: int
    """How many times the job was given to somebody, this time included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long a lease lasts, and how often a job may be lost."""

    lease_seconds: float = 30.0
    most_losses: int = 5
    """So often in a row, without progress, a job may be lost with its worker."""

    @property
    def beat_seconds(self) -> float:
        """How often a lease is renewed."""
        return self.lease_seconds / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The file's operations, each one transaction. All raise EngineError. `now` is monotonic."""

    path: Path
    terms: Terms = Terms()

    def create(self) -> None:
        """Make it anew, whatever was there."""
        for suffix in ("", "-journal", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.touch(mode=0o600)
        with self._changing() as connection:
            for statement in SCHEMA.split(";"):
                connection.execute(statement)

    def submit(self, orders: Sequence[JobOrder]) -> None:
        """Add orders; known ids change nothing."""
        with self._changing() as connection:
            last = connection.execute("SELECT coalesce(max(place), 0) FROM jobs").fetchone()[0]
            connection.executemany(
                "INSERT OR IGNORE INTO jobs (job, place, payload, priority) VALUES (?, ?, ?, ?)",
                [(one.job, place, one.payload, one.priority) for place, one in enumerate(orders, last + 1)],
            )

    def claim(self, owner: str, *, count: int, now: float) -> tuple[Lease, ...]:
        """Lease up to `count` jobs that nobody has, those of lost owners included."""
        with self._changing() as connection:
            _free_lost(connection, now=now, most=self.terms.most_losses)
            found = connection.execute(
                "SELECT job, payload, priority, epoch FROM jobs WHERE status = 'ready' AND not_before <= ?"
                " ORDER BY priority DESC, place LIMIT ?",
                (now, count),
            ).fetchall()
            connection.executemany(
                "UPDATE jobs SET status = 'leased', owner = ?, lease_until = ?, epoch = epoch + 1 WHERE job = ?",
                [(owner, now + self.terms.lease_seconds, row[0]) for row in found],
            )
        return tuple(
            Lease(order=JobOrder(job=job, payload=payload, priority=priority), owner=owner, epoch=epoch + 1)
            for job, payload, priority, epoch in found
        )

    def renew(self, lease: Lease, *, progress: int | None, now: float) -> str | None:
        """Keep the lease; returns why the job is cancelled, if it is. Raises LookupError if the lease is lost."""
        with self._changing() as connection:
            changed = connection.execute(
                "UPDATE jobs SET lease_until = ?, losses = iif(? > progress, 0, losses), progress = max(progress, ?)"
                " WHERE job = ? AND owner = ? AND epoch = ? AND status = 'leased' RETURNING cancel",
                (now + self.terms.lease_seconds, progress or 0, progress or 0, *_key(lease)),
            ).fetchone()
        if changed is None:
            raise LookupError(lease.order.job)
        return None if changed[0] is None else str(changed[0])

    def settle(self, lease: Lease, result: str) -> bool:
        """Hand the result back; False: the lease was lost, and nothing was changed."""
        with self._changing() as connection:
            changed = connection.execute(
                "UPDATE jobs SET status = 'settled', result = ? WHERE job = ? AND owner = ? AND epoch = ?"
                " AND status = 'leased'",
                (result, *_key(lease)),
            )
        return changed.rowcount == 1

    def put_back(self, lease: Lease, *, not_before: float) -> None:
        """Give the job up; somebody gets it again after a while."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE jobs SET status = 'ready', not_before = ? WHERE job = ? AND owner = ? AND epoch = ?"
                " AND status = 'leased'",
                (not_before, *_key(lease)),
            )
            _settle_cancelled(connection)

    def cancel(self, job: str, reason: str) -> None:
        """Settle a job that nobody has; mark one that somebody has."""
        with self._changing() as connection:
            connection.execute("UPDATE jobs SET cancel = ? WHERE job = ? AND status = 'leased'", (reason, job))
            connection.execute(
                "UPDATE jobs SET status = 'settled', result = '' WHERE job = ? AND status = 'ready'", (job,)
            )

    def collect(self, *, now: float) -> tuple[JobNews, ...]:
        """What came to an end and was not collected yet."""
        with self._changing() as connection:
            _free_lost(connection, now=now, most=self.terms.most_losses)
            found = connection.execute(
                "UPDATE jobs SET is_collected = 1, payload = ''"
                " WHERE is_collected = 0 AND status IN ('settled', 'lost') RETURNING job, status, coalesce(result, '')"
            ).fetchall()
        return tuple(
            JobSettled(job=job, result=result) if status == "settled" else JobLost(job=job, detail=result)
            for job, status, result in found
        )

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            # One that was removed, because its batch is over, is not made again.
            place = f"{self.path.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(place, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode=TRUNCATE")
                connection.execute("PRAGMA synchronous=OFF")
                yield connection
        except sqlite3.Error as error:
            raise EngineError(
                f"QUEUE_FAILED: {self.path}: {error}; run the same command again: it is made anew, nothing is lost"
            ) from error


def _key(lease: Lease) -> tuple[str, str, int]:
    return lease.order.job, lease.owner, lease.epoch


def _free_lost(connection: sqlite3.Connection, *, now: float, most: int) -> None:
    """Take back the jobs whose owner is dead or was silent for too long; settle those that are lost too often."""
    rows = connection.execute("SELECT job, owner, lease_until FROM jobs WHERE status = 'leased'").fetchall()
    living = {owner: is_alive(owner) for owner in {row[1] for row in rows}}
    lost = [(job,) for job, owner, until in rows if until < now or not living[owner]]
    connection.executemany("UPDATE jobs SET status = 'ready', losses = losses + 1 WHERE job = ?", lost)
    _settle_cancelled(connection)
    connection.execute(
        "UPDATE jobs SET status = 'lost', result = 'the worker was lost ' || losses || ' times in a row'"
        " WHERE status = 'ready' AND losses > ?",
        (most,),
    )


def _settle_cancelled(connection: sqlite3.Connection) -> None:
    """End what was to end and came back instead."""
    connection.execute("UPDATE jobs SET status = 'settled', result = '' WHERE status = 'ready' AND cancel IS NOT NULL")


def owner_name(number: int) -> str:
    """A process, for as long as the machine runs."""
    found = identify(_stat(number))
    return f"{number}-{0 if found is None else found.started}"


def is_alive(owner: str) -> bool:
    """Whether the owner's process runs."""
    number, _, started = owner.partition("-")
    stat = _stat(int(number))
    found = identify(stat)
    is_zombie = stat.rpartition(")")[2].split()[:1] in (["Z"], ["X"])
    return found is not None and str(found.started) == started.partition("-")[0] and not is_zombie


def _stat(number: int) -> str:
    try:
        return Path(f"/proc/{number}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return ""


def queue_path(home: Path, seed: str) -> Path:
    """Where the queue of a batch is: at home, because that is on a disk where SQLite's locks work."""
    return home / "queues" / f"{seed}.db"


def remove(path: Path) -> None:
    """The batch is over."""
    for suffix in ("", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
