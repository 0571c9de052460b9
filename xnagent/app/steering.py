"""Reaching a session that another process runs: say something more to it, or cancel it, and learn what became of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal

import anyio
import anyio.to_thread

from xnagent.app.host import Host
from xnagent.app.letters import mailbox_of
from xnagent.core.events import Outcome, Stored, UserMessageAdded
from xnagent.core.fold import fold
from xnagent.core.ids import AgentId, SessionId
from xnagent.core.state import SessionState
from xnagent.core.summary_events import RebaseAsked
from xnagent.errors import UsageError
from xnagent.store.mailbox import Letter, Mailbox
from xnagent.store.place import Place

ANSWER_SECONDS: Final = 10.0
"""How long a living process may take to read a letter."""
ENDING_SECONDS: Final = 60.0
"""How long it may take to close in order."""
POLL_SECONDS: Final = 0.1
NOT_RUNNING: Final = (
    "NOT_RUNNING: {session} is not running, and only a running session rebases; `xnagent resume {session}` goes on, "
    "and `xnagent rebase {session} --dry-run` shows what it would do now"
)
NOT_ASKED: Final = (
    "NOT_TAKEN: {session} has no history of {agent} that goes on, or its process does not answer; "
    "`xnagent inspect {session} --runs` shows what runs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of a message."""

    status: Literal["delivered", "kept"]
    """`delivered`: it is in the session's log. `kept`: durable, and read when the session goes on."""
    message: str | None
    """`m3`, once it is delivered."""
    is_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What became of a cancellation."""

    status: Literal["stopped", "stopping", "not_running", "not_taken"]
    """`stopping`: it closes in order and is not done yet. `not_taken`: its process does not answer."""
    outcome: Outcome | None
    """How the session ended; None if it did not, or was killed."""
    holder: str = ""
    """The process that does not answer, for people."""


class Watch:
    """A session's log, read as it grows."""

    def __init__(self, place: Place) -> None:
        self.state = SessionState()
        self.is_live = False
        self.place = place
        self._seen = 0

    async def advance(self) -> list[Stored]:
        """What is new. Raises UsageError if there is no such session."""
        # Asked before reading: a process that ends in between has then left everything that is read.
        self.is_live = await anyio.to_thread.run_sync(self.place.holder) is not None
        news = await anyio.to_thread.run_sync(lambda: list(self.place.events(after=self._seen)))
        for stored in news:
            self.state = fold(self.state, stored.event)
            self._seen = stored.seq
        return news

    async def follow(self) -> AsyncGenerator[list[Stored], None]:
        """What is new, again and again, to the end of the process that runs the session."""
        self.is_live = True
        while self.is_live:
            yield await self.advance()
            await anyio.sleep(POLL_SECONDS)


async def tell_session(host: Host, session: SessionId, *, text: str) -> Told:
    """Say something more to the Planner. It reads it before its next step, and is woken for it.

    A session that does not run keeps it for the next `resume`. Raises UsageError for a session that is not there.
    """
    watch = Watch(host.place(session))
    await watch.advance()
    name = await mailbox_of(host, session).post(Letter(kind="message", text=text))
    message: str | None = None
    with anyio.move_on_after(ANSWER_SECONDS):
        async with aclosing(watch.follow()) as found:
            message = await _taken(found, name)
    return Told(status="kept" if message is None else "delivered", message=message, is_running=watch.is_live)


async def _taken(found: AsyncIterable[list[Stored]], letter: str) -> str | None:
    async for news in found:
        if (message := _number(news, letter)) is not None:
            return message
    return None


def _number(news: list[Stored], letter: str) -> str | None:
    events = (stored.event for stored in news)
    return next((one.message for one in events if isinstance(one, UserMessageAdded) and one.letter == letter), None)


async def ask_for_rebases(host: Host, session: SessionId, *, agent: str) -> tuple[AgentId, ...]:
    """Have a running session rebase an agent's history, or all (`agent` empty), before the next request of each.

    Returns those that were asked; their next step begins with the rebase. Raises UsageError for a session
    that is not there, does not run, or does not answer.
    """
    watch = Watch(host.place(session))
    await watch.advance()
    if not _runs(watch):
        raise UsageError(NOT_RUNNING.format(session=session))
    mailbox = mailbox_of(host, session)
    name = await mailbox.post(Letter(kind="rebase", text=agent, epoch=watch.state.epoch))
    asked: tuple[AgentId, ...] = ()
    with anyio.move_on_after(ANSWER_SECONDS):
        async for news in watch.follow():
            events = [stored.event for stored in news]
            asked += tuple(one.agent for one in events if isinstance(one, RebaseAsked) and one.letter == name)
            if asked:
                return asked
    await mailbox.discard(name)
    raise UsageError(NOT_ASKED.format(session=session, agent=agent or "any agent"))


async def cancel_session(host: Host, session: SessionId, *, reason: str) -> Cancelled:
    """Stop a running session in order, and wait until it has ended. It can be resumed.

    Raises UsageError for a session that is not there.
    """
    watch = Watch(host.place(session))
    await watch.advance()
    if not _runs(watch):
        return Cancelled(status="not_running", outcome=_outcome(watch))
    asked = _Cancellation(mailbox=mailbox_of(host, session), watch=watch, reason=reason)
    with anyio.move_on_after(ANSWER_SECONDS):
        await asked.until_taken()
    await asked.withdraw()
    if watch.state.interrupted is None and _runs(watch):
        holder = await anyio.to_thread.run_sync(watch.place.holder)
        return Cancelled(status="not_taken", outcome=None, holder=holder or "another process")
    with anyio.move_on_after(ENDING_SECONDS):
        while _runs(watch):
            await anyio.sleep(POLL_SECONDS)
            await watch.advance()
    return Cancelled(status="stopping" if _runs(watch) else "stopped", outcome=_outcome(watch))


class _Cancellation:
    """A letter to the process that runs the session now: never to a later one."""

    def __init__(self, *, mailbox: Mailbox, watch: Watch, reason: str) -> None:
        self._mailbox = mailbox
        self._watch = watch
        self._reason = reason
        self._posted: tuple[str, int] | None = None

    async def until_taken(self) -> None:
        while _runs(self._watch) and self._watch.state.interrupted is None:
            if self._posted is None or self._posted[1] != self._watch.state.epoch:
                await self._post(self._watch.state.epoch)
            await anyio.sleep(POLL_SECONDS)
            await self._watch.advance()

    async def _post(self, epoch: int) -> None:
        await self.withdraw()
        letter = Letter(kind="cancel", text=self._reason, epoch=epoch)
        self._posted = (await self._mailbox.post(letter), epoch)

    async def withdraw(self) -> None:
        if self._posted is not None:
            await self._mailbox.discard(self._posted[0])


def _runs(watch: Watch) -> bool:
    return watch.is_live and watch.state.settled is None


def _outcome(watch: Watch) -> Outcome | None:
    return None if watch.state.settled is None else watch.state.settled.outcome
