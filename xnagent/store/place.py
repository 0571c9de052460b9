"""Where a session is kept: what a store must provide, whatever database it uses (files, PostgreSQL)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import islice
from typing import Protocol

from xnagent.core.events import SessionResumed, Stored
from xnagent.core.fork_events import SessionForked
from xnagent.core.ids import AgentId, SessionId, Ticket
from xnagent.core.state import SessionState
from xnagent.core.values import dataclass
from xnagent.errors import StoreError, UsageError
from xnagent.store.folding import fold_stored
from xnagent.store.sessions import SessionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Events that are committed together."""

    events: tuple[tuple[Stored, bytes], ...]
    """Each with its JSON."""
    state: SessionState
    """The log folded up to the last of them."""
    last_seq: int
    """Place of the last of them, or of the last event before."""
    is_durable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Content to store."""

    sha: str
    data: bytes


Work = Append | Put


def must_be_durable(batch: Sequence[Work]) -> bool:
    """Whether a commit of these must be on the disk before anybody is told."""
    return any(isinstance(each, Append) and each.is_durable for each in batch)


class Holding(Protocol):
    """The right to write to a session. Belongs to the thread that took it."""

    @property
    def renew_seconds(self) -> float | None:
        """How long it may stay idle before `renew` is due; None: for ever."""

    def write(self, batch: Sequence[Work]) -> tuple[int, StoreError | None]:
        """Commit as much of the batch as can be, in order: how many, and why not the next one.

        Raises StoreError if nothing of it was stored. Synced to disk if anything in it must be durable.
        """

    def renew(self) -> None:
        """Nothing was written for a while: tell others that it is still held, where that is due, and use less memory.

        Raises StoreFencedError if it is not held any more.
        """

    def close(self, *, is_sound: bool) -> None:
        """Give it up; `is_sound`: no write has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A session, taken over for writing."""

    holding: Holding
    epoch: int
    """1 for the first process that writes to it, one more for each later one."""
    session: SessionId
    state: SessionState
    last_seq: int
    hashes: Mapping[Ticket, str]


class Place(Protocol):
    """Where one session is kept. Reading never disturbs its writer; all methods block."""

    def __str__(self) -> str:
        """For messages: names no password."""

    @property
    def name(self) -> str:
        """What the session is called in commands."""

    def create(self, session: SessionId, *, now: str) -> None:
        """Make an empty session, whole or not at all. Raises StoreError if there is one already."""

    def take_over(self, *, now: str) -> Opened:
        """Become its writer. Raises StoreBusyError, which names who is, and UsageError if there is no such session."""

    def read_session(self) -> SessionId:
        """The id of the session. Raises UsageError if there is none."""

    def events(self, *, after: int = 0, is_outline: bool = False) -> Iterator[Stored]:
        """The committed events with a greater number, in order. Raises StoreError at the first damaged one.

        `is_outline` leaves out most of what others than the Planner said and did (`outline.py`).
        """

    def history(self, agent: AgentId) -> tuple[Stored, ...]:
        """The replies and tool results of an agent, in order."""

    def artifact(self, ticket: Ticket) -> bytes | None:
        """The content that the ticket stands for; None if there is none."""

    def exists(self) -> bool:
        """Whether there is such a session."""

    def holder(self) -> str | None:
        """The living process that may write to it, for people; None: there is none."""

    def reserved(self, *, now: str) -> AbstractContextManager[None]:
        """While it lasts nobody can write to the session, be it there or not. Raises StoreBusyError if somebody can."""

    def forget(self) -> None:
        """Remove the session and all that belongs to it."""


class Sessions(Protocol):
    """Where sessions are kept."""

    def __str__(self) -> str:
        """For people: names no password."""

    def check(self) -> None:
        """Raise StoreError if nothing can be asked of it now, such as a server that does not answer."""

    def place(self, session: str) -> Place:
        """The session's place. Raises UsageError for what can be no session's name."""

    def left_seconds(self, session: str) -> float:
        """How long to leave it alone: its holder is gone, and commands may still run that this process can't end."""

    def rows(self) -> list[SessionRow]:
        """All sessions, newest first; one that cannot be read is in the list with its problem."""

    def marks(self, sessions: Sequence[str]) -> Mapping[str, Hashable]:
        """For each a value that changes when its log is written to; sessions that are not there are missing.

        Cheap enough to be asked many times a second for many sessions. It may change a moment before what was written
        can be read (a file is synced in between), and although nothing is new.
        """


def state_at(place: Place) -> SessionState:
    """The log folded, up to the last committed event."""
    return fold_stored(place.events())


def unsettled_seconds(place: Place) -> float:
    """How long the last process worked on the session, by the times of its first and last event.

    Who forked it did not work on it.
    """
    began = ended = None
    for stored in place.events():
        if isinstance(stored.event, SessionForked):
            continue
        ended = stored.at
        if began is None or isinstance(stored.event, SessionResumed):
            began = stored.at
    if began is None or ended is None:
        return 0.0
    seconds = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    return round(max(0.0, seconds.total_seconds()), 3)


def idle_seconds(place: Place, *, after: int, now: str) -> float | None:
    """How long ago the newest of the events behind a place was written; None: there are none.

    Of a session that was only forked since, it is the newest of those that were copied.
    """
    newest = [*place.events(after=after)][-1:]
    if newest and isinstance(newest[0].event, SessionForked):
        newest = [*islice(place.events(after=newest[0].event.cut - 1), 1)]
    if not newest:
        return None
    seconds = datetime.fromisoformat(now) - datetime.fromisoformat(newest[0].at)
    return round(max(0.0, seconds.total_seconds()), 3)


def state_or_none(place: Place) -> SessionState | None:
    """How far a session came, if it can be read."""
    try:
        return state_at(place)
    except (StoreError, UsageError):
        return None
