"""Takes a session to its end in the task group of whoever opened it, one run or resume at a time."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from xnagent.api.activity import Activity, Work
from xnagent.api.events import Events, Reader
from xnagent.api.options import Chosen
from xnagent.app.host import Host
from xnagent.app.running import SessionSpec, Stop, resume_session, run_session
from xnagent.config import Settings
from xnagent.config.secrets import mask_for
from xnagent.core.ids import SessionId
from xnagent.core.state import SessionState
from xnagent.errors import UsageError
from xnagent.store.place import Place, state_at


@dataclass(slots=True, kw_only=True)
class Driver:
    """One session, as it is driven from here."""

    chosen: Chosen
    group: TaskGroup
    session: SessionId
    settings: Settings
    has_begun: bool
    activity: Activity | None = field(default=None)

    @property
    def host(self) -> Host:
        """Where it runs."""
        return self.chosen.host

    @property
    def place(self) -> Place:
        """Where it is kept."""
        return self.host.place(self.session)

    @property
    def is_running(self) -> bool:
        """Whether it runs here now."""
        return self.activity is not None and not self.activity.ended.is_set()

    def state(self) -> SessionState | None:
        """As it ended here; else as its log has it. None: there is no log. Blocks where it reads."""
        known = self.activity.state if self.activity else None
        place = self.place
        return state_at(place) if known is None and place.exists() else known

    def run(self, objective: str) -> Events:
        """A new session."""
        return self._events(partial(self._run, objective), is_new=True)

    def resume(self, message: str | None) -> Events:
        """One that was begun before."""
        return self._events(partial(self._resume, message), is_new=False)

    def leave(self) -> None:
        """Ask what runs to close in order."""
        if self.activity is not None:
            self.activity.stop()

    def raise_error(self) -> None:
        """Raise what nobody was told yet."""
        if self.activity is not None:
            self.activity.raise_error()

    def _events(self, work: Work, *, is_new: bool) -> Events:
        reader = Reader(place=self.place, session=self.session, mask=mask_for(self.host.environ, self.settings))
        return Events(partial(self._begin, work, is_new=is_new), reader, is_new=is_new)

    def _begin(self, work: Work, holder: Events, *, is_new: bool) -> Activity:
        if self.is_running:
            raise UsageError(f"SESSION_RUNS: {self.session} runs already; read its events to their end first")
        if is_new and self.has_begun and self.place.exists():
            raise UsageError(f"SESSION_BEGUN: {self.session} was begun before; go on with resume(message=…)")
        self.has_begun = True
        self.activity = Activity(work)
        self.group.start_soon(self.activity.carry_out)
        self.group.start_soon(self.activity.outlive, weakref.ref(holder))
        return self.activity

    async def _run(self, objective: str, *, stop: Stop) -> SessionState:
        folder = self.chosen.folder()
        spec = SessionSpec(objective=objective, repository=folder, settings=self.settings, session=self.session)
        return await run_session(self.host, spec, stop=stop)

    async def _resume(self, message: str | None, *, stop: Stop) -> SessionState:
        await _until_left(self.host, self.session)
        chosen, settings = self.chosen.roles(), self.settings
        return await resume_session(
            self.host, self.session, settings=settings, message=message, stop=stop, chosen=chosen
        )


async def _until_left(host: Host, session: SessionId) -> None:
    """Let the lease run out of a process that is gone and may have left commands running at its machine."""
    while (seconds := await anyio.to_thread.run_sync(host.sessions.left_seconds, session)) > 0:
        await host.clock.sleep(min(seconds, 1.0))
