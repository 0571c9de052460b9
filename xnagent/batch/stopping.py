"""A request to stop, on its way from a signal to every session of this process."""

from __future__ import annotations

from typing import Literal

import anyio

from xnagent.app.running import Stop

Signal = Literal["SIGINT", "SIGTERM"]


class BatchStop:
    """Hands a request to stop on to every session that runs; no further job begins."""

    def __init__(self) -> None:
        self.signal: Signal | None = None
        """What asked for it; None: nobody did, or the batch did itself."""
        self.asked = anyio.Event()
        self.asked_again = anyio.Event()
        self._running: set[Stop] = set()

    def request(self, signal: Signal) -> None:
        """Ask to stop; the second time, at once."""
        self.signal = self.signal or signal
        self.end(signal)

    def end(self, signal: Signal = "SIGINT") -> None:
        """Stop, though nobody outside asked for it."""
        (self.asked_again if self.asked.is_set() else self.asked).set()
        for stop in self._running:
            stop.request(signal)

    def enter(self) -> Stop:
        """The stop of a session that begins."""
        stop = Stop()
        self._running.add(stop)
        if self.asked.is_set():
            stop.request(self.signal or "SIGINT")
        return stop

    def leave(self, stop: Stop) -> None:
        """The session ended."""
        self._running.discard(stop)
