"""A raw server on the loopback: what a test wants on the wire, byte for byte."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

Handler = Callable[[socket.socket, threading.Event], None]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def receive(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the client went away")
    return data


def read_request(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += receive(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += receive(connection)
    return head + b"\r\n\r\n" + body


class RawServer:
    """Each connection reads one request, then does what the handler says."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[bytes] = []
        self.stopping = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1"

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                thread = threading.Thread(target=self.serve, args=(connection,), daemon=True)
                self.threads.append(thread)
                thread.start()

    def serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self.requests.append(read_request(connection))
            self.handler(connection, self.stopping)

    def stop(self) -> None:
        self.stopping.set()
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(5)


@pytest.fixture
def raw_server() -> Iterator[Callable[[Handler], RawServer]]:
    servers: list[RawServer] = []

    def start(handler: Handler) -> RawServer:
        servers.append(RawServer(handler))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def stream_server(raw_server: Callable[[Handler], RawServer]) -> Callable[..., RawServer]:
    """A server that sends the pieces as a chunked stream and ends it properly."""

    def start(*pieces: bytes, ends: bool = True, head: bytes = HEAD) -> RawServer:
        def handler(connection: socket.socket, stopping: threading.Event) -> None:
            connection.sendall(head)
            for piece in filter(None, pieces):  # an empty chunk would be the end
                connection.sendall(chunk(piece))
            if ends:
                connection.sendall(b"0\r\n\r\n")

        return raw_server(handler)

    return start


@pytest.fixture
def answer_server(raw_server: Callable[[Handler], RawServer]) -> Callable[..., RawServer]:
    """A server that answers with a status and a body."""

    def start(status: int, body: bytes, *, kind: str = "application/json", extra: str = "") -> RawServer:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"

        def handler(connection: socket.socket, stopping: threading.Event) -> None:
            connection.sendall(head.encode() + body)

        return raw_server(handler)

    return start
