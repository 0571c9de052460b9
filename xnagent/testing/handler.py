"""The HTTP side of a scripted server: whole answers, streams, and every way in which they can fail."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Protocol

from xnagent.testing.answer import Answer
from xnagent.testing.reading import Wire
from xnagent.testing.received import Received
from xnagent.testing.rendered import chunks, error_event, first_words, render, whole
from xnagent.testing.script import Fault, ReplySpec

HTML: Final = b"<!DOCTYPE html><html><body>Sign in</body></html>"
_EVENTS: Final = "text/event-stream; charset=utf-8"
_JSON: Final = "application/json"
_KEEPALIVE_SECONDS: Final = 0.05
_DATE: Final = re.compile(r"date([+-]\d+)")
_PATHS: Final[Mapping[str, Wire]] = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "messages",
}

_Connection = socket.socket | tuple[bytes, socket.socket]


class Owner(Protocol):
    """Who decides."""

    stopping: threading.Event

    def take(self, body: bytes, headers: Mapping[str, str], *, wire: Wire) -> tuple[Received, ReplySpec, Answer | None]:
        """Decide on one request."""
        ...

    def today(self) -> datetime:
        """The date for headers."""
        ...


class HttpServer(ThreadingHTTPServer):
    """Threads that end with the server."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], owner: Owner) -> None:
        """Port 0 takes a free one."""
        super().__init__(address, _Handler)
        self.owner = owner
        self._open: set[_Connection] = set()

    def process_request(self, request: _Connection, client_address: object) -> None:
        """Remember the connection."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: _Connection) -> None:
        """Forget it."""
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """End all that are open."""
        for connection in list(self._open):
            self.shutdown_request(connection)

    def handle_error(self, request: _Connection, client_address: object) -> None:
        """A client that went away is no fault of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HttpServer

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """`/v1/models`."""
        if self.path.partition("?")[0].endswith("/models"):
            body = {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "xnagent"}]}
            self._whole(200, json.dumps(body).encode())
        else:
            self._not_found()

    def do_POST(self) -> None:
        """`/v1/chat/completions`, `/v1/responses`, `/v1/messages`."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        path = self.path.partition("?")[0].rstrip("/")
        wire = next((wire for end, wire in _PATHS.items() if path.endswith(end)), None)
        if wire is None:
            self._not_found()
            return
        request, spec, answer = self.server.owner.take(body, dict(self.headers.items()), wire=wire)
        if spec.delay_seconds:
            self.server.owner.stopping.wait(spec.delay_seconds)
        if spec.fault is not None:
            self._fail(spec.fault, request, answer=answer)
        elif answer is not None and request.data.get("stream"):
            self._begin_stream("text/plain" if "text_type" in answer.quirks else _EVENTS)
            for part in _parts(answer):
                self._send(part)
            self.wfile.write(b"0\r\n\r\n")
        elif answer is not None:
            self._whole(200, whole(answer))

    def _not_found(self) -> None:
        self._whole(404, b'{"error":{"message":"no such path","type":"not_found_error"}}')

    def _whole(self, status: int, body: bytes, *, kind: str = _JSON, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, self._dated(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _dated(self, value: str) -> str:
        if (found := _DATE.fullmatch(value)) is None:
            return value
        moment = self.server.owner.today() + timedelta(seconds=int(found[1]))
        return format_datetime(moment, usegmt=True)

    def _begin_stream(self, kind: str = _EVENTS) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send(self, pieces: Iterable[bytes]) -> None:
        self.wfile.write(b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece))

    def _fail(self, fault: Fault, request: Received, *, answer: Answer | None) -> None:
        if fault.hang:
            self._hang(fault, request, answer=answer)
        elif fault.html:
            self._whole(fault.status or 200, HTML, kind="text/html", headers=fault.headers)
        elif fault.error_event is not None:
            self._begin_stream()
            self._send([*_beginning(fault, answer), error_event(request.wire, fault.error_event)])
            self.wfile.write(b"0\r\n\r\n")
        elif fault.needs_answer and answer is not None:
            self._cut(fault, answer, is_stream=bool(request.data.get("stream")))
        else:
            body = fault.body if isinstance(fault.body, str) else json.dumps(fault.body)
            status = fault.status or (200 if fault.content_type else 500)
            self._whole(status, body.encode(), kind=fault.content_type or _JSON, headers=fault.headers)

    def _cut(self, fault: Fault, answer: Answer, *, is_stream: bool) -> None:
        self.close_connection = True
        if fault.cut_share is not None and not is_stream:
            self._cut_whole(whole(answer), fault.cut_share)
            return
        rendering = render(answer)
        data = b"".join(rendering.all)
        count = fault.cut_after or 0
        if fault.cut_share is not None:
            count = int(sum(map(len, rendering.events)) * fault.cut_share)
        self._begin_stream()
        self._send([data[:count]])
        if fault.is_polite:
            self.wfile.write(b"0\r\n\r\n")

    def _cut_whole(self, body: bytes, share: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", _JSON)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: int(len(body) * share)])

    def _hang(self, fault: Fault, request: Received, *, answer: Answer | None) -> None:
        self.close_connection = True
        if fault.hang != "start":
            self._begin_stream()
            self._send(_beginning(fault, answer) or first_words(request.wire))
        stopping, waited = self.server.owner.stopping, 0.0
        while not stopping.wait(_KEEPALIVE_SECONDS):
            waited += _KEEPALIVE_SECONDS
            if fault.hang_seconds and waited >= fault.hang_seconds:
                return
            if fault.hang == "keepalive":
                self._send([b": keepalive\n\n"])


def _parts(answer: Answer) -> list[list[bytes]]:
    """What is written at once: everything, unless it is to arrive in pieces."""
    pieces = chunks(answer)
    return [[piece] for piece in pieces] if "split" in answer.quirks else [pieces]


def _beginning(fault: Fault, answer: Answer | None) -> list[bytes]:
    return render(answer).events[: fault.after_events] if answer is not None else []
