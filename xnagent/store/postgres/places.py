"""Sessions in one PostgreSQL database."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg

from xnagent.core.events import Stored
from xnagent.core.ids import AgentId, SessionId, Ticket
from xnagent.errors import StoreError, UsageError
from xnagent.store.folding import fold_stored
from xnagent.store.lock import can_be_followed, who_signed
from xnagent.store.place import Opened
from xnagent.store.postgres.address import Address, parse_address
from xnagent.store.postgres.connecting import Connection, connect, damaged, unreachable, write_fault
from xnagent.store.postgres.holding import PostgresHolding
from xnagent.store.postgres.lease import Claim
from xnagent.store.postgres.reader import Reader
from xnagent.store.postgres.schema import FORGET, has_tables, require_tables
from xnagent.store.sessions import SessionRow, check_name

LEASE_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 30.0
REACHED: Final = "SELECT id, last_seq FROM session WHERE id = ANY(%s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database and how patient to be with it."""

    address: Address
    lease_seconds: float
    """How long a holder that says nothing is taken to be alive."""
    patience_seconds: float
    """How long to try again after a connection was lost."""
    home: str = ""
    """Where this process keeps its folders: whoever shares it can end what a dead holder left running."""

    def claim(self, session: str) -> Claim:
        """What a process of this home claims."""
        return Claim(session=session, seconds=self.lease_seconds, home=self.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresPlace:
    """One session in the database."""

    name: str
    database: Database
    reader: Reader

    def __str__(self) -> str:
        """The session and the database."""
        return f"{self.name} in {self.database.address}"

    def create(self, session: SessionId, *, now: str) -> None:
        """Add the session's first rows; the tables too, if it is the first session of all."""
        address = self.database.address
        with closing(_connect(self.database)) as connection:
            try:
                require_tables(connection, address)
                _insert(connection, session, now=now)
            except psycopg.errors.UniqueViolation:
                raise StoreError(
                    f"SESSION_EXISTS: {self} is there already. Use `xnagent resume {session}` to go on with it."
                ) from None
            except psycopg.Error as error:
                raise write_fault(address, error, name=self.name) from error

    def take_over(self, *, now: str) -> Opened:
        """Lock, next epoch, load."""
        connection = _connect(self.database)
        try:
            holding = _hold(self, connection, now=now)
        except psycopg.Error as error:
            connection.close()
            raise write_fault(self.database.address, error, name=self.name) from error
        except (StoreError, UsageError):
            connection.close()
            raise
        try:
            return _load(self, holding)
        except StoreError:
            holding.close(is_sound=True)
            raise

    def read_session(self) -> SessionId:
        """The name, if there is such a session."""
        if not self.reader.has_session(self.name):
            raise not_found(self)
        return SessionId(self.name)

    def events(self, *, after: int = 0, is_outline: bool = False) -> Iterator[Stored]:
        """Each page is a statement of its own: no transaction stays open."""
        self.read_session()
        yield from self.reader.events(self.name, after=after, is_outline=is_outline)

    def history(self, agent: AgentId) -> tuple[Stored, ...]:
        """The replies and tool results of an agent."""
        return tuple(self.reader.history(self.name, agent))

    def artifact(self, ticket: Ticket) -> bytes | None:
        """The content, checked against its hash."""
        return self.reader.artifact(self.name, ticket)

    def exists(self) -> bool:
        """Whether the session has rows."""
        return self.reader.has_session(self.name)

    def holder(self) -> str | None:
        """Who has its lock, as its lease says."""
        lease = self.reader.lease(self.name)
        return who_signed(lease.signed) if lease.is_held else None

    @contextmanager
    def reserved(self, *, now: str) -> Iterator[None]:
        """Hold its lock over a connection of its own."""
        with closing(_connect(self.database)) as connection:
            try:
                require_tables(connection, self.database.address)
                self.database.claim(self.name).lock(connection)
            except psycopg.Error as error:
                raise write_fault(self.database.address, error, name=self.name) from error
            yield

    def forget(self) -> None:
        """Delete its rows."""
        with closing(_connect(self.database)) as connection:
            try:
                _delete(connection, self)
            except psycopg.Error as error:
                raise write_fault(self.database.address, error, name=self.name) from error


def not_found(place: PostgresPlace) -> UsageError:
    """The error for a session that is not there."""
    return UsageError(f"SESSION_NOT_FOUND: there is no session {place}. `xnagent sessions` lists what is there.")


def _connect(database: Database) -> Connection:
    try:
        return connect(database.address)
    except psycopg.Error as error:
        raise unreachable(database.address, error) from error


def _hold(place: PostgresPlace, connection: Connection, *, now: str) -> PostgresHolding:
    database = place.database
    if not has_tables(connection, database.address):
        raise not_found(place)
    claim = database.claim(place.read_session())
    epoch = claim.take(connection, now=now)
    return PostgresHolding(
        connection, address=database.address, claim=claim, epoch=epoch, patience_seconds=database.patience_seconds
    )


def _load(place: PostgresPlace, holding: PostgresHolding) -> Opened:
    count, last_seq = place.reader.count(place.name)
    if count != last_seq:
        why = f"{last_seq - count} of the {last_seq} events of {place.name} are missing"
        raise damaged(place.database.address, why)
    return Opened(
        holding=holding,
        epoch=holding.epoch,
        session=SessionId(place.name),
        state=fold_stored(place.events()),
        last_seq=last_seq,
        hashes=place.reader.hashes(place.name),
    )


def _insert(connection: Connection, session: SessionId, *, now: str) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO meta VALUES(%s, 'epoch', '0')", (session,))
        connection.execute(
            "INSERT INTO session(id, status, updated, last_seq, cost_usd) VALUES(%s, 'new', %s, 0, 0)", (session, now)
        )


def _delete(connection: Connection, place: PostgresPlace) -> None:
    if not has_tables(connection, place.database.address):
        return
    with connection.transaction():
        for statement in FORGET:
            connection.execute(statement, (place.name,))


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSessions:
    """The sessions of one database."""

    database: Database
    reader: Reader

    def __str__(self) -> str:
        """The database's address."""
        return str(self.database.address)

    def check(self) -> None:
        """Ask the server something."""
        self.reader.has_session("")

    def place(self, session: str) -> PostgresPlace:
        """The session's rows."""
        return PostgresPlace(name=check_name(session), database=self.database, reader=self.reader)

    def left_seconds(self, session: str) -> float:
        """What is left of a lease that was not given back, if whoever signed it cannot be followed."""
        lease = self.reader.lease(session)
        is_ours = lease.is_held or can_be_followed(lease.signed, home=self.database.home)
        return 0.0 if is_ours else lease.left_seconds

    def rows(self) -> list[SessionRow]:
        """What is in the table of sessions."""
        return self.reader.sessions()

    def marks(self, sessions: Sequence[str]) -> dict[str, Hashable]:
        """How far each log goes, by one statement."""
        return dict(self.reader.rows(REACHED, list(sessions)))


def sessions_in(
    url: str, *, lease_seconds: float = LEASE_SECONDS, patience_seconds: float = PATIENCE_SECONDS, home: str = ""
) -> PostgresSessions:
    """The sessions in the database at this address. Connects to nothing yet; raises UsageError for a bad address."""
    address = parse_address(url)
    database = Database(address=address, lease_seconds=lease_seconds, patience_seconds=patience_seconds, home=home)
    return PostgresSessions(database=database, reader=Reader(address, patience_seconds=patience_seconds))
