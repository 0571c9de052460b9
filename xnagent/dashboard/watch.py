"""One session that somebody looks at: followed once, drawn once, for all its viewers."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from xnagent.core.masking import Mask
from xnagent.core.text import Json
from xnagent.dashboard.frames import BEAT, Cursor, data_of, frame, told
from xnagent.dashboard.parts import Part, redrawn
from xnagent.dashboard.tailing import Log
from xnagent.errors import StoreError, UsageError
from xnagent.inspect.page.markup import written
from xnagent.inspect.reading import Reading, status_of
from xnagent.store.folding import FOLD_FAULTS

DRAW_SECONDS: Final = 0.4
"""Least time from one drawing to the next."""
REST: Final = 3
"""So many times as long as a drawing took nothing is drawn."""
KEPT_FRAMES: Final = 16
BEAT_SECONDS: Final = 15.0
"""After so long a silence a viewer is sent something, so that a lost connection is noticed."""
READ_FAULTS: Final = (StoreError, UsageError, *FOLD_FAULTS)
Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """What blocks, beside the event loop; whoever stops waiting leaves it behind."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


class Bell:
    """Wakes all who wait for it now."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        """Wake them."""
        self._event.set()
        self._event = anyio.Event()

    async def wait(self) -> None:
        """Until it rings."""
        await self._event.wait()

    async def rings(self) -> bool:
        """Wait for it for a while; whether it rang."""
        with anyio.move_on_after(BEAT_SECONDS):
            await self._event.wait()
            return True
        return False


class Pace:
    """Lets one drawing after the other, with rests: all together take a fourth of a processor at most."""

    def __init__(self) -> None:
        self._turn = anyio.Lock()

    async def draw(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it in its turn."""
        async with self._turn:
            began = time.monotonic()
            await work()
            await anyio.sleep(REST * (time.monotonic() - began))


@dataclass(slots=True, kw_only=True)
class Watch:
    """A session's log and its parts, and the bell that tells viewers to look."""

    log: Log
    mask: Mask
    pace: Pace
    found: Callable[[], None]
    """Is called when something new was read."""
    bell: Bell = field(default_factory=Bell)
    viewers: int = 0
    left_at: float = field(default_factory=time.monotonic)
    """When the last viewer left."""
    seq: int = 0
    """As far as viewers may read the log."""
    parts: dict[str, Part] = field(default_factory=dict)
    problem: str | None = None
    """Why nothing more comes."""
    _due: anyio.Event = field(default_factory=anyio.Event)
    _stale: anyio.Event = field(default_factory=anyio.Event)
    _drawn_of: tuple[int, bool] = (-1, False)
    _told: tuple[int, bool] = (-1, False)
    _pencil: anyio.Lock = field(default_factory=anyio.Lock)
    _frames: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @property
    def cursor(self) -> Cursor:
        """The place of a viewer that has everything."""
        return Cursor(seq=self.seq, drawn=max((part.drawn for part in self.parts.values()), default=0))

    @property
    def standing(self) -> dict[str, Json]:
        """How the session stands, in a few words."""
        log = self.log
        reading = Reading(session=log.session, state=log.state, events=(), is_live=log.is_live)
        return {"status": status_of(reading), "is_live": log.is_live}

    def note_news(self) -> None:
        """There may be something new."""
        self._due.set()

    async def follow(self) -> None:
        """Read what is new whenever there may be something, until cancelled."""
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            await self.advance()

    async def advance(self) -> None:
        """Read what is new, and tell the viewers."""
        try:
            await in_thread(self.log.read)
        except READ_FAULTS as error:
            self.problem = self.mask.text(str(error) or type(error).__name__)
            self.bell.ring()
        if (now := (self.log.seq, self.log.is_live)) != self._told:
            self._told, self.seq = now, self.log.seq
            self.found()
            self.bell.ring()
            self._stale.set()

    async def draw_always(self) -> None:
        """Draw the parts again after news, a few times a second at most, in turns with others, until cancelled."""
        while True:
            await self._stale.wait()
            self._stale = anyio.Event()
            if self.viewers:
                await self.pace.draw(self.draw)
            await anyio.sleep(DRAW_SECONDS)

    async def draw(self) -> None:
        """Bring the parts up to the log."""
        async with self._pencil:
            wanted = self.seq, self.log.is_live
            if self._drawn_of == wanted and self.parts:
                return
            now = max(time.time_ns() // 1_000_000, self.cursor.drawn + 1)
            self.parts = await in_thread(lambda: redrawn(self.log, self.parts, mask=self.mask, now=now))
            self._drawn_of = wanted
        self.bell.ring()

    async def frames(self, cursor: Cursor) -> AsyncIterator[bytes]:
        """Everything after the viewer's place, then what comes; ends when nothing more can be read."""
        standing: dict[str, Json] | None = None
        while True:
            if self.problem is not None:
                yield told("problem", {"text": self.problem})
                return
            if self.seq > cursor.seq:
                news = self._news(cursor.seq)
                cursor = Cursor(seq=self.seq, drawn=cursor.drawn)
                yield frame("news", news, cursor=cursor)
                continue
            parts = [(name, part) for name, part in self.parts.items() if part.drawn > cursor.drawn]
            if parts:
                cursor = Cursor(seq=cursor.seq, drawn=max(part.drawn for _, part in parts))
                yield told("parts", {name: part.html for name, part in parts}, cursor=cursor)
                continue
            if (now := self.standing) != standing:
                standing = now
                yield told("standing", now)
                continue
            if not await self.bell.rings():
                yield BEAT

    def _news(self, after: int) -> bytes:
        """What came after an event: first the requests' lines that changed, then the events, a line each."""
        if (after, self.seq) not in self._frames:
            if len(self._frames) >= KEPT_FRAMES:
                self._frames.clear()
            lines = self.log.lines[after : self.seq]
            self._frames[after, self.seq] = data_of([json.dumps(self._changed(after), separators=(",", ":")), *lines])
        return self._frames[after, self.seq]

    def _changed(self, after: int) -> list[Json]:
        touched = self.log.touched[bisect_right(self.log.touched, (after, inf)) :]
        requests = sorted({request for seq, request in touched if seq <= self.seq})
        return [
            {"request": number, "html": self.log.line_of(number), "row": written(self.log.rows[number])}
            for number in requests
        ]
