"""Who may write to a session in the database: an advisory lock, a lease that says until when, and the epoch.

The lock ends with the holder's connection. The lease is for a holder that is stalled, or whose machine is gone without
a word: once it has run out by the server's clock, another process ends that connection and takes over. A free lock with
a lease that was not given back was its holder's until it died, or lost its connection: commands of it may still run, so
whoever cannot end those waits until the lease has run out. The epoch, which each transaction looks at, is what keeps a
holder out that comes back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import psycopg

from xnagent.errors import StoreBusyError
from xnagent.store.holding import taken_over
from xnagent.store.lock import busy, can_be_followed, is_known_dead, signature, who_signed
from xnagent.store.postgres.connecting import Connection

KEY_BYTES: Final = 8
SETTLED_SECONDS: Final = 0.3
DEAD_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.03
LOCK_WAIT: Final = "SET lock_timeout TO '10s'"

LOCKED_KEYS: Final = """
SELECT (classid::bigint << 32) | objid::bigint, pid FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
"""Which 64-bit advisory locks are held in this database, and by which connection."""

END_HOLDERS: Final = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((classid::bigint << 32) | objid::bigint) = %s
"""

LEASE: Final = """
SELECT holder, expires > clock_timestamp(), extract(epoch FROM expires - clock_timestamp())::float8
FROM leases WHERE session = %s
"""

RENEW: Final = """
UPDATE leases SET expires = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE session = %(session)s AND epoch = %(epoch)s
"""

TAKE: Final = """
INSERT INTO leases(session, epoch, holder, backend, expires)
VALUES(%(session)s, %(epoch)s, %(holder)s, pg_backend_pid(), clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT(session) DO UPDATE SET epoch = excluded.epoch, holder = excluded.holder, backend = excluded.backend,
  expires = excluded.expires
"""

EPOCH: Final = "SELECT value::bigint FROM meta WHERE session = %s AND key = 'epoch'"
NEXT_EPOCH: Final = """
UPDATE meta SET value = (value::bigint + 1)::text WHERE session = %s AND key = 'epoch' RETURNING value::bigint
"""


def key_of(session: str) -> int:
    """The session's advisory lock: a signed 64-bit number."""
    return int.from_bytes(sha256(f"xnagent:{session}".encode()).digest()[:KEY_BYTES], "big", signed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a process claims: a session, for so long at a time."""

    session: str
    seconds: float
    home: str
    """Where the commands are that this process can end."""

    def take(self, connection: Connection, *, now: str) -> int:
        """Become the session's writer; the new epoch. Raises StoreBusyError, which names who is or just was."""
        self.lock(connection)
        holder, is_fresh, seconds = self._lease(connection)
        if is_fresh and not can_be_followed(holder, home=self.home):
            connection.execute("SELECT pg_advisory_unlock(%s)", (key_of(self.session),))
            raise self._left(holder, seconds)
        with connection.transaction():
            found = connection.execute(NEXT_EPOCH, (self.session,)).fetchone()
            epoch = 0 if found is None else int(found[0])
            holder = signature(now, home=self.home)
            values = {"session": self.session, "epoch": epoch, "holder": holder, "seconds": self.seconds}
            connection.execute(TAKE, values)
        return epoch

    def take_again(self, connection: Connection, *, epoch: int) -> None:
        """After a lost connection: hold the lock with the new one. Raises StoreFencedError if the session went on."""
        self.check(connection, epoch=epoch)
        self._end_holders(connection)

    def check(self, connection: Connection, *, epoch: int) -> None:
        """Raise StoreFencedError if another process has taken the session over."""
        found = connection.execute(EPOCH, (self.session,)).fetchone()
        newest = 0 if found is None else int(found[0])
        if newest != epoch:
            raise taken_over(self.session, newest=newest, epoch=epoch)

    def renew(self, connection: Connection, *, epoch: int) -> None:
        """Say that it is still held. Raises StoreFencedError if it is not."""
        values = {"session": self.session, "epoch": epoch, "seconds": self.seconds}
        if connection.execute(RENEW, values).rowcount == 0:
            self.check(connection, epoch=epoch)

    def lock(self, connection: Connection) -> None:
        """Hold the session's lock. Raises StoreBusyError, which names who does.

        The server needs a moment to see that a connection has ended, so one refusal proves nothing.
        """
        deadline = time.monotonic() + SETTLED_SECONDS
        while True:
            if connection.execute("SELECT pg_try_advisory_lock(%s)", (key_of(self.session),)).fetchone() == (True,):
                return
            holder, is_fresh, _ = self._lease(connection)
            if not is_fresh and holder:
                self._evict(connection, holder)
                return
            if time.monotonic() > deadline + (DEAD_SECONDS if is_known_dead(holder) else 0):
                raise busy(self.session, who_signed(holder))
            time.sleep(PAUSE_SECONDS)

    def _lease(self, connection: Connection) -> tuple[str, bool, float]:
        """Who signed it, whether it has not run out, and for how long; nobody, if it was given back."""
        return connection.execute(LEASE, (self.session,)).fetchone() or ("", False, 0.0)

    def _evict(self, connection: Connection, holder: str) -> None:
        try:
            self._end_holders(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._stuck(holder) from error

    def _end_holders(self, connection: Connection) -> None:
        """End the connection that holds the lock, wait until what it had begun is done or undone, and hold it."""
        connection.execute(END_HOLDERS, (key_of(self.session),))
        connection.execute(LOCK_WAIT)
        connection.execute("SELECT pg_advisory_lock(%s)", (key_of(self.session),))
        connection.execute("RESET lock_timeout")

    def _stuck(self, holder: str) -> StoreBusyError:
        return StoreBusyError(
            f"SESSION_BUSY: {self.session} was run by {who_signed(holder)}, which does not answer any more, and this "
            f"user may not end its connection to the database. End it (GRANT pg_signal_backend), then try again."
        )

    def _left(self, holder: str, seconds: float) -> StoreBusyError:
        return StoreBusyError(
            f"SESSION_LEFT: {self.session} was run by {who_signed(holder)}, which ended without a word or lost its "
            f"connection. Commands of it may still run where only it can end them; its lease ends in {seconds:.0f} s, "
            f"then another process may go on."
        )


def is_locked(rows: list[tuple[int, int]], session: str) -> bool:
    """Whether the session's lock is among those held (`LOCKED_KEYS`)."""
    return key_of(session) in {key for key, _ in rows}
