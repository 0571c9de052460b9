"""Connections to the database, and what it says as errors that say what to do."""

from __future__ import annotations

import logging
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from xnagent.errors import StoreDamagedError, StoreError, StoreWriteError
from xnagent.store.postgres.address import Address

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

PATIENCE: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""How long libpq waits for a server whose machine is gone: seconds, but for the last one, which is milliseconds."""

SET_UP: Final = (
    "SET search_path TO xnagent",
    "SET client_min_messages TO warning",
    "SET tcp_keepalives_idle TO 10",
    "SET tcp_keepalives_interval TO 5",
    "SET tcp_keepalives_count TO 3",
)
"""The server notices a dead machine of ours as soon as we notice one of its."""

WRITE_FAULTS: Final = (psycopg.Error, OSError, ArithmeticError, ValueError, TypeError, MemoryError)
"""What may go wrong while a transaction is written."""

ENDED: Final = ("08", "57P")
"""How the codes begin with which a server ends a connection."""


def connect(address: Address) -> Connection:
    """A connection that commits each statement by itself. Raises psycopg.Error."""
    # What the driver notes when a connection is lost, we tell ourselves; without a handler it would go to stderr.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    given = conninfo_to_dict(address.url)
    patient = make_conninfo(address.url, **{key: value for key, value in PATIENCE.items() if key not in given})
    connection = psycopg.connect(patient, autocommit=True, application_name="xnagent")
    try:
        for statement in SET_UP:
            connection.execute(statement)
    except psycopg.Error:
        connection.close()
        raise
    return connection


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, or in no state to be used again: the server did not refuse, it did not answer."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(ENDED)


def is_transient(error: BaseException) -> bool:
    """Whether it may work in a moment: the server starts, or the old connection is still being ended."""
    return is_lost(error) or isinstance(error, psycopg.errors.LockNotAvailable)


def unreachable(address: Address, error: Exception) -> StoreError:
    """The error for a database that nothing can be asked of."""
    return StoreError(
        f"STORE_UNREACHABLE: {address}: {said(address, error)}. Start the server, or correct store.url; "
        f"nothing was changed."
    )


def write_fault(address: Address, error: BaseException, *, name: str) -> StoreError:
    """The error for something that did not reach the database."""
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return damaged(address, said(address, error))
    return StoreWriteError(
        f"STORE_WRITE_FAILED: {name} in {address}: {said(address, error)}. What was acknowledged before is intact. "
        f"When the database works again, `xnagent resume {name}` goes on."
    )


def read_fault(address: Address, error: Exception) -> StoreError:
    """The error for something that could not be read."""
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return damaged(address, said(address, error))
    if is_lost(error):
        return unreachable(address, error)
    return StoreError(f"STORE_READ_FAILED: {address}: {said(address, error)}. Check the database, then try again.")


def damaged(address: Address, why: str) -> StoreDamagedError:
    """The error for tables or rows that are not as they were written; they are never touched."""
    return StoreDamagedError(
        f"STORE_DAMAGED: {address}: {why}. Nothing was changed; restore the database from a backup, or name another "
        f"one with store.url."
    )


def said(address: Address, error: BaseException) -> str:
    """The error's own words, on one line, without the address's secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    return address.masked(text).rstrip(".")
