"""A session's log, followed as it grows. All methods block; nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, cast

from xnagent.core.events import Stored
from xnagent.core.fold import fold
from xnagent.core.ids import AgentId, SessionId, Ticket
from xnagent.core.masking import Mask
from xnagent.core.spine_events import ResultOffloaded, ToolFinished
from xnagent.core.state import SessionState
from xnagent.core.text import Json
from xnagent.inspect.page.ledger import request_line
from xnagent.inspect.page.markup import Markup, written
from xnagent.inspect.page.story import Contents, Story, tell
from xnagent.inspect.parts import request_record
from xnagent.inspect.reading import Reading
from xnagent.inspect.requests import Ledger
from xnagent.store.codec import as_record
from xnagent.store.place import Place


@dataclass(slots=True, kw_only=True)
class Tail:
    """How a session stands: the log folded, and nothing kept of it."""

    place: Place
    state: SessionState = field(default_factory=SessionState)
    seq: int = 0
    """Place of the newest event that was taken."""
    updated: str = ""
    """When it was stored."""
    is_live: bool = False
    lock: Lock = field(default_factory=Lock)
    """Who reads, or looks at what reading changes, has it: a thread that nobody waits for any more goes on."""

    def read(self) -> bool:
        """Take what is new; whether anything changed. Raises StoreError and UsageError as the place deserves."""
        with self.lock:
            before = self.seq, self.is_live
            # Asked before reading: a process that ends in between has then left everything that is read.
            self.is_live = self.place.holder() is not None
            for stored in self.place.events(after=self.seq):
                self.take(stored)
                self.seq, self.updated = stored.seq, stored.at
            return before != (self.seq, self.is_live)

    def take(self, stored: Stored) -> None:
        """Go on by one event."""
        self.state = fold(self.state, stored.event)


@dataclass(slots=True, kw_only=True)
class Log(Tail):
    """The whole log with what a page is made of, extended event by event and never made anew."""

    session: SessionId
    mask: Mask
    events: list[Stored] = field(default_factory=list)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    """The events as flat objects, without secrets."""
    lines: list[str] = field(default_factory=list)
    """The same as they stand in the page."""
    story: Story = field(default_factory=Story)
    ledger: Ledger = field(default_factory=Ledger)
    rows: dict[int, dict[str, Json]] = field(default_factory=dict)
    """The ledger as flat objects, without secrets, by request."""
    touched: list[tuple[int, int]] = field(default_factory=list)
    """Which event changed which request's line, in order: place and request."""
    texts: dict[str, str] = field(default_factory=dict)
    """Patches that were read, by ticket."""

    def take(self, stored: Stored) -> None:
        """Go on by one event."""
        # Named, not super(): a dataclass with slots is made twice, and super() means the first one.
        Tail.take(self, stored)
        record = cast("dict[str, Any]", self._masked(as_record(self.session, stored)))
        self.events.append(stored)
        self.records.append(record)
        self.lines.append(written(record))
        tell(self.story, stored)
        changed = self.ledger.take(stored)
        if changed is not None:
            self.rows[changed] = self._masked(request_record(self.ledger.rows[changed]))
        elif isinstance(stored.event, ToolFinished | ResultOffloaded):
            changed = self.story.newest.get(stored.event.agent)
        if changed is not None and changed in self.rows:
            self.touched.append((stored.seq, changed))

    def _masked(self, told: dict[str, Json]) -> dict[str, Json]:
        return cast("dict[str, Json]", self.mask.value(told)) if self.mask.grams else told

    def line_of(self, request: int) -> Markup:
        """The request's folded line."""
        row = self.rows[request]
        step = self.story.steps.get(AgentId(str(row["agent"])), {}).get(request)
        return request_line(row, step, contents=self.story.contents.get(request, Contents()))

    def reading(self) -> Reading:
        """The session as it is now."""
        return Reading(
            session=self.session,
            state=self.state,
            events=self.events,
            records=self.records,
            is_live=self.is_live,
            ledger=self.ledger.in_order(),
        )

    def patches(self, tickets: list[str]) -> Mapping[str, str]:
        """What the tickets stand for, as far as it is stored; each is read once."""
        for ticket in tickets:
            if ticket not in self.texts and (data := self.place.artifact(Ticket(ticket))) is not None:
                self.texts[ticket] = self.mask.text(data.decode("utf-8", "replace"))
        return self.texts
