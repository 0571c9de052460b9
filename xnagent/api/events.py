"""What happened, as a program reads it: the events of the log while they are written."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Self, cast

import anyio
import anyio.to_thread

from xnagent.api.activity import Activity
from xnagent.core.events import Stored
from xnagent.core.ids import SessionId
from xnagent.core.masking import Mask
from xnagent.core.text import Json
from xnagent.errors import StoreError, UsageError
from xnagent.store.codec import as_record
from xnagent.store.place import Place

POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened: a line of `--output jsonl`."""

    type: str
    """`session_started`, `run_started`, `tool_finished`…"""
    session: str
    seq: int
    """Its place in the log, from 1."""
    at: str
    """UTC as ISO 8601 with milliseconds and `Z`."""
    fields: Mapping[str, Json]
    """What else the line holds, without secrets of this process."""

    def record(self) -> dict[str, Json]:
        """The whole line."""
        return {"type": self.type, "session": self.session, "seq": self.seq, "at": self.at, **self.fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads a session's log from a place on."""

    place: Place
    session: SessionId
    mask: Mask

    def events(self, *, after: int) -> list[Event]:
        """What stands behind the place; nothing if there is no such session yet. Blocks."""
        return [self._event(stored) for stored in self.place.events(after=after)] if self.place.exists() else []

    def last_seq(self) -> int:
        """The place of the newest event; 0 if there is none. Blocks."""
        return max((stored.seq for stored in self.place.events()), default=0) if self.place.exists() else 0

    def _event(self, stored: Stored) -> Event:
        record = cast("dict[str, Json]", self.mask.value(as_record(self.session, stored)))
        fields = {name: value for name, value in record.items() if name not in {"type", "session", "seq", "at"}}
        kind = stored.event.type
        return Event(type=kind, session=str(self.session), seq=stored.seq, at=stored.at, fields=fields)


class Events(AsyncIterator[Event]):
    """The events of one `run` or `resume`, each once, in order, to the end of it.

    The work begins with the first `anext` and goes on as long as this iterator is held: who leaves the loop early, or
    calls `aclose`, stops the session in order. Raises what ended it, if that was no outcome: see `xnagent.errors`.
    """

    def __init__(self, begin: Callable[[Events], Activity], reader: Reader, *, is_new: bool) -> None:
        self._begin = begin
        self._reader = reader
        self._activity: Activity | None = None
        self._seen: int | None = 0 if is_new else None
        self._news: deque[Event] = deque()
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._is_closed:
            raise StopAsyncIteration
        activity = await self._started()
        while not self._news:
            # Asked before reading: what ended has then left everything that is read.
            has_ended = activity.ended.is_set()
            await self._read(is_last=has_ended)
            if has_ended and not self._news:
                self._is_closed = True
                activity.raise_error()
                raise StopAsyncIteration
            if not self._news:
                with anyio.move_on_after(POLL_SECONDS):
                    await activity.ended.wait()
        return self._news.popleft()

    async def aclose(self) -> None:
        """Stop in order, and wait for the end."""
        self._is_closed = True
        if self._activity is not None:
            self._activity.stop()
            await self._activity.ended.wait()

    async def _started(self) -> Activity:
        if self._activity is None:
            if self._seen is None:
                self._seen = await anyio.to_thread.run_sync(self._reader.last_seq)
            self._activity = self._begin(self)
        return self._activity

    async def _read(self, *, is_last: bool) -> None:
        try:
            news = await anyio.to_thread.run_sync(partial(self._reader.events, after=self._seen or 0))
        except (StoreError, UsageError):
            if is_last and self._activity is not None and not self._activity.has_error:
                raise
            return
        self._news += news
        self._seen = news[-1].seq if news else self._seen
