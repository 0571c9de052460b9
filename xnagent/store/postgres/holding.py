"""A session in the database, held for writing: many operations in one commit, each fenced by the epoch.

When the connection is lost, nobody knows whether the commit under way happened. So the writer connects again, holds
the session again, and stores what is missing: events know their places, content knows its hash, so what is there stays
single. What was committed without waiting for the disk is kept until a commit that waited (`_unsynced`), because a
server that crashed has forgotten it while this process has not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import psycopg
from psycopg.pq import TransactionStatus

from xnagent.errors import StoreError
from xnagent.store.holding import taken_over
from xnagent.store.place import Append, Put, Work, must_be_durable
from xnagent.store.postgres.address import Address
from xnagent.store.postgres.connecting import WRITE_FAULTS, Connection, connect, is_lost, is_transient, write_fault
from xnagent.store.postgres.lease import EPOCH, Claim
from xnagent.store.postgres.statements import Scope

SYNCED: Final = "SET LOCAL synchronous_commit TO on"
NOT_SYNCED: Final = "SET LOCAL synchronous_commit TO off"

UNSYNCED_BYTES: Final = 4 << 20
"""When so much is kept, the next commit waits for the disk."""
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0
RENEWALS_PER_LEASE: Final = 3


class PostgresHolding:
    """The only connection that writes to the session."""

    def __init__(
        self, connection: Connection, *, address: Address, claim: Claim, epoch: int, patience_seconds: float
    ) -> None:
        self.epoch = epoch
        self.renew_seconds: float | None = claim.seconds / RENEWALS_PER_LEASE
        self._connection = connection
        self._address = address
        self._claim = claim
        self._scope = Scope(session=claim.session, epoch=epoch)
        self._patience_seconds = patience_seconds
        self._unsynced: list[Work] = []
        self._renewed = time.monotonic()

    def write(self, batch: Sequence[Work]) -> tuple[int, StoreError | None]:
        """One transaction, which waits for the disk or not; after a lost connection, what of it is missing."""
        try:
            return self._write(batch)
        except WRITE_FAULTS as error:
            raise self._fault(error) from error

    def _write(self, batch: Sequence[Work]) -> tuple[int, StoreError | None]:
        try:
            self._commit(batch)
        except WRITE_FAULTS as error:
            if not is_lost(error):
                return self._one_by_one(batch)
            self._store_again(batch, error)
        return len(batch), None

    def renew(self) -> None:
        """Prolong the lease, also while nothing is written."""
        try:
            self._claim.renew(self._connection, epoch=self.epoch)
            self._renewed = time.monotonic()
        except psycopg.Error as error:
            if not is_lost(error):
                raise self._fault(error) from error
            self._store_again((), error)

    def close(self, *, is_sound: bool) -> None:
        """Wait for the disk, give the lease back, disconnect: the lock goes with the connection."""
        with suppress(psycopg.Error, StoreError):
            if is_sound and self._unsynced:
                self._transact((), is_durable=True)
            if is_sound:
                values = (self._claim.session, self.epoch)
                self._connection.execute("DELETE FROM leases WHERE session = %s AND epoch = %s", values)
            self._connection.execute("SELECT pg_advisory_unlock_all()")
        self._connection.close()

    def _commit(self, batch: Sequence[Work]) -> None:
        is_durable = must_be_durable(batch) or sum(map(_size, self._unsynced)) > UNSYNCED_BYTES
        self._transact(batch, is_durable=is_durable)
        self._unsynced = [] if is_durable else [*self._unsynced, *batch]

    def _one_by_one(self, batch: Sequence[Work]) -> tuple[int, StoreError | None]:
        """After a refused transaction: commit up to the first operation that is refused alone."""
        _roll_back(self._connection)
        self._claim.check(self._connection, epoch=self.epoch)
        for number, work in enumerate(batch):
            try:
                self._commit([work])
            except WRITE_FAULTS as error:
                if not is_lost(error):
                    _roll_back(self._connection)
                    return number, self._fault(error)
                self._store_again([work], error)
        return len(batch), None

    def _store_again(self, batch: Sequence[Work], cause: Exception) -> None:
        """Over a new connection, store what is missing of what was not synced and of the batch."""
        deadline = time.monotonic() + self._patience_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                self._connect_again()
                self._transact([*self._unsynced, *batch], is_durable=True, is_again=True)
            except WRITE_FAULTS as error:
                if not is_transient(error):
                    raise self._fault(error) from error
                if time.monotonic() > deadline:
                    raise self._fault(_gone(cause, self._patience_seconds)) from error
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            else:
                self._unsynced = []
                return

    def _connect_again(self) -> None:
        self._connection.close()
        connection = connect(self._address)
        try:
            self._claim.take_again(connection, epoch=self.epoch)
        except (psycopg.Error, StoreError):
            connection.close()
            raise
        self._connection = connection

    def _transact(self, batch: Sequence[Work], *, is_durable: bool, is_again: bool = False) -> None:
        connection, session = self._connection, self._claim.session
        with connection.pipeline():
            connection.execute("BEGIN")
            connection.execute(SYNCED if is_durable else NOT_SYNCED)
            fence = connection.execute(f"{EPOCH} FOR UPDATE", (session,))
            if is_again:
                newest = connection.execute("SELECT coalesce(max(seq), 0) FROM events WHERE session = %s", (session,))
                batch = _missing(batch, after=int((newest.fetchone() or (0,))[0]))
            for work in batch:
                for statement, values in self._scope.statements(work):
                    connection.execute(statement, values)
            self._renew_in_passing()
            found = fence.fetchone()
        epoch = 0 if found is None else int(found[0])
        if epoch != self.epoch:
            _roll_back(self._connection)
            raise taken_over(session, newest=epoch, epoch=self.epoch)
        connection.execute("COMMIT")

    def _renew_in_passing(self) -> None:
        if self.renew_seconds is not None and time.monotonic() - self._renewed > self.renew_seconds:
            self._claim.renew(self._connection, epoch=self.epoch)
            self._renewed = time.monotonic()

    def _fault(self, error: BaseException) -> StoreError:
        return write_fault(self._address, error, name=self._claim.session)


def _roll_back(connection: Connection) -> None:
    if connection.info.transaction_status != TransactionStatus.IDLE:
        connection.execute("ROLLBACK")


def _gone(error: Exception, patience_seconds: float) -> ConnectionError:
    return ConnectionError(
        f"the connection was lost ({error}) and did not come back in {patience_seconds:g} seconds, so "
        f"whether the newest append was stored is not known yet"
    )


def _missing(batch: Sequence[Work], *, after: int) -> list[Work]:
    return [work for work in batch if isinstance(work, Put) or (work.events and work.last_seq > after)]


def _size(work: Work) -> int:
    return sum(len(content) for _, content in work.events) if isinstance(work, Append) else len(work.data)
