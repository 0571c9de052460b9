"""Reads sessions over one connection that many threads share, and that comes back after a loss."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, LiteralString

import psycopg

from xnagent.core.events import Stored
from xnagent.core.ids import TICKET, AgentId, SessionId, Ticket
from xnagent.store.artifacts import assembled, ticket_of
from xnagent.store.outline import OUTLINE, outlined
from xnagent.store.postgres.address import Address
from xnagent.store.postgres.connecting import Connection, connect, is_lost, read_fault
from xnagent.store.postgres.lease import LEASE, LOCKED_KEYS, is_locked
from xnagent.store.postgres.schema import has_tables
from xnagent.store.projections import PAGE_EVENTS, stored_rows
from xnagent.store.sessions import SessionRow

PAUSE_SECONDS: Final = 0.25

PAGE: Final = """
SELECT seq, at, enc, payload FROM events WHERE session = %s AND seq > %s ORDER BY seq LIMIT %s
"""
HISTORY: Final = """
SELECT seq, at, enc, payload FROM events
WHERE session = %s AND agent = %s AND type IN ('reply_received', 'tool_finished') ORDER BY seq
"""
ROWS: Final = """
SELECT id, status, objective, outcome, exit_code, created, updated, last_seq, cost_usd, repository FROM session
ORDER BY coalesce(created, updated) DESC, id DESC
"""
_OUTLINE: Final = OUTLINE.format(where="session = %s AND", value="%s")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to write to a session, as it stands."""

    is_held: bool
    """Whether a connection has the lock."""
    signed: str
    """The last holder's signature; empty if it gave the lease back."""
    left_seconds: float


class Reader:
    """The sessions of one database, read."""

    def __init__(self, address: Address, *, patience_seconds: float) -> None:
        self._address = address
        self._patience_seconds = patience_seconds
        self._lock = Lock()
        self._connection: Connection | None = None
        self._has_tables = False

    def has_session(self, session: str) -> bool:
        """Whether there is such a session."""
        return bool(self.rows("SELECT 1 FROM meta WHERE session = %s AND key = 'epoch'", session))

    def events(self, session: str, *, after: int, is_outline: bool = False) -> Iterator[Stored]:
        """The events after the given one, in order, a page at a time."""
        asked: tuple[LiteralString, object] = (_OUTLINE, session) if is_outline else (PAGE, PAGE_EVENTS)
        read = outlined if is_outline else stored_rows
        while page := read(self.rows(asked[0], session, after, asked[1])):
            yield from page
            after = page[-1].seq

    def history(self, session: str, agent: AgentId) -> list[Stored]:
        """The replies and tool results of an agent, in order."""
        return stored_rows(self.rows(HISTORY, session, agent))

    def artifact(self, session: str, ticket: Ticket) -> bytes | None:
        """The content; None if there is none. Raises StoreDamagedError if it is not what its hash says."""
        if TICKET.fullmatch(ticket) is None:
            return None
        prefix = ticket.removeprefix("artifact:")
        found = self.rows(
            'SELECT sha, enc FROM artifacts WHERE session = %s AND sha COLLATE "C" >= %s AND sha COLLATE "C" < %s',
            session,
            prefix,
            prefix + "g",
        )
        if not found:
            return None
        sha, encoding = found[0]
        chunks = self.rows("SELECT data FROM artifact_chunks WHERE session = %s AND sha = %s ORDER BY n", session, sha)
        return assembled(ticket, sha, encoding=encoding, chunks=[chunk for (chunk,) in chunks])

    def hashes(self, session: str) -> dict[Ticket, str]:
        """The whole hash by ticket, of all that is stored."""
        return {ticket_of(sha): sha for (sha,) in self.rows("SELECT sha FROM artifacts WHERE session = %s", session)}

    def count(self, session: str) -> tuple[int, int]:
        """How many events there are, and the place of the last."""
        rows = self.rows("SELECT count(*), coalesce(max(seq), 0) FROM events WHERE session = %s", session)
        return rows[0][0], rows[0][1]

    def lease(self, session: str) -> Lease:
        """Who signed the session's lease last, and what is left of it."""
        leases = self.rows(LEASE, session)
        is_held = is_locked([(key, pid) for key, pid in self.rows(LOCKED_KEYS)], session)
        signed, _, seconds = leases[0] if leases else ("", False, 0.0)
        return Lease(is_held=is_held, signed=signed, left_seconds=max(0.0, float(seconds)))

    def sessions(self) -> list[SessionRow]:
        """All sessions, newest first."""
        locked = [(key, pid) for key, pid in self.rows(LOCKED_KEYS)]
        return [_row(row, is_live=is_locked(locked, row[0])) for row in self.rows(ROWS)]

    def rows(self, statement: LiteralString, *values: object) -> Rows:
        """The answer; none where there are no tables yet. A connection that was lost is made again, for a while."""
        with self._lock:
            return self._ask_patiently(statement, values)

    def _ask_patiently(self, statement: LiteralString, values: tuple[object, ...]) -> Rows:
        deadline = time.monotonic() + (0 if self._connection is None else self._patience_seconds)
        while True:
            try:
                return self._ask(statement, values)
            except psycopg.Error as error:
                if not is_lost(error) or time.monotonic() > deadline:
                    raise read_fault(self._address, error) from error
                if self._connection is not None:
                    self._connection.close()
                time.sleep(PAUSE_SECONDS)

    def _ask(self, statement: LiteralString, values: tuple[object, ...]) -> Rows:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._address)
            weakref.finalize(self, self._connection.close)
        self._has_tables = self._has_tables or has_tables(self._connection, self._address)
        if not self._has_tables:
            return []
        return self._connection.execute(statement, values, binary=True).fetchall()


def _row(row: tuple[Any, ...], *, is_live: bool) -> SessionRow:
    session, status, objective, outcome, exit_code, created, updated, last_seq, cost_usd, repository = row
    return SessionRow(
        session=SessionId(session),
        path=None,
        is_live=is_live,
        status=status,
        objective=objective or "",
        outcome=outcome,
        exit_code=exit_code,
        created=created or updated,
        updated=updated,
        last_seq=last_seq,
        cost_usd=cost_usd,
        repository=repository or "",
    )
