"""The thread that alone writes to a session's file and checkpoints it, many operations in one commit.

The loop's thread makes an `Operation` and waits for its `done`; until it is settled, it belongs to the writer. After
the first failure every later operation fails as well: the log has no gaps, and a session that cannot write must stop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

import anyio

from xnagent.core.events import Stored
from xnagent.core.state import SessionState
from xnagent.errors import StoreError, XnagentError
from xnagent.store.artifacts import insert_artifact
from xnagent.store.codec import pack
from xnagent.store.faults import WRITE_FAULTS, write_fault
from xnagent.store.opening import Opened, check_epoch, open_for_writing
from xnagent.store.projections import project

MAX_BATCH_OPERATIONS: Final = 256

Wake = Callable[[Callable[[], None]], object]
"""Runs a function in the loop's thread, soon, from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Events that are committed together."""

    events: tuple[tuple[Stored, bytes], ...]
    """Each with its JSON."""
    state: SessionState
    """The log folded up to the last of them."""
    last_seq: int
    """Place of the last of them, or of the last event before."""
    is_durable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Content to store."""

    sha: str
    data: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Operation:
    """Something to do for the writer; no work means: stop."""

    work: Append | Put | None = None
    error: XnagentError | None = None
    is_settled: bool = False
    """Set in the loop's thread only, so that nothing changes there between two awaits."""
    done: anyio.Event = field(default_factory=anyio.Event)

    def settle(self) -> None:
        """Let those who wait go on."""
        self.is_settled = True
        self.done.set()

    def check(self) -> None:
        """Raise what the writer ran into."""
        if self.error is not None:
            raise type(self.error)(*self.error.args) from self.error


class Writer:
    """Owns the only writable connection of a session's file."""

    def __init__(self, path: Path, *, wake: Wake, now: str) -> None:
        self._path = path
        self._wake = wake
        self._now = now
        self._queue: SimpleQueue[Operation] = SimpleQueue()
        self._opened: Opened | None = None
        self._thread: Thread | None = None
        self._is_closed = False
        self.fault: XnagentError | None = None
        """Why nothing more can be written."""
        self.commits = 0
        """How many transactions were committed."""

    async def start(self) -> Opened:
        """Open the file in the writer's thread."""
        ready = Operation()
        # A daemon, so that a process whose loop died can end: to the file it is the same as a kill.
        self._thread = Thread(target=self._run, args=(ready,), name=f"xnagent-{self._path.stem}", daemon=True)
        self._thread.start()
        with anyio.CancelScope(shield=True):
            await ready.done.wait()
        ready.check()
        if self._opened is None:
            raise StoreError(f"STORE_CLOSED: {self._path} was closed while it was opened.")
        return self._opened

    def submit(self, work: Append | Put | None) -> Operation:
        """Queue something, or with None the end; operations are done in the order of the calls."""
        operation = Operation(work=work)
        self._queue.put(operation)
        return operation

    def check(self) -> None:
        """Raise why nothing more can be written, if it is so."""
        if self._is_closed:
            raise StoreError(f"STORE_CLOSED: {self._path} was closed; open it again to write to it.")
        if (fault := self.fault) is not None:
            raise type(fault)(*fault.args) from fault

    async def stop(self) -> None:
        """Do what is queued, then close the file and give up the lock; a second time does nothing."""
        is_first, self._is_closed = not self._is_closed, True
        if is_first and self._thread is not None and self._thread.is_alive():
            await self.submit(None).done.wait()

    def _run(self, ready: Operation) -> None:
        # Errors stand until things went well: nobody waits for ever, whatever ends this thread.
        ready.error = self.fault = _died(self._path)
        try:
            self._opened = open_for_writing(self._path, now=self._now)
            ready.error = self.fault = None
        except XnagentError as error:
            ready.error = error
        finally:
            self._settle([ready])
        if self._opened is not None:
            self._serve(self._opened)

    def _serve(self, opened: Opened) -> None:
        stops: list[Operation] = []
        try:
            while not stops:
                batch = [self._queue.get(), *_left(self._queue, MAX_BATCH_OPERATIONS - 1)]
                stops = [operation for operation in batch if operation.work is None]
                self._write(batch[: len(batch) - len(stops)], opened)
        finally:
            _close(opened, is_sound=self.fault is None)
            self._refuse(_left(self._queue))
            self._settle(stops)

    def _write(self, batch: Sequence[Operation], opened: Opened) -> None:
        written = 0
        fault: XnagentError | None = _died(self._path)
        try:
            written = self._transact(batch, opened) if batch and self.fault is None else 0
            fault = None
        except XnagentError as error:
            fault = error
        except WRITE_FAULTS as error:
            fault = write_fault(self._path, error)
        finally:
            self.fault = fault or self.fault
            _roll_back(opened.connection)
            self._settle(batch[:written])
            self._refuse(batch[written:])

    def _transact(self, batch: Sequence[Operation], opened: Opened) -> int:
        connection = opened.connection
        is_durable = any(isinstance(each.work, Append) and each.work.is_durable for each in batch)
        connection.execute(f"PRAGMA synchronous={'FULL' if is_durable else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        check_epoch(connection, epoch=opened.epoch, path=self._path)
        written = self._apply_all(batch, opened)
        connection.execute("COMMIT")
        self.commits += 1
        return written

    def _apply_all(self, batch: Sequence[Operation], opened: Opened) -> int:
        """Apply the operations up to the first that fails; what it did is undone alone."""
        connection = opened.connection
        for number, operation in enumerate(batch):
            connection.execute("SAVEPOINT operation")
            try:
                apply(connection, operation.work, epoch=opened.epoch)
            except WRITE_FAULTS as error:
                self.fault = write_fault(self._path, error)
                connection.execute("ROLLBACK TO operation")
                connection.execute("RELEASE operation")
                return number
            connection.execute("RELEASE operation")
        return len(batch)

    def _refuse(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            operation.error = self.fault or _died(self._path)
        self._settle(operations)

    def _settle(self, operations: Sequence[Operation]) -> None:
        def settle() -> None:
            for operation in operations:
                operation.settle()

        # A loop that has ended has nobody left who waits.
        with suppress(RuntimeError):
            self._wake(settle)


def apply(connection: sqlite3.Connection, work: Append | Put | None, *, epoch: int) -> None:
    """Write one operation; the caller holds the transaction."""
    match work:
        case Append():
            for stored, content in work.events:
                _insert_event(connection, stored, content=content, epoch=epoch)
        case Put():
            insert_artifact(connection, sha=work.sha, data=work.data)
        case None:
            return


def _insert_event(connection: sqlite3.Connection, stored: Stored, *, content: bytes, epoch: int) -> None:
    encoding, payload = pack(content)
    agent = getattr(stored.event, "agent", None)
    row = (stored.seq, stored.at, epoch, stored.event.type, agent, encoding, payload)
    connection.execute("INSERT INTO events(seq, at, epoch, type, agent, enc, payload) VALUES(?, ?, ?, ?, ?, ?, ?)", row)
    project(connection, stored)


def _left(queue: SimpleQueue[Operation], most: int | None = None) -> list[Operation]:
    left: list[Operation] = []
    with suppress(Empty):
        while most is None or len(left) < most:
            left.append(queue.get_nowait())
    return left


def _died(path: Path) -> StoreError:
    return StoreError(f"STORE_STOPPED: the thread that writes {path} ended; `xnagent resume {path.stem}` goes on.")


def _roll_back(connection: sqlite3.Connection) -> None:
    # What failed may have rolled back already; closing the connection does it otherwise.
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _close(opened: Opened, *, is_sound: bool) -> None:
    connection = opened.connection
    # A reader in the way or a full disk: the -wal stays and the next opener uses it.
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout=0")
        if is_sound:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    opened.lock.release()
