"""Connections without TLS: which are used again, and which must not be."""

import socket
import threading
from collections.abc import Callable

import anyio
import httpx
import pytest

from tests.models.conftest import chunk, read_request
from xnagent.models import plain
from xnagent.models.plain import PlainTransport

pytestmark = pytest.mark.anyio

FIXED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"o") + chunk(b"k") + b"0\r\n\r\n"
TIMEOUTS = {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": None}


def answering(*answers: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """One connection that answers one request after the other; then it is closed."""

    def handler(connection: socket.socket, stopping: threading.Event) -> None:
        for number, answer in enumerate(answers):
            if number:
                read_request(connection)
            connection.sendall(answer)

    return handler


class Asking:
    """Asks over one transport and counts the connections."""

    def __init__(self, server) -> None:
        self.server = server
        self.transport = PlainTransport()

    async def ask(self, content: bytes = b"{}") -> str:
        request = httpx.Request("POST", self.server.base_url, content=content, extensions={"timeout": TIMEOUTS})
        response = await self.transport.handle_async_request(request)
        try:
            return b"".join([piece async for piece in response.stream]).decode()
        finally:
            await response.aclose()


@pytest.mark.parametrize("answer", [FIXED, CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + FIXED])
async def test_a_connection_is_used_again_when_its_answer_was_read_to_the_end(raw_server, answer: bytes):
    server = raw_server(answering(answer, answer, answer))
    asking = Asking(server)
    assert [await asking.ask() for _ in range(3)] == ["ok"] * 3
    assert len(server.requests) == 1, "only the first request of a connection is counted there"
    await asking.transport.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        FIXED,
        FIXED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        FIXED + b"HTTP/1.1 200 OK\r\n",
        FIXED.replace(b"1.1", b"1.0"),
        b"HTTP/1.1 200 OK\r\n\r\nok",
    ],
)
async def test_a_connection_that_its_server_closed_is_not_sent_into(raw_server, answer: bytes):
    server = raw_server(answering(answer))
    asking = Asking(server)
    for _ in range(3):
        assert await asking.ask() == "ok"
        await anyio.sleep(0.05)
    assert len(server.requests) == 3
    await asking.transport.aclose()


async def test_an_answer_that_is_left_in_the_middle_closes_its_connection(raw_server):
    server = raw_server(answering(FIXED.replace(b": 2", b": 4"), FIXED))
    asking = Asking(server)
    request = httpx.Request("POST", server.base_url, content=b"", extensions={"timeout": TIMEOUTS})
    response = await asking.transport.handle_async_request(request)
    await response.aclose()
    await response.aclose()
    server.handler = answering(FIXED)
    assert await asking.ask() == "ok"
    assert len(server.requests) == 2
    await asking.transport.aclose()


async def test_what_was_idle_for_long_is_not_used_again(raw_server, monkeypatch):
    server = raw_server(answering(FIXED, FIXED))
    asking = Asking(server)
    assert await asking.ask() == "ok"
    monkeypatch.setattr(plain, "KEPT_SECONDS", 0.0)
    assert await asking.ask() == "ok"
    assert len(server.requests) == 2
    await asking.transport.aclose()


async def test_a_long_body_arrives_whole(raw_server):
    server = raw_server(answering(FIXED))
    body = bytes(range(256)) * 20_000
    asking = Asking(server)
    assert await asking.ask(body) == "ok"
    await asking.transport.aclose()
    assert server.requests[0].endswith(b"\r\n\r\n" + body)


async def test_half_a_line_in_a_header_is_refused(raw_server):
    request = httpx.Request(
        "POST", raw_server(answering(FIXED)).base_url, headers={"x": "a\r\nb: c"}, extensions={"timeout": TIMEOUTS}
    )
    with pytest.raises(httpx.LocalProtocolError):
        await PlainTransport().handle_async_request(request)
