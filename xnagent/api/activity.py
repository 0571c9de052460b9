"""A run or a resume under way in this process: it ends in order, whatever becomes of its caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio

from xnagent.app.running import Stop
from xnagent.core.state import SessionState
from xnagent.errors import Caught
from xnagent.store.mailbox import Letter

CLOSING_SECONDS: Final = 30.0
"""What is not closed by then is cut short."""
POLL_SECONDS: Final = 0.1


class Work(Protocol):
    """A session to be taken to its end."""

    def __call__(self, *, stop: Stop) -> Awaitable[SessionState]:
        """Begin it."""


class Activity:
    """The work and the way to stop it. A cancelled caller asks it to stop, and waits until it has closed in order."""

    def __init__(self, work: Work) -> None:
        self.ended = anyio.Event()
        self.state: SessionState | None = None
        self._work = work
        self._stop = Stop()
        self._error: BaseException | None = None
        self._is_told = False

    async def carry_out(self) -> None:
        """Do it. What fails is kept for whoever asks."""
        kept = Caught(Exception)
        try:
            with anyio.CancelScope(shield=True), kept:
                self.state = await self._work(stop=self._stop)
        finally:
            self._error = kept.error
            self.ended.set()

    async def outlive(self, holder: Callable[[], object]) -> None:
        """Stop when nobody reads any more, and when the caller is cancelled; then see to it that the end comes."""
        try:
            while holder() is not None and not self.ended.is_set() and not self._stop.soft.is_set():
                with anyio.move_on_after(POLL_SECONDS):
                    await self.ended.wait()
        finally:
            self.stop()
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(CLOSING_SECONDS):
                    await self.ended.wait()
                self._stop.hard.set()

    def stop(self, reason: str = "") -> None:
        """Ask it to close in order. Asking again changes nothing."""
        if not self._stop.soft.is_set():
            self._stop.cancel(Letter(kind="cancel", text=reason))

    @property
    def has_error(self) -> bool:
        """Whether it failed otherwise than with an outcome."""
        return self._error is not None

    def raise_error(self) -> None:
        """Raise what it failed with, once."""
        if self._error is not None and not self._is_told:
            self._is_told = True
            raise self._error
