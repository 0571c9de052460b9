"""Spans to an OpenTelemetry collector while a session runs: from its log, in the background, off without an endpoint.

Nothing here can slow or fail a session: what a queue can't hold is dropped, a collector that is down or hangs costs one
warning, and the end waits for it a moment at most.
"""

from __future__ import annotations

import importlib
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from xnagent.batch.failure import message_of
from xnagent.cli.console import Console
from xnagent.core.events import Stored
from xnagent.core.masking import Mask
from xnagent.errors import Caught
from xnagent.export.otlp import masked
from xnagent.export.spans import Span
from xnagent.export.tracer import Tracer, spans_of
from xnagent.store.place import Place

COLLECTOR: Final = "xnagent.cli.collector"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"
CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
WITH_CONTENT: Final = frozenset({"true", "span_only", "span_and_event"})
MOST_WAITING: Final = 4_096
BATCH: Final = 256
PAUSE_SECONDS: Final = 0.5
FLUSH_SECONDS: Final = 2.0
SHORT_FLUSH_SECONDS: Final = 0.2
"""Where the last attempt failed, or has lasted that long already."""


class Sender(Protocol):
    """What takes spans away."""

    def send(self, spans: Iterable[Span]) -> bool:
        """Whether they arrived; may take its time."""

    def close(self) -> None:
        """Give up what is under way."""


class Collectors(Protocol):
    """What the module of OpenTelemetry offers."""

    def new_collector(self) -> Sender:
        """One by the environment. Raises ValueError."""


@dataclass(slots=True, kw_only=True)
class Trace:
    """Spans on their way out, in a thread of its own."""

    console: Console
    mask: Mask
    has_content: bool = False
    waiting: queue.Queue[Span | Place | None] = field(default_factory=lambda: queue.Queue(MOST_WAITING))
    """Spans, sessions whose whole log is to go out, and None at the end."""
    tracer: Tracer = field(default_factory=Tracer)
    lost: int = 0
    is_failing: bool = False
    has_warned: bool = False
    sending_since: float | None = None
    sender: Sender | None = None
    thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to send."""
        self.tracer.has_content = self.has_content
        self.thread = threading.Thread(target=self._run, name="xnagent-spans", daemon=True)
        self.thread.start()

    def seen(self, events: Iterable[Stored]) -> None:
        """Events that an earlier process told of."""
        for stored in events:
            self.tracer.take(stored)

    def watch(self, stored: Stored) -> None:
        """One event more."""
        for span in self.tracer.take(stored):
            self._put(span)

    def whole(self, place: Place) -> None:
        """A session that is over: all of its log."""
        self._put(place)

    def close(self) -> None:
        """Send what waits, but not for long; say so once if something was lost."""
        thread = self.thread
        if thread is None:
            return
        since = self.sending_since
        is_stuck = self.is_failing or (since is not None and time.monotonic() - since > FLUSH_SECONDS)
        seconds = SHORT_FLUSH_SECONDS if is_stuck else FLUSH_SECONDS
        self._put(None)
        thread.join(seconds)
        if thread.is_alive():
            self.warn("the collector does not answer; the rest of the spans is dropped")
            if self.sender is not None:
                self.sender.close()
        elif self.lost:
            self.warn(f"{self.lost:,} spans or sessions were dropped: the collector was too slow")

    def _put(self, one: Span | Place | None) -> None:
        try:
            self.waiting.put_nowait(one)
        except queue.Full:
            self.lost += 1

    def warn(self, what: str) -> None:
        """Tell of the first trouble."""
        if not self.has_warned:
            self.has_warned = True
            self.console.warn(
                f"xnagent: OTEL_FAILED: {what}; the work goes on, `xnagent export --format otel` has all spans"
            )

    def _run(self) -> None:
        with Caught(Exception) as caught:
            collectors = cast("Collectors", importlib.import_module(COLLECTOR))
            self.sender = collectors.new_collector()
            while self._turn(self.sender):
                pass
        match caught.error:
            case None:
                return
            case ModuleNotFoundError():
                self.warn("an OTLP endpoint is set, and the extra is missing: pip install 'xnagent[otel]'")
            case error:
                self.warn(message_of(error))

    def _turn(self, sender: Sender) -> bool:
        """Send what is there; False: it was the last."""
        batch, is_last = self._batch()
        self.sending_since = time.monotonic()
        self.is_failing = not sender.send(masked(span, self.mask) for span in batch)
        self.sending_since = None
        if self.is_failing:
            self.warn("the collector can't be reached or refuses spans")
        return not is_last

    def _batch(self) -> tuple[list[Span], bool]:
        batch: list[Span] = []
        one = self.waiting.get()
        while True:
            match one:
                case None:
                    return batch, True
                case Span():
                    batch.append(one)
                case place:
                    batch += self._of(place)
            if len(batch) >= BATCH:
                return batch, False
            try:
                one = self.waiting.get(timeout=PAUSE_SECONDS)
            except queue.Empty:
                return batch, False

    def _of(self, place: Place) -> list[Span]:
        with Caught(Exception) as caught:
            return list(spans_of(place.events(), has_content=self.has_content)) if place.exists() else []
        if caught.error is not None:
            self.warn(message_of(caught.error))
        return []


def new_trace(environ: Mapping[str, str], console: Console) -> Trace | None:
    """A trace that is on its way; None if the environment wants none."""
    endpoint = next((environ[name] for name in ENDPOINTS if environ.get(name, "").strip()), None)
    is_off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if endpoint is None or is_off or environ.get("OTEL_TRACES_EXPORTER", "").strip() == "none":
        return None
    protocol = next((environ[name] for name in PROTOCOLS if environ.get(name, "").strip()), PROTOCOL)
    has_content = environ.get(CONTENT, "").strip().lower() in WITH_CONTENT
    trace = Trace(console=console, mask=console.mask, has_content=has_content)
    if protocol.strip() != PROTOCOL:
        trace.warn(f"{protocol} is not spoken; set OTEL_EXPORTER_OTLP_PROTOCOL={PROTOCOL}")
        return None
    trace.start()
    return trace


@contextmanager
def traced(environ: Mapping[str, str], console: Console) -> Iterator[Trace | None]:
    """Sends spans inside the block, if the environment names an endpoint."""
    trace = new_trace(environ, console)
    try:
        yield trace
    finally:
        if trace is not None:
            trace.close()
