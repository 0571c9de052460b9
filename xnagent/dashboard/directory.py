"""The list of sessions as it changes: who is there, and how far those have come that run."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import anyio

from xnagent.dashboard.frames import BEAT, Cursor, told
from xnagent.dashboard.listing import Entry, Progress, progress_of
from xnagent.dashboard.pulse import Pulse
from xnagent.dashboard.roll import Roll
from xnagent.dashboard.tailing import Tail
from xnagent.dashboard.watch import READ_FAULTS, Bell, in_thread
from xnagent.store.place import Sessions
from xnagent.store.sessions import SessionRow

LOOK_SECONDS: Final = 1.0
"""Least time from one look for new sessions to the next."""
REST: Final = 10
"""So many times as long as a look took there is no other."""
COUNTED: Final = 100
"""Sessions that do not run, the newest: their logs are read once, one after the other."""
COUNTED_EVENTS: Final = 20_000
"""A longer log of a session that does not run is not read for the list."""


@dataclass(slots=True, kw_only=True)
class Directory:
    """One for all viewers of the list; it works only while there are some."""

    sessions: Sessions
    roll: Roll
    pulse: Pulse
    bell: Bell = field(default_factory=Bell)
    viewers: int = 0
    rows: dict[str, SessionRow] = field(default_factory=dict)
    """Newest first."""
    tails: dict[str, Tail] = field(default_factory=dict)
    """Of sessions that run."""
    problem: str | None = None
    _wanted: anyio.Event = field(default_factory=anyio.Event)
    _counted: dict[str, tuple[int, Progress | None]] = field(default_factory=dict)
    """How far sessions came that do not run, with the last event that was counted."""
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    @contextmanager
    def viewed(self) -> Iterator[None]:
        """While it lasts there is a viewer."""
        self.viewers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._wanted = anyio.Event()

    async def look_always(self) -> None:
        """Look for new sessions about once a second, until cancelled; seldom where looking takes long."""
        while True:
            await self._wanted.wait()
            began = time.monotonic()
            await self.look()
            took = time.monotonic() - began
            for name in self._strangers():
                async with self._turn:
                    await self._meet(name)
            await anyio.sleep(max(LOOK_SECONDS, REST * took))

    async def look(self) -> None:
        """See which sessions there are and which run."""
        try:
            rows = await in_thread(self.sessions.rows)
        except READ_FAULTS as error:
            self.problem = self.roll.mask.text(str(error))
            self.bell.ring()
            return
        self.problem = None
        async with self._turn:
            changed = [row.session for row in rows if self.rows.get(row.session) != row]
            self.rows = {row.session: row for row in rows}
            self._draw(changed)

    def _strangers(self) -> list[str]:
        """Those that run and were not read yet, or not to their end, and those that do not run any more."""
        begun = [name for name, row in self.rows.items() if row.is_live and name not in self.tails]
        behind = [
            name for name, tail in self.tails.items() if name not in self.rows or _is_behind(tail, self.rows[name])
        ]
        return [*begun, *behind]

    async def _meet(self, name: str) -> None:
        tail = self.tails.get(name) or Tail(place=self.sessions.place(name))
        await in_thread(lambda: _read_or_leave(tail))
        self.tails[name] = tail
        if not tail.is_live or name not in self.rows:
            del self.tails[name]
            self._counted[name] = tail.seq, progress_of(tail)
        self._draw([name])

    async def follow(self, *, every_seconds: float) -> None:
        """Read what is new of those that run, until cancelled."""
        while True:
            await self._wanted.wait()
            await anyio.sleep(every_seconds)
            async with self._turn:
                self._draw(await self._changed())

    async def _changed(self) -> list[str]:
        """The sessions of which something was read."""
        names = list(self.tails)
        if not names:
            return []
        try:
            due = await in_thread(lambda: self.pulse.due(names))
        except READ_FAULTS:
            return []
        tails = [(name, self.tails[name]) for name in due if name in self.tails]
        changed = await in_thread(lambda: [name for name, tail in tails if _read_or_leave(tail)]) if tails else []
        for name in changed:
            self.pulse.found(name)
        return changed

    async def count_always(self) -> None:
        """Read the logs of those that do not run, each once, until cancelled."""
        while True:
            await self._wanted.wait()
            name = next(self._uncounted(), None)
            if name is None:
                await self.bell.wait()
                continue
            row, tail = self.rows[name], Tail(place=self.sessions.place(name))
            is_short = row.last_seq <= COUNTED_EVENTS
            is_read = is_short and await in_thread(partial(_read_or_leave, tail))
            self._counted[name] = row.last_seq, progress_of(tail) if is_read else None
            self._draw([name])

    def _uncounted(self) -> Iterator[str]:
        rows = [row for row in self.rows.values() if row.session not in self.tails and row.problem is None][:COUNTED]
        return (row.session for row in rows if self._counted.get(row.session, (-1, None))[0] != row.last_seq)

    def entry(self, name: str) -> Entry:
        """A session as the list shows it."""
        row, tail = self.rows[name], self.tails.get(name)
        if tail is None or not tail.seq:
            return Entry(row=row, progress=self._counted.get(name, (0, None))[1])
        settled = tail.state.settled
        status = row.status if settled is None else "settled"
        outcome = row.outcome if settled is None else settled.outcome
        return Entry(row=replace(row, status=status, outcome=outcome, is_live=tail.is_live), progress=progress_of(tail))

    def _draw(self, names: Iterable[str]) -> None:
        """Make the lines of these anew, and tell the viewers if anything came out another way."""
        if self.roll.draw([*self.rows], {name: self.entry(name) for name in names if name in self.rows}):
            self.bell.ring()

    async def frames(self, cursor: Cursor) -> AsyncIterator[bytes]:
        """What changed after the viewer's place, then what comes."""
        told_problem: str | None = None
        while True:
            if self.problem != told_problem:
                told_problem = self.problem
                yield told("problem", {"text": self.problem or ""})
            elif self.roll.drawn > cursor.drawn:
                frame = self.roll.frame(cursor.drawn)
                cursor = Cursor(drawn=self.roll.drawn)
                yield frame
            elif not await self.bell.rings():
                yield BEAT


def _is_behind(tail: Tail, row: SessionRow) -> bool:
    return not row.is_live or tail.seq < row.last_seq


def _read_or_leave(tail: Tail) -> bool:
    """Whether something changed; a log that can't be read tells nothing more."""
    try:
        return tail.read()
    except READ_FAULTS:
        return False
