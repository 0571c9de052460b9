"""The thread that alone writes to a session, many operations in one commit.

The loop's thread makes an `Operation` and waits for its `done`; until it is settled, it belongs to the writer. After
the first failure every later operation fails as well: the log has no gaps, and a session that cannot write must stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

import anyio

from xnagent.core.values import dataclass
from xnagent.errors import StoreError, XnagentError
from xnagent.store.place import Holding, Opened, Place, Work

MAX_BATCH_OPERATIONS: Final = 256
REST_SECONDS: Final = 1.0
"""After so long without anything to write, what needs no renewal is renewed once, to use less memory."""

Wake = Callable[[Callable[[], None]], object]
"""Runs a function in the loop's thread, soon, from any thread."""


@dataclass(slots=True, kw_only=True, eq=False)
class Operation:
    """Something to do for the writer; no work means: stop."""

    work: Work | None = None
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
    """Owns the right to write to a session."""

    def __init__(self, place: Place, *, wake: Wake, now: str) -> None:
        self._place = place
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
        """Take the session over in the writer's thread."""
        ready = Operation()
        # A daemon, so that a process whose loop died can end: to the store it is the same as a kill.
        self._thread = Thread(target=self._run, args=(ready,), name=f"xnagent-{self._place.name}", daemon=True)
        self._thread.start()
        with anyio.CancelScope(shield=True):
            await ready.done.wait()
        ready.check()
        if self._opened is None:
            raise StoreError(f"STORE_CLOSED: {self._place} was closed while it was opened.")
        return self._opened

    def submit(self, work: Work | None) -> Operation:
        """Queue something, or with None the end; operations are done in the order of the calls."""
        operation = Operation(work=work)
        self._queue.put(operation)
        return operation

    def check(self) -> None:
        """Raise why nothing more can be written, if it is so."""
        if self._is_closed:
            raise StoreError(f"STORE_CLOSED: {self._place} was closed; open it again to write to it.")
        if (fault := self.fault) is not None:
            raise type(fault)(*fault.args) from fault

    async def stop(self) -> None:
        """Do what is queued, then give the session up; a second time does nothing."""
        is_first, self._is_closed = not self._is_closed, True
        if is_first and self._thread is not None and self._thread.is_alive():
            await self.submit(None).done.wait()

    def _run(self, ready: Operation) -> None:
        # Errors stand until things went well: nobody waits for ever, whatever ends this thread.
        ready.error = self.fault = _died(self._place)
        try:
            self._opened = self._place.take_over(now=self._now)
            ready.error = self.fault = None
        except XnagentError as error:
            ready.error = error
        finally:
            self._settle([ready])
        if self._opened is not None:
            self._serve(self._opened.holding)

    def _serve(self, holding: Holding) -> None:
        stops: list[Operation] = []
        try:
            while not stops:
                batch = self._next_batch(holding)
                stops = [operation for operation in batch if operation.work is None]
                self._write(batch[: len(batch) - len(stops)], holding)
        finally:
            holding.close(is_sound=self.fault is None)
            self._refuse(_left(self._queue))
            self._settle(stops)

    def _next_batch(self, holding: Holding) -> list[Operation]:
        """What is queued; while nothing is, the holding is renewed: once, or as often as it is due."""
        first = _next(self._queue, holding.renew_seconds or REST_SECONDS)
        while first is None:
            self.fault = self.fault or _renewed(holding)
            first = _next(self._queue, None if self.fault else holding.renew_seconds)
        return [first, *_left(self._queue, MAX_BATCH_OPERATIONS - 1)]

    def _write(self, batch: Sequence[Operation], holding: Holding) -> None:
        written = 0
        fault: XnagentError | None = _died(self._place)
        try:
            written, fault = self._commit(batch, holding) if batch and self.fault is None else (0, None)
        except XnagentError as error:
            fault = error
        finally:
            self.fault = fault or self.fault
            self._settle(batch[:written])
            self._refuse(batch[written:])

    def _commit(self, batch: Sequence[Operation], holding: Holding) -> tuple[int, XnagentError | None]:
        written = holding.write([operation.work for operation in batch if operation.work is not None])
        self.commits += 1
        return written

    def _refuse(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            operation.error = self.fault or _died(self._place)
        self._settle(operations)

    def _settle(self, operations: Sequence[Operation]) -> None:
        def settle() -> None:
            for operation in operations:
                operation.settle()

        # A loop that has ended has nobody left who waits.
        with suppress(RuntimeError):
            self._wake(settle)


def _renewed(holding: Holding) -> XnagentError | None:
    """Why it is not held any more, if it is so."""
    try:
        holding.renew()
    except XnagentError as error:
        return error
    return None


def _died(place: Place) -> StoreError:
    return StoreError(f"STORE_STOPPED: the thread that writes {place} ended; `xnagent resume {place.name}` goes on.")


def _next(queue: SimpleQueue[Operation], seconds: float | None) -> Operation | None:
    try:
        return queue.get(timeout=seconds)
    except Empty:
        return None


def _left(queue: SimpleQueue[Operation], most: int | None = None) -> list[Operation]:
    left: list[Operation] = []
    with suppress(Empty):
        while most is None or len(left) < most:
            left.append(queue.get_nowait())
    return left
