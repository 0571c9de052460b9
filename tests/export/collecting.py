"""A collector of OpenTelemetry spans over real loopback HTTP, and ways to be a bad one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collected:
    """What came in."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []
        self.released = threading.Event()
        if not hangs:
            self.released.set()

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    @property
    def resource(self) -> dict[str, Any]:
        return attributes(self.requests[0].resource_spans[0].resource.attributes)


def attributes(pairs: Any) -> dict[str, Any]:
    found = {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
    return {
        name: [one.string_value for one in value.values] if hasattr(value, "values") else value
        for name, value in found.items()
    }


@contextmanager
def collector(*, hangs: bool = False) -> Iterator[tuple[str, Collected]]:
    """Its address, and what it collected; one that hangs takes requests and never answers."""
    collected = Collected(hangs=hangs)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collected.paths.append(self.path)
            collected.requests.append(ExportTraceServiceRequest.FromString(body))
            collected.released.wait(30)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", collected
    finally:
        collected.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
