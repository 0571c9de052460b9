"""The tables, which are those of a session's file with the session in front of each key."""

from __future__ import annotations

from typing import Final

import psycopg

from xnagent.errors import StoreError, StoreVersionError
from xnagent.store.postgres.address import Address
from xnagent.store.postgres.connecting import Connection, damaged, said

VERSION: Final = 1
"""Of the tables; in the database it is `version` of the session with the empty name in `meta`."""

CREATING: Final = 7_235_419_823
"""The advisory lock of whoever makes the tables."""

TABLES: Final = (
    "CREATE TABLE meta(session TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY(session, key))",
    """
CREATE TABLE events(session TEXT, seq BIGINT, at TEXT NOT NULL, epoch BIGINT NOT NULL, type TEXT NOT NULL, agent TEXT,
  enc TEXT NOT NULL, payload BYTEA NOT NULL, PRIMARY KEY(session, seq))
""",
    """
CREATE TABLE session(id TEXT PRIMARY KEY, objective TEXT, status TEXT NOT NULL, outcome TEXT, exit_code BIGINT,
  created TEXT, updated TEXT, last_seq BIGINT NOT NULL, cost_usd DOUBLE PRECISION, repository TEXT)
""",
    """
CREATE TABLE tool_calls(session TEXT, agent TEXT, call_id TEXT, tool TEXT, effect TEXT, state TEXT NOT NULL,
  started_seq BIGINT, ended_seq BIGINT, code TEXT, PRIMARY KEY(session, agent, call_id))
""",
    """
CREATE TABLE requests(session TEXT, request BIGINT, agent TEXT, started_seq BIGINT, reply_seq BIGINT, sha256 TEXT,
  size_bytes BIGINT, estimate_tokens BIGINT, input_tokens BIGINT, cached_tokens BIGINT, cache_write_tokens BIGINT,
  output_tokens BIGINT, reasoning_tokens BIGINT, cost_usd DOUBLE PRECISION, fault TEXT, PRIMARY KEY(session, request))
""",
    """
CREATE TABLE artifacts(session TEXT, sha TEXT, size BIGINT NOT NULL, enc TEXT NOT NULL, PRIMARY KEY(session, sha))
""",
    """
CREATE TABLE artifact_chunks(session TEXT, sha TEXT NOT NULL, n BIGINT NOT NULL, data BYTEA NOT NULL,
  PRIMARY KEY(session, sha, n))
""",
    """
CREATE TABLE leases(session TEXT PRIMARY KEY, epoch BIGINT NOT NULL, holder TEXT NOT NULL, backend BIGINT NOT NULL,
  expires TIMESTAMPTZ NOT NULL)
""",
    "ALTER TABLE events ALTER COLUMN payload SET STORAGE EXTERNAL",
    "ALTER TABLE artifact_chunks ALTER COLUMN data SET STORAGE EXTERNAL",
    f"INSERT INTO meta VALUES('', 'version', '{VERSION}')",
)
"""What is worth compressing was compressed before it came here, so the database need not try."""

FORGET: Final = (
    "DELETE FROM events WHERE session = %s",
    "DELETE FROM tool_calls WHERE session = %s",
    "DELETE FROM requests WHERE session = %s",
    "DELETE FROM artifact_chunks WHERE session = %s",
    "DELETE FROM artifacts WHERE session = %s",
    "DELETE FROM leases WHERE session = %s",
    "DELETE FROM session WHERE id = %s",
    "DELETE FROM meta WHERE session = %s",
)


MADE: Final = "SELECT 1 FROM pg_class WHERE relname = 'meta' AND relnamespace::regnamespace::text = 'xnagent'"
"""Whether another connection made the tables meanwhile: reads the catalog, which `to_regclass` need not do again."""


def require_tables(connection: Connection, address: Address) -> None:
    """Make the tables if there are none; raise StoreVersionError if there are others."""
    if not has_tables(connection, address):
        try:
            _create(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreError(
                f"STORE_CREATE_FAILED: {address}: {said(address, error)}. Let this user create a schema once "
                f"(GRANT CREATE ON DATABASE), or run the first session as a user who may."
            ) from error


def has_tables(connection: Connection, address: Address) -> bool:
    """Whether there are tables of this version; raises StoreVersionError for those of a newer one."""
    if connection.execute("SELECT to_regclass('xnagent.meta')").fetchone() == (None,):
        return False
    found = connection.execute("SELECT value FROM meta WHERE session = '' AND key = 'version'").fetchone()
    if found is None:
        raise damaged(address, "the version of its tables is missing")
    if int(found[0]) > VERSION:
        raise StoreVersionError(
            f"STORE_VERSION: {address} has tables of version {found[0]}, this xnagent knows version {VERSION}. "
            f"Nothing was changed; update xnagent to use it."
        )
    return True


def _create(connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
        if connection.execute(MADE).fetchone() is not None:
            return
        connection.execute("CREATE SCHEMA IF NOT EXISTS xnagent")
        for statement in TABLES:
            connection.execute(statement)
