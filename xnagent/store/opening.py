"""Making a session's file and taking it over for writing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from xnagent.core.ids import SessionId
from xnagent.core.state import SessionState
from xnagent.errors import StoreError, XnagentError
from xnagent.store.artifacts import known_hashes
from xnagent.store.faults import create_fault, damaged, not_found, write_fault
from xnagent.store.folding import fold_stored
from xnagent.store.holding import FileHolding, current_epoch
from xnagent.store.lock import Lock, acquire
from xnagent.store.place import Opened
from xnagent.store.projections import events_after, rebuild
from xnagent.store.reading import connect_readonly
from xnagent.store.schema import VERSION, create_tables, migrate, version_of

BUSY_TIMEOUT_MILLISECONDS: Final = 30_000
JOURNAL_LIMIT_BYTES: Final = 64 << 20


def create_file(path: Path, *, session: SessionId, now: str) -> None:
    """Make the file of a new session: whole or not at all. Its folder is private to the user."""
    try:
        _make_private(path.parent)
        lock = acquire(path, since=now)
    except OSError as error:
        raise create_fault(path, error) from error
    try:
        _create_locked(path, session)
    except (sqlite3.Error, OSError) as error:
        raise create_fault(path, error) from error
    finally:
        lock.release()


def _create_locked(path: Path, session: SessionId) -> None:
    if path.exists():
        raise StoreError(f"SESSION_EXISTS: {path} is there already. Use `xnagent resume {session}` to go on with it.")
    draft = path.with_name(path.name + ".new")
    for leftover in (draft, _beside(draft, "-wal"), _beside(draft, "-shm"), _beside(path, "-wal")):
        leftover.unlink(missing_ok=True)
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("PRAGMA page_size=4096")
            require_wal(connection, path)
            create_tables(connection, session=session)
        draft.rename(path)
        _sync_folder(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _make_private(folder: Path) -> None:
    for missing in [part for part in (*reversed(folder.parents), folder) if not part.exists()]:
        missing.mkdir(mode=0o700, exist_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Switch to write-ahead logging and read back whether the file system lets it be so."""
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"STORE_NO_WAL: the file system of {path.parent} refuses SQLite's write-ahead log (mode {mode!r}), as "
            f"network file systems do. Choose a folder on a local disk with --home."
        )


def open_for_writing(path: Path, *, now: str) -> Opened:
    """Take the file over: lock, check, migrate, next epoch, load. Whatever fails leaves the file as it was."""
    if not path.exists():
        raise not_found(path)
    try:
        lock = acquire(path, since=now)
        return _open_or_release(path, lock)
    except (sqlite3.Error, OSError) as error:
        raise write_fault(path, error) from error


def _open_or_release(path: Path, lock: Lock) -> Opened:
    try:
        return _open_locked(path, lock)
    except (sqlite3.Error, OSError, XnagentError):
        lock.release()
        raise


def _open_locked(path: Path, lock: Lock) -> Opened:
    connection = _connect(path)
    try:
        return _take_over(connection, path=path, lock=lock)
    except (sqlite3.Error, XnagentError):
        connection.close()
        raise


def _connect(path: Path) -> sqlite3.Connection:
    # Checked through a read-only connection: closing a writable one would write the -wal of a refused file into it.
    connect_readonly(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        prepare(connection, path)
    except (sqlite3.Error, XnagentError):
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make a connection the writer's: how long it waits, how it syncs, and tables of this version."""
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MILLISECONDS}")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA journal_size_limit={JOURNAL_LIMIT_BYTES}")
    require_wal(connection, path)
    if version_of(connection) < VERSION:
        migrate(connection)


def _take_over(connection: sqlite3.Connection, *, path: Path, lock: Lock) -> Opened:
    last_seq, state = _load(connection, path)
    session = _session(connection, path)
    epoch = _next_epoch(connection)
    return Opened(
        holding=FileHolding(connection=connection, lock=lock, epoch=epoch, path=path),
        epoch=epoch,
        session=session,
        state=state,
        last_seq=last_seq,
        hashes=known_hashes(connection),
    )


def _next_epoch(connection: sqlite3.Connection) -> int:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'epoch'")
    epoch = current_epoch(connection)
    connection.execute("COMMIT")
    return epoch


def _session(connection: sqlite3.Connection, path: Path) -> SessionId:
    found = connection.execute("SELECT value FROM meta WHERE key = 'session'").fetchone()
    if found is None:
        raise damaged(path, "its session is missing")
    return SessionId(found[0])


def _load(connection: sqlite3.Connection, path: Path) -> tuple[int, SessionState]:
    count, last_seq = connection.execute("SELECT count(*), coalesce(max(seq), 0) FROM events").fetchone()
    if count != last_seq:
        raise damaged(path, f"{last_seq - count} of its {last_seq} events are missing")
    return last_seq, fold_stored(events_after(connection, 0))


def rebuild_projections(path: Path, *, now: str) -> None:
    """Make the projections of a session again from its events. Needs the session not to be running."""
    with _writable(path, now=now) as connection:
        connection.execute("BEGIN IMMEDIATE")
        rebuild(connection)
        connection.execute("COMMIT")


@contextmanager
def _writable(path: Path, *, now: str) -> Iterator[sqlite3.Connection]:
    lock = acquire(path, since=now)
    try:
        with closing(_connect(path)) as connection:
            _next_epoch(connection)
            yield connection
    finally:
        lock.release()
