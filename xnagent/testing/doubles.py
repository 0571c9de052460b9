"""Small stand-ins for the ports, for tests of what uses them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio.lowlevel

from xnagent.core.ids import Ticket
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.errors import ModelError
from xnagent.models.chat import ChatEncoder
from xnagent.ports import Body, Reply

EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)


class FakeClock:
    """Time that passes only when somebody sleeps, at once. Implements `ports.Clock`."""

    def __init__(self, start: datetime = EPOCH) -> None:
        """`start` has a time zone."""
        self._start = start
        self._elapsed_seconds = 0.0
        self.sleeps: list[float] = []
        """All waits asked for, in order."""

    def now(self) -> str:
        """UTC as ISO 8601 with milliseconds and `Z`."""
        moment = (self._start + timedelta(seconds=self._elapsed_seconds)).astimezone(UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self._elapsed_seconds

    async def sleep(self, seconds: float) -> None:
        """Advance, and let others run."""
        self.sleeps.append(seconds)
        self.advance(seconds)
        await anyio.lowlevel.checkpoint()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._elapsed_seconds += max(0.0, seconds)


class MemoryArtifacts:
    """Content by its hash, in memory. Implements `ports.Artifacts`."""

    def __init__(self) -> None:
        self._content: dict[Ticket, bytes] = {}

    def put(self, data: bytes, *, is_verbatim: bool = False) -> Ticket:
        """Store it."""
        ticket = Ticket(f"artifact:{hashlib.sha256(data).hexdigest()[:16]}")
        self._content[ticket] = data
        return ticket

    async def get(self, ticket: Ticket) -> bytes | None:
        """The content, if there is any."""
        await anyio.lowlevel.checkpoint()
        return self._content.get(ticket)


class ListModel:
    """Gives the replies in order, errors among them; keeps the bodies. Implements `ports.Model`."""

    def __init__(self, replies: Iterable[Reply | ModelError]) -> None:
        """A request beyond the last reply is an AssertionError."""
        self._replies = list(replies)
        self._encoder = ChatEncoder()
        self.bodies: list[Body] = []

    def encode(self, manifest: ManifestRecorded, spine: Spine) -> Body:
        """As the chat wire does."""
        return self._encoder.encode(manifest, spine)

    async def send(self, body: Body) -> Reply:
        """The next reply."""
        await anyio.lowlevel.checkpoint()
        self.bodies.append(body)
        if not self._replies:
            raise AssertionError(f"request {len(self.bodies)} was not expected")
        reply = self._replies.pop(0)
        if isinstance(reply, ModelError):
            raise reply
        return reply

    async def aclose(self) -> None:
        """Nothing to close."""

    def check(self) -> None:
        """Raise AssertionError if replies are left."""
        if self._replies:
            raise AssertionError(f"{len(self._replies)} replies were not asked for")
