"""The session's log, opened for writing: `ports.Log` over any place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Protocol, Self, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from xnagent.core.events import Event, Stored
from xnagent.core.ids import AgentId, SessionId, Ticket
from xnagent.core.masking import Mask
from xnagent.core.state import SessionState
from xnagent.ports import Clock
from xnagent.store.place import Append, Opened, Place
from xnagent.store.tail import Tail
from xnagent.store.writer import Operation, Wake, Writer


class FollowedLog:
    """What a log says, to be read and waited for while it is written."""

    def __init__(self, *, tail: Tail, writer: Writer) -> None:
        self._tail = tail
        self._writer = writer

    @property
    def state(self) -> SessionState:
        """The log folded, up to the last committed append."""
        return self._tail.committed[0]

    @property
    def ahead(self) -> SessionState:
        """The log folded, with what was submitted and is not committed yet."""
        return self._tail.ahead

    @property
    def last_seq(self) -> int:
        """Place of the newest folded event; 0 if there is none."""
        return self._tail.committed[1]

    async def wait(self, *, after: int) -> int:
        """Wait until `last_seq` is greater than `after`; returns it. Raises StoreError once nothing more can come."""
        await anyio.lowlevel.checkpoint()
        while (last_seq := self.last_seq) <= after:
            self._writer.check()
            await self._tail.news()
        return last_seq


class PlacedLog(FollowedLog):
    """One session, held by this process until `aclose`.

    Belongs to the event loop that opened it. `state` follows the store: an event is in it once it is committed, never
    before, and in the order of the log. After a write that failed every later one fails with the same error.
    """

    def __init__(self, place: Place, *, writer: Writer, opened: Opened, clock: Clock, mask: Mask | None = None) -> None:
        self.place = place
        self.session = opened.session
        self.epoch = opened.epoch
        """How many times the session was opened for writing, this time included."""
        self._clock = clock
        tail = Tail(state=opened.state, last_seq=opened.last_seq, hashes=opened.hashes, mask=mask)
        super().__init__(tail=tail, writer=writer)

    @classmethod
    async def create_at(cls, place: Place, *, session: SessionId, clock: Clock, mask: Mask | None = None) -> Self:
        """Make a new session and open it; `mask` takes secrets out of what is stored."""
        await anyio.to_thread.run_sync(partial(place.create, session, now=clock.now()))
        return await cls.open_at(place, clock=clock, mask=mask)

    @classmethod
    async def open_at(cls, place: Place, *, clock: Clock, mask: Mask | None = None) -> Self:
        """Take a session over. Raises StoreBusyError if another process runs it, and as the place deserves."""
        writer = Writer(place, wake=_wake(), now=clock.now())
        return cls(place, writer=writer, opened=await writer.start(), clock=clock, mask=mask)

    async def aclose(self) -> None:
        """Commit what was submitted, close the store and let others have the session."""
        with anyio.CancelScope(shield=True):
            await self._writer.stop()
        self._tail.ring()

    async def append(self, *events: Event, durable: bool = True) -> tuple[Stored, ...]:
        """Commit the events in one transaction, fold them, and return them with their places.

        Once submitted it is not cancelled: a commit takes milliseconds, and its fate is known. An event that does not
        fit the state raises StoreWriteError before anything is written.
        """
        return await self.submit(*events, durable=durable)

    def submit(self, *events: Event, durable: bool = True) -> Awaitable[tuple[Stored, ...]]:
        """As `append`, up to where it has to wait; the rest is awaited."""
        self._writer.check()
        work = self._tail.appended(events, at=self._clock.now(), is_durable=durable)
        operation = self._writer.submit(work)
        self._tail.add(operation)
        return _committed(operation, work, tail=self._tail)

    def put(self, data: bytes, *, is_verbatim: bool = False) -> Ticket:
        """Queue the content, masked unless it is verbatim, and return its ticket."""
        self._writer.check()
        ticket, work = self._tail.new_content(data, is_verbatim=is_verbatim)
        if work is not None:
            self._tail.add(self._writer.submit(work))
        return ticket

    async def get(self, ticket: Ticket) -> bytes | None:
        """The content, also if it was put a moment ago; None if there is none."""
        if (data := self._tail.find(ticket)) is not None:
            await anyio.lowlevel.checkpoint()
            return data
        return await anyio.to_thread.run_sync(self.place.artifact, ticket)

    async def history(self, agent: AgentId) -> tuple[Stored, ...]:
        """The ReplyReceived and ToolFinished events of an agent, in order."""
        return await anyio.to_thread.run_sync(self.place.history, agent)


async def _committed(operation: Operation, work: Append, *, tail: Tail) -> tuple[Stored, ...]:
    with anyio.CancelScope(shield=True):
        await operation.done.wait()
    tail.ring()
    operation.check()
    return tuple(stored for stored, _ in work.events)


class _TrioToken(Protocol):
    def run_sync_soon(self, function: object, /) -> object: ...


def _wake() -> Wake:
    token = anyio.lowlevel.current_token().native_token
    if isinstance(token, asyncio.AbstractEventLoop):
        return token.call_soon_threadsafe
    return cast("_TrioToken", token).run_sync_soon
