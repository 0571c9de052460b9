"""One connection without TLS or proxy, behind httpx's transport interface.

httpx's own transport takes some five times the time for the same exchange; with hundreds of agents in one process that
was most of a step (`benchmarks/many.py`). Models on the same machine or network are asked without TLS; for all others
httpx's own transport stands.
"""

from __future__ import annotations

import select
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from socket import socket
from typing import Final

import anyio
import httpx
from anyio.abc import SocketAttribute, SocketStream

from xnagent.models.http11 import AnswerError, AnswerReader, Head

KEPT_SECONDS: Final = 5.0
"""How long a connection that nobody used is used again; servers close what is idle for longer."""
MOST_BYTES: Final = 1 << 16
"""How much is read at once; a longer body is sent after the head, not copied behind it."""
HTTP_PORT: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connection:
    """To the one address."""

    stream: SocketStream
    socket: socket

    def has_news(self) -> bool:
        """Whether something came, or the other side has closed it: nothing may be sent on it then."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    async def aclose(self) -> None:
        """Close it, cancelled or not."""
        with anyio.CancelScope(shield=True):
            await self.stream.aclose()


class PlainTransport(httpx.AsyncBaseTransport):
    """For one exchange at a time with one address. A request is sent at most once."""

    def __init__(self) -> None:
        self._free: _Connection | None = None
        self._free_since = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Returns when the head of the answer is there."""
        timeouts = request.extensions["timeout"]
        head, body = _head_of(request), b"".join([part async for part in _stream_of(request)])
        connection = await self._connected(request.url, timeouts["connect"])
        answer = _Answer(connection, self._take_back, idle_seconds=timeouts["read"])
        try:
            await answer.ask(head, body)
        except BaseException:
            await connection.aclose()
            raise
        return httpx.Response(answer.head.status, headers=list(answer.head.headers), stream=answer)

    async def aclose(self) -> None:
        """Close the connection that nobody uses."""
        connection, self._free = self._free, None
        if connection is not None:
            await connection.aclose()

    def _take_back(self, connection: _Connection) -> None:
        self._free, self._free_since = connection, time.monotonic()

    async def _connected(self, url: httpx.URL, timeout_seconds: float | None) -> _Connection:
        connection, self._free = self._free, None
        if connection is not None:
            if time.monotonic() - self._free_since < KEPT_SECONDS and not connection.has_news():
                return connection
            await connection.aclose()
        with _translated(httpx.ConnectTimeout, httpx.ConnectError), anyio.fail_after(timeout_seconds):
            stream = await anyio.connect_tcp(url.raw_host.decode(), url.port or HTTP_PORT)
        return _Connection(stream=stream, socket=stream.extra_attributes[SocketAttribute.raw_socket]())


class _Answer(httpx.AsyncByteStream):
    """An answer and its body. No generator: one that is not read to its end would be left open."""

    def __init__(
        self, connection: _Connection, give_back: Callable[[_Connection], None], *, idle_seconds: float
    ) -> None:
        self._connection = connection
        self._give_back = give_back
        self._idle_seconds = idle_seconds
        self._reader = AnswerReader()
        self._piece = b""
        """Of the body: what came and was not handed on."""
        self._is_sent = False
        self._is_closed = False

    @property
    def head(self) -> Head:
        """What stands before the body; there is one when `ask` has returned."""
        if self._reader.head is None:
            raise httpx.StreamError("not asked yet")
        return self._reader.head

    async def ask(self, head: bytes, body: bytes) -> None:
        """Send the request and wait for the head of the answer."""
        with _translated(httpx.ReadTimeout, httpx.ReadError), self._limit() as scope:
            await self._send(head, body)
            while self._reader.head is None:
                scope.deadline = anyio.current_time() + self._idle_seconds
                await self._read()

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Itself, once."""
        return self

    async def __anext__(self) -> bytes:
        """The next piece, as it came."""
        while not self._piece:
            if self._reader.is_whole:
                raise StopAsyncIteration
            with _translated(httpx.ReadTimeout, httpx.ReadError), self._limit():
                await self._read()
        piece, self._piece = self._piece, b""
        return piece

    async def aclose(self) -> None:
        """Give the connection back, if nothing is missing of request and answer."""
        is_first, self._is_closed = not self._is_closed, True
        if is_first and self._is_sent and self._reader.can_follow:
            self._give_back(self._connection)
        elif is_first:
            await self._connection.aclose()

    def _limit(self) -> AbstractContextManager[anyio.CancelScope]:
        return anyio.fail_after(self._idle_seconds)

    async def _send(self, head: bytes, body: bytes) -> None:
        """What cannot be sent is no fault yet: a server that refuses a request may answer before it has read it."""
        try:
            for part in (head + body,) if len(body) <= MOST_BYTES else (head, body):
                await self._connection.stream.send(part)
            self._is_sent = True
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def _read(self) -> None:
        try:
            self._piece += self._reader.feed(await self._connection.stream.receive(MOST_BYTES))
        except anyio.EndOfStream:
            self._reader.close()


def _stream_of(request: httpx.Request) -> httpx.AsyncByteStream:
    if not isinstance(request.stream, httpx.AsyncByteStream):
        raise httpx.StreamError("the body is no asynchronous stream")
    return request.stream


def _head_of(request: httpx.Request) -> bytes:
    fields = [b"%s: %s" % field for field in request.headers.raw]
    first = b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)
    if any(b"\r" in line or b"\n" in line for line in (first, *fields)):
        raise httpx.LocalProtocolError("a header holds the end of a line")
    return b"\r\n".join((first, *fields, b"\r\n"))


@contextmanager
def _translated(slow: type[httpx.TimeoutException], broken: type[httpx.NetworkError]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise slow(str(error)) from error
    except AnswerError as error:
        raise httpx.RemoteProtocolError(str(error)) from error
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        raise broken(str(error)) from error
