"""Who is looked at: one watch for each session, one list, one beat that asks the store whether anything is new."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.abc

from xnagent.core.masking import Mask
from xnagent.dashboard.directory import Directory
from xnagent.dashboard.pulse import Pulse
from xnagent.dashboard.tailing import Log
from xnagent.dashboard.watch import READ_FAULTS, Pace, Watch, in_thread
from xnagent.errors import StoreError
from xnagent.store.place import Sessions

BEAT_SECONDS: Final = 0.08
LIVENESS_SECONDS: Final = 1.0
"""How often it is looked whether a session's process is still there."""
KEPT_SECONDS: Final = 30.0
"""How long a session stays read after its last viewer left."""


@dataclass(slots=True, kw_only=True)
class _Seat:
    watch: Watch
    scope: anyio.CancelScope


@dataclass(slots=True, kw_only=True)
class Hub:
    """Everything that is followed, in one task group that `run` owns."""

    sessions: Sessions
    mask: Mask
    directory: Directory
    pulse: Pulse
    pace: Pace = field(default_factory=Pace)
    _seats: dict[str, _Seat] = field(default_factory=dict)
    _group: anyio.abc.TaskGroup | None = None

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow what is looked at, until cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._beat)
            group.start_soon(self.directory.look_always)
            group.start_soon(self.directory.count_always)
            group.start_soon(lambda: self.directory.follow(every_seconds=BEAT_SECONDS))
            task_status.started()

    @asynccontextmanager
    async def watching(self, session: str) -> AsyncIterator[Watch]:
        """The session's watch, read up to now, for as long as a viewer stays. Raises StoreError and UsageError."""
        watch = await self._seat(session)
        watch.viewers += 1
        try:
            yield watch
        finally:
            watch.viewers -= 1
            watch.left_at = time.monotonic()

    async def _seat(self, session: str) -> Watch:
        seat = self._seats.get(session)
        if seat is None or seat.watch.problem is not None:
            place = self.sessions.place(session)
            name = await in_thread(place.read_session)
            seat = self._seats.get(session)
            if seat is None or seat.watch.problem is not None:
                seat = self._begin(session, self._watch(session, Log(place=place, session=name, mask=self.mask)))
        await seat.watch.advance()
        if seat.watch.problem is not None:
            raise StoreError(seat.watch.problem)
        return seat.watch

    def _watch(self, session: str, log: Log) -> Watch:
        return Watch(log=log, mask=self.mask, pace=self.pace, found=lambda: self.pulse.found(session))

    def _begin(self, session: str, watch: Watch) -> _Seat:
        self._end(session)
        seat = _Seat(watch=watch, scope=anyio.CancelScope())
        self._seats[session] = seat
        if self._group is not None:
            self._group.start_soon(_work, seat)
        return seat

    def _end(self, session: str) -> None:
        if (seat := self._seats.pop(session, None)) is not None:
            seat.scope.cancel()

    async def _beat(self) -> None:
        looked = time.monotonic()
        while True:
            await anyio.sleep(BEAT_SECONDS)
            names = list(self._seats)
            if names:
                await self._note(names)
            if time.monotonic() - looked > LIVENESS_SECONDS:
                looked = time.monotonic()
                self._look_after()

    async def _note(self, names: list[str]) -> None:
        """Tell the watches whose sessions may have news."""
        try:
            due = await in_thread(lambda: self.pulse.due(names))
        except READ_FAULTS:
            return
        for name in due:
            if name in self._seats:
                self._seats[name].watch.note_news()

    def _look_after(self) -> None:
        """Let go of what nobody looks at; see whether the others still run."""
        now = time.monotonic()
        for name, seat in list(self._seats.items()):
            if not seat.watch.viewers and now - seat.watch.left_at > KEPT_SECONDS:
                self._end(name)
            elif seat.watch.log.is_live:
                seat.watch.note_news()


async def _work(seat: _Seat) -> None:
    with seat.scope:
        async with anyio.create_task_group() as group:
            group.start_soon(seat.watch.follow)
            group.start_soon(seat.watch.draw_always)
