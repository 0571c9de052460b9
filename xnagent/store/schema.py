"""The tables of a session's file, the check that they are there, and the way from older versions to this one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from xnagent.core.ids import SessionId
from xnagent.errors import StoreVersionError
from xnagent.store.faults import damaged
from xnagent.store.projections import rebuild

VERSION: Final = 1
"""Of the tables; in the file it is `user_version`."""

REQUESTS: Final = """
CREATE TABLE requests(request INTEGER PRIMARY KEY, agent TEXT, started_seq INTEGER, reply_seq INTEGER, sha256 TEXT,
  size_bytes INTEGER, estimate_tokens INTEGER, input_tokens INTEGER, cached_tokens INTEGER,
  cache_write_tokens INTEGER, output_tokens INTEGER, reasoning_tokens INTEGER, cost_usd REAL, fault TEXT)
"""

TABLES: Final = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """
CREATE TABLE events(seq INTEGER PRIMARY KEY, at TEXT NOT NULL, epoch INTEGER NOT NULL, type TEXT NOT NULL, agent TEXT,
  enc TEXT NOT NULL, payload BLOB NOT NULL)
""",
    """
CREATE TABLE session(id TEXT PRIMARY KEY, objective TEXT, status TEXT NOT NULL, outcome TEXT, exit_code INTEGER,
  created TEXT, updated TEXT, last_seq INTEGER NOT NULL, cost_usd REAL, repository TEXT)
""",
    """
CREATE TABLE tool_calls(agent TEXT, call_id TEXT, tool TEXT, effect TEXT, state TEXT NOT NULL, started_seq INTEGER,
  ended_seq INTEGER, code TEXT, PRIMARY KEY(agent, call_id))
""",
    REQUESTS,
    "CREATE TABLE artifacts(sha TEXT PRIMARY KEY, size INTEGER NOT NULL, enc TEXT NOT NULL)",
    "CREATE TABLE artifact_chunks(sha TEXT NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY(sha, n))",
)

Migration = Callable[[sqlite3.Connection], None]


def create_tables(connection: sqlite3.Connection, *, session: SessionId) -> None:
    """Make all tables of this version in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in TABLES:
        connection.execute(statement)
    connection.executemany("INSERT INTO meta VALUES(?, ?)", [("session", session), ("epoch", "0")])
    rebuild(connection)
    connection.execute(f"PRAGMA user_version={VERSION}")
    connection.execute("COMMIT")


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the file's tables."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check_schema(connection: sqlite3.Connection, path: Path) -> int:
    """The file's version, if this xnagent can read it. Raises StoreVersionError or StoreDamagedError."""
    found = _columns(connection)
    version = version_of(connection)
    if not {"meta", "events"} <= found.keys():
        raise damaged(path, "it is an SQLite file but holds no xnagent session")
    if version > VERSION:
        raise StoreVersionError(
            f"STORE_VERSION: {path} has tables of version {version}, this xnagent knows version {VERSION}. "
            f"The file was left as it is; update xnagent to read it."
        )
    if version == VERSION:
        _require(found, path)
    return version


def _require(found: Mapping[str, frozenset[str]], path: Path) -> None:
    for table, columns in _expected().items():
        if table not in found:
            raise damaged(path, f"the table {table} is missing, although the file says version {VERSION}")
        if missing := sorted(columns - found[table]):
            raise damaged(path, f"the column {table}.{missing[0]} is missing, although the file says version {VERSION}")


def _columns(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    rows = connection.execute(
        "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c WHERE m.type = 'table'"
    ).fetchall()
    return {table: frozenset(column for owner, column in rows if owner == table) for table, _ in rows}


@cache
def _expected() -> dict[str, frozenset[str]]:
    connection = sqlite3.connect(":memory:")
    try:
        for statement in TABLES:
            connection.execute(statement)
        return _columns(connection)
    finally:
        connection.close()


def _add_requests(connection: sqlite3.Connection) -> None:
    connection.execute(REQUESTS)


MIGRATIONS: Final[tuple[Migration, ...]] = (_add_requests,)
"""The step from version 0, 1, 2… to the next. Each may lose projections: they are rebuilt from the events after it."""


def migrate(connection: sqlite3.Connection, *, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Bring the tables to this version in one transaction: a process that dies in it leaves the old file."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in migrations[version_of(connection) :]:
            step(connection)
        rebuild(connection)
        connection.execute(f"PRAGMA user_version={len(migrations)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
