"""Connections that a server ends although it said that it keeps them."""

import socket
import threading

import pytest

from tests.models.conftest import HEAD, chunk, read_request
from tests.models.test_transport import BODY, END, PATIENT, piece, text_of
from xnagent.errors import ModelError
from xnagent.models import connections
from xnagent.models.transport import HttpTransport
from xnagent.models.wire_model import WireModel
from xnagent.models.wires import CHAT

pytestmark = pytest.mark.anyio


def answer(connection: socket.socket, text: str) -> None:
    connection.sendall(HEAD + chunk(piece(text) + END) + b"0\r\n\r\n")


def one_answer_each(*, after_seconds: float = 0.0):
    """Answers a connection's first request; its next one meets only the end, as with llama.cpp's server."""

    def handler(connection: socket.socket, stopping: threading.Event) -> None:
        answer(connection, "yes")
        read_request(connection)
        stopping.wait(after_seconds)

    return handler


def chat(url: str) -> WireModel:
    return WireModel(HttpTransport(url, timeouts=PATIENT), CHAT)


async def test_a_request_that_meets_the_end_of_a_kept_connection_goes_out_over_a_new_one(raw_server):
    server = raw_server(one_answer_each())
    model = chat(server.base_url)
    assert [text_of(await model.send(BODY)) for _ in range(3)] == ["yes"] * 3
    await model.aclose()
    assert len(server.requests) == 3


async def test_an_end_that_comes_late_may_follow_work_so_the_request_is_not_sent_again_unseen(raw_server, monkeypatch):
    monkeypatch.setattr(connections, "STALE_SECONDS", 0.05)
    server = raw_server(one_answer_each(after_seconds=0.3))
    model = chat(server.base_url)
    await model.send(BODY)
    with pytest.raises(ModelError) as caught:
        await model.send(BODY)
    await model.aclose()
    assert (caught.value.fault, len(server.requests)) == ("connection", 1)


async def test_a_new_connection_that_ends_at_once_is_a_fault(raw_server):
    server = raw_server(lambda *_: None)
    model = chat(server.base_url)
    with pytest.raises(ModelError) as caught:
        await model.send(BODY)
    await model.aclose()
    assert (caught.value.fault, len(server.requests)) == ("connection", 1)
