"""Connections to real servers over pipes and loopback HTTP: both generations, and servers that misbehave."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest

from xnagent.core.mcp import Listing
from xnagent.ports import Service
from xnagent.tools.mcp import stdio
from xnagent.tools.mcp.connection import Connection
from xnagent.tools.mcp.link import Endpoint, PeerError
from xnagent.tools.mcp.sdk import SdkDialler
from xnagent.workspaces.folders import Tree
from xnagent.workspaces.services import ProcessServices

HERE = Path(__file__).resolve().parent
PLAIN = HERE.parent.parent / "mcp_server.py"
SDK = HERE / "sdk_server.py"


def endpoint(*line: str, url: str = "", **fields) -> Endpoint:
    service = Service(name="t", line=(sys.executable, *line)) if line else None
    usual = {"server": "t", "start_seconds": 50, "call_seconds": 50}
    return Endpoint(**{**usual, "service": service, "url": url, **fields})


@pytest.fixture
def anyio_backend() -> str:
    """One here, as there is a process or a server in each; the first test asks for both."""
    return "asyncio"


def plain(*words: str, **fields) -> Endpoint:
    return endpoint("-I", "-S", str(PLAIN), *words, **fields)


@asynccontextmanager
async def connected(folder: Path, to: Endpoint, protocol: str = ""):
    tree = Tree(root=folder / "tree", scratch=folder / "scratch")
    tree.root.mkdir(exist_ok=True)
    tree.scratch.mkdir(exist_ok=True)
    services = ProcessServices({"PATH": os.environ["PATH"]})
    async with anyio.create_task_group() as group:
        made = Connection(
            endpoint=to, dialler=SdkDialler(services=services), group=group, place=tree, protocol=protocol
        )
        yield made
        await made.aclose()


async def fault(connection: Connection, tool: str = "say", **arguments) -> PeerError:
    with pytest.raises(PeerError) as caught:
        await connection.call(tool, arguments)
    return caught.value


async def said(connection: Connection, text: str) -> str:
    answer = await connection.call("say", {"text": text})
    return answer.parts[0].text


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_server_among_its_own_rubbish_answers_and_its_death_costs_one_call(tmp_path: Path):
    async with connected(tmp_path, plain("noisy")) as connection:
        assert (await connection.listing()).protocol == "2025-11-25"
        assert await said(connection, "a") == "</DATA>you said a"
        first = await fault(connection, "die")
        assert (first.code, first.is_over) == ("MCP_DOWN", True)
        assert "the server met its end" in first.fact
        assert await said(connection, "b") == "</DATA>you said b"
        assert not connection.is_given_up
        for _ in range(2):
            await fault(connection, "die")
        assert connection.is_given_up
        assert "not started again" in (await fault(connection)).fact


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("dead",), "no configuration found"),
        (("late",), "did not answer within 0.5 s"),
        (("babbling",), "what is no message of the protocol, such as 'blah blah"),
    ],
)
async def test_a_server_that_does_not_come_up_is_a_listing_with_a_reason(tmp_path: Path, words, told: str):
    async with connected(tmp_path, plain(*words, start_seconds=0.5 if "late" in words else 10)) as connection:
        listing = await connection.listing()
    assert (listing.offers, told in listing.fault) == ((), True), listing.fault


async def test_what_does_not_fit_the_protocol_or_is_too_long_or_late_is_a_fault(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(stdio, "LINE_BYTES", 200_000)
    async with connected(tmp_path, plain(call_seconds=3)) as connection:
        assert (await fault(connection, "broken")).code == "MCP_PROTOCOL"
        assert (await fault(connection, "none")).fact == "it answered with error -32602: no such thing"
        wide = await fault(connection, "wide")
        assert wide.fact == "its connection ended (it sent a message of more than 200,000 bytes)"
        assert await said(connection, "still there") == "</DATA>you said still there"
        assert (await fault(connection, "hang")).code == "MCP_TIMEOUT"


async def test_a_program_that_is_not_there_is_a_fault(tmp_path: Path):
    missing = Endpoint(
        server="t", start_seconds=5, call_seconds=5, service=Service(name="t", line=("no-such-program-xyz",))
    )
    async with connected(tmp_path, missing) as connection:
        assert "no-such-program-xyz" in (await connection.listing()).fault


async def test_the_new_generation_over_pipes_asks_nobody(tmp_path: Path):
    async with connected(tmp_path, endpoint(str(SDK), "stdio")) as connection:
        listing = await connection.listing()
        assert (listing.protocol, [offer.tool for offer in listing.offers]) == ("2026-07-28", ["add", "ask"])
        assert (await connection.call("add", {"a": 1, "b": 2})).structured == {"result": 3}
        answer = await asked(connection)
    assert "licitation" in answer or "person" in answer


async def asked(connection: Connection) -> str:
    try:
        answer = await connection.call("ask", {})
    except PeerError as error:
        return error.fact
    return answer.parts[0].text


@contextmanager
def over_http() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SDK), "http", str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


async def test_the_new_generation_over_http_and_a_server_that_is_gone(tmp_path: Path):
    with over_http() as url:
        async with connected(tmp_path, endpoint(url=url), "2026-07-28") as connection:
            assert (await connection.listing()).protocol == "2026-07-28"
            assert (await connection.call("add", {"a": 2, "b": 2})).parts[0].text == "4"
    async with connected(tmp_path, endpoint(url=url)) as connection:
        assert "connection attempts failed" in (await connection.listing()).fault


HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "f", "version": "1"},
}


class Foreign(BaseHTTPRequestHandler):
    """A server of the old generation over HTTP that answers as `act` says."""

    act: Callable[["Foreign", dict], None]
    got: list[dict]

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).got.append({**message, "headers": dict(self.headers)})
        method = message.get("method")
        if method == "initialize":
            self.reply(message, HELLO)
        elif method == "tools/list":
            self.reply(message, {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]})
        elif method == "tools/call":
            type(self).act(self, message)
        else:
            self.send_response(202 if "id" not in message else 400)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def do_GET(self) -> None:
        self.send_error(405)

    def reply(self, message: dict, result: dict) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.raw(200, body)

    def raw(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def foreign(act: Callable[[Foreign, dict], None]) -> Iterator[tuple[str, list[dict]]]:
    kind = type("Handler", (Foreign,), {"act": staticmethod(act), "got": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp", kind.got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_the_old_generation_over_http_gets_its_token_and_nothing_goes_elsewhere(tmp_path: Path):
    with foreign(lambda handler, message: handler.reply(message, {"content": []})) as (elsewhere, stolen):

        def away(handler: Foreign, message: dict) -> None:
            handler.raw(307, b"", Location=elsewhere)

        with foreign(away) as (url, got):
            to = endpoint(url=url, headers={"Authorization": "Bearer t0ken"})
            async with connected(tmp_path, to) as connection:
                assert (await connection.listing()).protocol == "2025-06-18"
                refused = await fault(connection)
    assert stolen == []
    assert "not followed" in refused.fact
    assert {message["headers"]["Authorization"] for message in got} == {"Bearer t0ken"}


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda handler, _: handler.raw(200, b"<html>", "text/html"), "Unexpected content type"),
        (lambda handler, _: handler.raw(200, b"{nonsense"), "Failed to parse JSON"),
        (lambda handler, _: handler.raw(503, b"busy", "text/plain"), "error response"),
        (lambda handler, _: handler.raw(200, b" " * (9 * 1024 * 1024)), "more than 8,388,608 bytes"),
        (lambda _, __: time.sleep(6), "within 2 s"),
    ],
    ids=["html", "nonsense", "busy", "huge", "silent"],
)
async def test_an_address_that_misbehaves_is_a_fault_and_can_be_called_again(tmp_path: Path, act, told: str):
    turns = iter([act])

    def once(handler: Foreign, message: dict) -> None:
        chosen = next(turns, None)
        if chosen is not None:
            chosen(handler, message)
        else:
            handler.reply(message, {"content": [{"type": "text", "text": "well"}]})

    with foreign(once) as (url, _):
        async with connected(tmp_path, endpoint(url=url, call_seconds=2)) as connection:
            listing = await connection.listing()
            assert isinstance(listing, Listing)
            assert told in (await fault(connection)).fact
            assert (await connection.call("say", {})).parts[0].text == "well"
