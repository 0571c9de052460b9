"""A session in the hands of a program: begin it, go on with it, speak to it, stop it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, Unpack

import anyio
import anyio.to_thread

from xnagent.api.driving import Driver
from xnagent.api.events import Events
from xnagent.api.final import Final, final_of
from xnagent.api.options import Chosen, Options, choose
from xnagent.app.steering import cancel_session, tell_session
from xnagent.config import Settings
from xnagent.config.load import stored_settings
from xnagent.core.events import SessionResumed, SessionStarted
from xnagent.core.ids import SessionId
from xnagent.core.text import clean
from xnagent.errors import UsageError
from xnagent.store.place import Place
from xnagent.store.sessions import new_session_id


class Session:
    """One session. `xnagent.open` gives it, and closes it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def id(self) -> str:
        """Its name: `s-20261130-141502-3f9a1c`."""
        return str(self._driver.session)

    @property
    def final(self) -> Final:
        """How it ended. Raises UsageError for one that has not."""
        state = None if self._driver.is_running else self._driver.state()
        found = None if state is None else final_of(state)
        if found is None:
            raise UsageError(f"SESSION_OPEN: {self.id} has no final record: it has not ended")
        return found

    def run(self, objective: str) -> Events:
        """Begin it, and read what happens to its end: `async for event in session.run("…")`.

        Raises UsageError for an empty objective; the events raise it for a session that was begun before.
        """
        return self._driver.run(_said(objective, "OBJECTIVE_EMPTY: the objective is empty; say what to do"))

    def resume(self, *, message: str | None = None) -> Events:
        """Go on from where its log ends: after a crash, a limit, a question or a stop.

        `message` is said to the Planner; a session that its Planner finished only goes on with one. Raises UsageError
        for an empty message.
        """
        said = None if message is None else _said(message, "MESSAGE_EMPTY: the message is empty; leave it out")
        return self._driver.resume(said)

    async def tell(self, text: str) -> str | None:
        """Say something more to the Planner, which reads it before its next step.

        Returns the message's id (`m2`) once it is in the log. None: it is kept, and the next `resume` delivers it.
        Raises UsageError for an empty text, and for a session that was not begun.
        """
        said = _said(text, "MESSAGE_EMPTY: the message is empty; say something")
        return (await tell_session(self._driver.host, self._driver.session, text=said)).message

    async def cancel(self, reason: str = "") -> None:
        """Stop it in order, here or in another process, and wait for the end; it can be resumed."""
        activity = self._driver.activity
        if activity is not None and self._driver.is_running:
            activity.stop(clean(reason))
            await activity.ended.wait()
        elif self._driver.has_begun:
            await cancel_session(self._driver.host, self._driver.session, reason=clean(reason))


def _said(text: str, problem: str) -> str:
    if not text.strip():
        raise UsageError(problem)
    return clean(text)


def last_settings(place: Place) -> Settings:
    """The settings that the session was begun or last resumed with. Raises UsageError if there is no such session."""
    texts = [one.event.settings for one in place.events() if isinstance(one.event, SessionStarted | SessionResumed)]
    return stored_settings(next((text for text in reversed(texts) if text), "{}"), session=place.name)


class _Kept:
    """Keeps what ends the caller's block, to be raised where nothing wraps it; cancellation goes to its scope."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, (GeneratorExit, anyio.get_cancelled_exc_class())):
            return False
        self.error = error
        return True


@asynccontextmanager
async def open_session(session: str | None = None, /, **options: Unpack[Options]) -> AsyncIterator[Session]:
    """A new session, or the one of that id: `async with xnagent.open(model="…") as session:`.

    However the block is left, what runs is stopped in order first: it can be resumed. Raises UsageError for options
    that cannot be, and for a session that is not there.
    """
    chosen = await anyio.to_thread.run_sync(choose, options)
    if session is None:
        name, settings = new_session_id(chosen.host.clock), await anyio.to_thread.run_sync(chosen.settings)
    else:
        name = SessionId(session)
        settings = chosen.changed(await anyio.to_thread.run_sync(last_settings, chosen.host.place(session)))
    async with opened(chosen, name=name, settings=settings, has_begun=session is not None) as found:
        yield found


@asynccontextmanager
async def opened(chosen: Chosen, *, name: SessionId, settings: Settings, has_begun: bool) -> AsyncIterator[Session]:
    """A session of that name with these settings, until the block is left."""
    kept = _Kept()
    async with anyio.create_task_group() as group:
        driver = Driver(chosen=chosen, group=group, session=name, settings=settings, has_begun=has_begun)
        with kept:
            try:
                yield Session(driver)
            finally:
                driver.leave()
    if kept.error is not None:
        raise kept.error
    driver.raise_error()
