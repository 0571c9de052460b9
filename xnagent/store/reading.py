"""Reading a session's file beside its writer, or when nobody runs it: never writes, never checkpoints."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from xnagent.core.events import Stored
from xnagent.core.ids import AgentId, SessionId, Ticket
from xnagent.core.state import SessionState
from xnagent.errors import StoreError
from xnagent.store.artifacts import load_artifact
from xnagent.store.faults import damaged, not_found, read_fault
from xnagent.store.folding import fold_stored
from xnagent.store.outline import OUTLINE, outlined
from xnagent.store.projections import events_after, history_of
from xnagent.store.schema import check_schema

_OUTLINE: Final = OUTLINE.format(where="", value="?")


def check_file(path: Path) -> None:
    """Raise for a path that is no file, or an empty one, which SQLite would take for a new database."""
    if not path.exists():
        raise not_found(path)
    if not path.is_file():
        raise damaged(path, "it is no file")
    if path.stat().st_size == 0:
        raise damaged(path, "it is empty")


def connect_readonly(path: Path) -> sqlite3.Connection:
    """A connection that can only read, to a file whose tables were checked."""
    check_file(path)
    try:
        return _checked(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if not _is_place_readonly(error):
            raise
        return _connect_in_readonly_place(path, error)


def _checked(path: Path, options: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only=1")
        connection.execute("PRAGMA busy_timeout=5000")
        check_schema(connection, path)
    except (sqlite3.Error, StoreError):
        connection.close()
        raise
    return connection


def _is_place_readonly(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}


def _connect_in_readonly_place(path: Path, error: sqlite3.OperationalError) -> sqlite3.Connection:
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > 0:
        raise StoreError(
            f"STORE_READ_ONLY: the newest events of {path} are in {log.name}, and reading them needs a folder that can "
            f"be written to. Copy both files to such a folder and read the copy."
        ) from error
    return _checked(path, "mode=ro&immutable=1")


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection for a while; what SQLite says comes out as StoreError."""
    try:
        with closing(connect_readonly(path)) as connection:
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise read_fault(path, error) from error


def read_events(path: Path, *, after: int = 0, is_outline: bool = False) -> Iterator[Stored]:
    """The committed events with a number greater than `after`, in order. Raises StoreError at the first damaged one."""
    with reading(path) as connection:
        yield from (_outline_after if is_outline else events_after)(connection, after)


def _outline_after(connection: sqlite3.Connection, seq: int) -> Iterator[Stored]:
    """No read transaction stays open between two pages."""
    while page := outlined(connection.execute(_OUTLINE, (seq,)).fetchall()):
        yield from page
        seq = page[-1].seq


def read_state(path: Path) -> SessionState:
    """The log folded, up to the last committed event."""
    return fold_stored(read_events(path))


def read_history(path: Path, agent: AgentId) -> tuple[Stored, ...]:
    """The replies and tool results of an agent, in order."""
    with reading(path) as connection:
        return tuple(history_of(connection, agent))


def read_artifact(path: Path, ticket: Ticket) -> bytes | None:
    """The content that the ticket stands for; None if there is none."""
    with reading(path) as connection:
        return load_artifact(connection, ticket)


def read_session(path: Path) -> SessionId:
    """The id of the session in the file."""
    with reading(path) as connection:
        found = connection.execute("SELECT value FROM meta WHERE key = 'session'").fetchone()
    if found is None:
        raise damaged(path, "its session is missing")
    return SessionId(found[0])
