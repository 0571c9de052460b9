"""A session's file, held for writing: many operations in one commit, each fenced by the epoch."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from xnagent.core.events import Stored
from xnagent.core.values import dataclass
from xnagent.errors import StoreError, StoreFencedError
from xnagent.store.artifacts import insert_artifact
from xnagent.store.codec import pack
from xnagent.store.faults import WRITE_FAULTS, write_fault
from xnagent.store.lock import Lock
from xnagent.store.place import Append, Put, Work, must_be_durable
from xnagent.store.projections import project, reach


def taken_over(what: str, *, newest: int, epoch: int) -> StoreFencedError:
    """The error for a process that is not the session's writer any more."""
    return StoreFencedError(
        f"SESSION_TAKEN_OVER: another process runs {what} now (epoch {newest}, this one had {epoch}). "
        f"Nothing was written; this process must stop."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHolding:
    """The only writable connection of a session's file, and the lock beside it."""

    connection: sqlite3.Connection
    lock: Lock
    epoch: int
    path: Path
    renew_seconds: None = None

    def write(self, batch: Sequence[Work]) -> tuple[int, StoreError | None]:
        """One transaction, FULL or NORMAL."""
        try:
            return transact(self.connection, batch, epoch=self.epoch, path=self.path)
        except WRITE_FAULTS as error:
            raise write_fault(self.path, error) from error
        finally:
            _roll_back(self.connection)

    def renew(self) -> None:
        """The lock lasts as long as the process. A session that waits may be one of a thousand: it keeps no pages."""
        with suppress(sqlite3.Error):
            self.connection.execute("PRAGMA shrink_memory")

    def close(self, *, is_sound: bool) -> None:
        """Checkpoint, close, unlock."""
        # A reader in the way or a full disk: the -wal stays and the next opener uses it.
        with suppress(sqlite3.Error):
            self.connection.execute("PRAGMA busy_timeout=0")
            if is_sound:
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.connection.close()
        self.lock.release()


def transact(
    connection: sqlite3.Connection, batch: Sequence[Work], *, epoch: int, path: Path
) -> tuple[int, StoreError | None]:
    """Commit the batch up to the first operation that fails, which is undone alone: how many, and why not that one."""
    connection.execute(f"PRAGMA synchronous={'FULL' if must_be_durable(batch) else 'NORMAL'}")
    connection.execute("BEGIN IMMEDIATE")
    _check_epoch(connection, epoch=epoch, path=path)
    written, fault = _apply_all(connection, batch, epoch=epoch, path=path)
    connection.execute("COMMIT")
    return written, fault


def _apply_all(
    connection: sqlite3.Connection, batch: Sequence[Work], *, epoch: int, path: Path
) -> tuple[int, StoreError | None]:
    """All at once; if that fails, one by one, so that the first that fails is undone alone."""
    connection.execute("SAVEPOINT batch")
    try:
        for work in batch:
            apply(connection, work, epoch=epoch)
        _reach(connection, batch)
    except WRITE_FAULTS:
        # A page that did not fit into the cache met a full disk: SQLite has undone everything.
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO batch")
    else:
        return len(batch), None
    return _apply_each(connection, batch, epoch=epoch, path=path)


def _apply_each(
    connection: sqlite3.Connection, batch: Sequence[Work], *, epoch: int, path: Path
) -> tuple[int, StoreError | None]:
    for number, work in enumerate(batch):
        connection.execute("SAVEPOINT operation")
        try:
            apply(connection, work, epoch=epoch)
            _reach(connection, [work])
        except WRITE_FAULTS as error:
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO operation")
            connection.execute("RELEASE operation")
            return number, write_fault(path, error)
        connection.execute("RELEASE operation")
    return len(batch), None


def apply(connection: sqlite3.Connection, work: Work, *, epoch: int) -> None:
    """Write one operation; the caller holds the transaction."""
    match work:
        case Append():
            for stored, content in work.events:
                _insert_event(connection, stored, content=content, epoch=epoch)
        case Put():
            insert_artifact(connection, sha=work.sha, data=work.data)


def _reach(connection: sqlite3.Connection, batch: Sequence[Work]) -> None:
    last = next((work.events[-1] for work in reversed(batch) if isinstance(work, Append) and work.events), None)
    if last is not None:
        reach(connection, last[0])


def _insert_event(connection: sqlite3.Connection, stored: Stored, *, content: bytes, epoch: int) -> None:
    encoding, payload = pack(content)
    agent = getattr(stored.event, "agent", None)
    row = (stored.seq, stored.at, epoch, stored.event.type, agent, encoding, payload)
    connection.execute("INSERT INTO events(seq, at, epoch, type, agent, enc, payload) VALUES(?, ?, ?, ?, ?, ?, ?)", row)
    project(connection, stored)


def current_epoch(connection: sqlite3.Connection) -> int:
    """The epoch of the process that took the file over last."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    return int(found[0]) if found else 0


def _check_epoch(connection: sqlite3.Connection, *, epoch: int, path: Path) -> None:
    newest = current_epoch(connection)
    if newest != epoch:
        raise taken_over(path.stem, newest=newest, epoch=epoch)


def _roll_back(connection: sqlite3.Connection) -> None:
    # What failed may have rolled back already; closing the connection does it otherwise.
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
