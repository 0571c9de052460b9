"""A Chat Completions server on the loopback whose model is a script: for tests, the demo and a shell.

    python -m xnagent.testing.server SCRIPT.toml --port 8080

It checks what it receives (pairs of calls and results, byte-exact prefixes), simulates a prefix cache, and fails on
requests that the script did not expect and on rules that were never used.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

from xnagent.testing.cache import Books, CacheRules
from xnagent.testing.mind import Brain, Mind
from xnagent.testing.received import Received
from xnagent.testing.rendered import Answer, event, stream, whole
from xnagent.testing.script import Fault, ReplySpec, Script, load_script, parse_script

HTML: Final = b"<!DOCTYPE html><html><body>Sign in</body></html>"
_EVENTS: Final = "text/event-stream; charset=utf-8"
_JSON: Final = "application/json"
_KEEPALIVE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as it was answered."""

    request: Received
    headers: Mapping[str, str]
    spec: ReplySpec
    is_whole: bool
    """It got a whole answer."""


class ScriptedServer:
    """Starts on entering, stops on leaving; `check()` says what went wrong."""

    def __init__(
        self,
        script: Script | Mapping[str, Any] | str | Path | None = None,
        *,
        brain: Brain | None = None,
        cache: CacheRules | None = None,
        strict: bool = True,
        require_reasoning: bool = False,
        port: int = 0,
    ) -> None:
        """`strict`: a request that neither extends its predecessor nor is a declared rebase is a problem."""
        self._mind = Mind(
            _as_script(script),
            brain=brain,
            rules=cache or CacheRules(),
            strict=strict,
            require_reasoning=require_reasoning,
        )
        self._lock = threading.Lock()
        self.exchanges: list[Exchange] = []
        self.stopping = threading.Event()
        self._http = _Http(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.close_connections()
        self._http.server_close()
        self._thread.join(timeout=5)

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def problems(self) -> list[str]:
        """What was wrong with requests so far."""
        return self._mind.problems

    @property
    def books(self) -> Books:
        """Totals of the whole answers, each counted once."""
        return self._mind.books

    @property
    def bodies(self) -> list[bytes]:
        """All bodies received, in order."""
        return [exchange.request.body for exchange in self.exchanges]

    def count(self, what: str) -> int:
        """`extensions`, `rebases`, `breaks` or `resends` so far."""
        return self._mind.counts[what]

    def check(self, *, leftovers: bool = True) -> None:
        """Raise AssertionError with everything that was wrong: problems, and rules that were not used."""
        found = [*self.problems, *(self._mind.leftovers() if leftovers else ())]
        if found:
            raise AssertionError("\n".join(["the scripted server saw problems:", *found]))

    def take(self, body: bytes, headers: Mapping[str, str]) -> tuple[Received, ReplySpec, Answer | None]:
        """Decide on one request."""
        request = Received(body)
        with self._lock:
            try:
                spec, answer = self._mind.answer(request)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                spec, answer = self._mind.refuse(f"the request cannot be read: {type(error).__name__}: {error}"), None
            is_whole = answer is not None and spec.fault is None
            self.exchanges.append(Exchange(request=request, headers=headers, spec=spec, is_whole=is_whole))
        return request, spec, answer


def _as_script(script: Script | Mapping[str, Any] | str | Path | None) -> Script:
    if script is None or isinstance(script, Script):
        return script or Script()
    return parse_script(script) if isinstance(script, Mapping) else load_script(script)


_Connection = socket.socket | tuple[bytes, socket.socket]


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], owner: ScriptedServer) -> None:
        super().__init__(address, _Handler)
        self.owner = owner
        self._open: set[_Connection] = set()

    def process_request(self, request: _Connection, client_address: object) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: _Connection) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        for connection in list(self._open):
            self.shutdown_request(connection)

    def handle_error(self, request: _Connection, client_address: object) -> None:
        """A client that went away is no fault of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

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
        """`/v1/chat/completions`."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        if not self.path.partition("?")[0].endswith("/chat/completions"):
            self._not_found()
            return
        request, spec, answer = self.server.owner.take(body, dict(self.headers.items()))
        if spec.delay_seconds:
            self.server.owner.stopping.wait(spec.delay_seconds)
        if spec.fault is not None:
            self._fail(spec.fault, answer)
        elif answer is not None and request.data.get("stream"):
            self._begin_stream()
            self._send(*stream(answer))
            self.wfile.write(b"0\r\n\r\n")
        elif answer is not None:
            self._whole(200, whole(answer))

    def _not_found(self) -> None:
        self._whole(404, b'{"error":{"message":"no such path","type":"not_found_error"}}')

    def _whole(self, status: int, body: bytes, *, kind: str = _JSON, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", _EVENTS)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send(self, *pieces: bytes) -> None:
        self.wfile.write(b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces))

    def _fail(self, fault: Fault, answer: Answer | None) -> None:
        if fault.hang:
            self._hang(fault.hang)
        elif fault.html:
            self._whole(200, HTML, kind="text/html")
        elif fault.error_event is not None:
            self._begin_stream()
            self._send(event({"error": fault.error_event}))
            self.wfile.write(b"0\r\n\r\n")
        elif fault.cut_after is not None and answer is not None:
            self._cut(b"".join(stream(answer))[: fault.cut_after])
        else:
            body = fault.body if isinstance(fault.body, str) else json.dumps(fault.body)
            self._whole(fault.status or 500, body.encode(), headers=fault.headers)

    def _cut(self, part: bytes) -> None:
        self._begin_stream()
        if part:
            self._send(part)
        self.close_connection = True

    def _hang(self, how: str) -> None:
        stopping = self.server.owner.stopping
        self.close_connection = True
        if how != "start":
            self._begin_stream()
            self._send(event({"choices": [{"index": 0, "delta": {"content": "Wait"}, "finish_reason": None}]}))
        while not stopping.wait(_KEEPALIVE_SECONDS):
            if how == "keepalive":
                self._send(b": keepalive\n\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a script until interrupted; the address is the first line of stdout, problems go to stderr."""
    parser = argparse.ArgumentParser(prog="xnagent.testing.server", description="Serve a scripted model.")
    parser.add_argument("script", type=Path, help="a TOML or JSON script")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args(arguments)
    with ScriptedServer(options.script, port=options.port) as server:
        sys.stdout.write(server.base_url + "\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stderr.write("".join(problem + "\n" for problem in server.problems))
    return 1 if server.problems else 0


if __name__ == "__main__":
    sys.exit(main())
