"""Sessions as files in a folder: one SQLite file each."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from xnagent.core.events import Stored
from xnagent.core.ids import AgentId, SessionId, Ticket
from xnagent.core.values import dataclass
from xnagent.store.lock import acquire, holder_of, is_held
from xnagent.store.marks import file_mark
from xnagent.store.opening import create_file, open_for_writing
from xnagent.store.place import Opened
from xnagent.store.reading import read_artifact, read_events, read_history, read_session
from xnagent.store.sessions import SessionRow, list_sessions, session_path, sessions_folder

SUFFIXES = ("", "-wal", "-shm", ".lock")


@dataclass(frozen=True, slots=True)
class FilePlace:
    """One session's file."""

    path: Path

    def __str__(self) -> str:
        """The file's path."""
        return str(self.path)

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self.path.stem

    def create(self, session: SessionId, *, now: str) -> None:
        """Make the file."""
        create_file(self.path, session=session, now=now)

    def take_over(self, *, now: str) -> Opened:
        """Lock the file and open it."""
        return open_for_writing(self.path, now=now)

    def read_session(self) -> SessionId:
        """As the file says, whatever it is called."""
        return read_session(self.path)

    def events(self, *, after: int = 0, is_outline: bool = False) -> Iterator[Stored]:
        """Through a read-only connection."""
        return read_events(self.path, after=after, is_outline=is_outline)

    def history(self, agent: AgentId) -> tuple[Stored, ...]:
        """Through a read-only connection."""
        return read_history(self.path, agent)

    def artifact(self, ticket: Ticket) -> bytes | None:
        """Through a read-only connection."""
        return read_artifact(self.path, ticket)

    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.exists()

    def holder(self) -> str | None:
        """Who has its lock."""
        return holder_of(self.path) if is_held(self.path) else None

    @contextmanager
    def reserved(self, *, now: str) -> Iterator[None]:
        """Hold its lock."""
        lock = acquire(self.path, since=now)
        try:
            yield
        finally:
            lock.release()

    def forget(self) -> None:
        """Remove the file and what stands beside it."""
        for suffix in SUFFIXES:
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class FileSessions:
    """The sessions of one home."""

    home: Path

    def __str__(self) -> str:
        """The folder."""
        return str(sessions_folder(self.home))

    def check(self) -> None:
        """A folder that cannot be used is told when a file is made or read."""

    def place(self, session: str) -> FilePlace:
        """The session's file."""
        return FilePlace(session_path(self.home, session))

    def left_seconds(self, _session: str) -> float:
        """Whoever has the file can end what was left."""
        return 0.0

    def rows(self) -> list[SessionRow]:
        """What is in the folder."""
        return list_sessions(sessions_folder(self.home))

    def marks(self, sessions: Sequence[str]) -> dict[str, Hashable]:
        """What the file system says of each file and its write-ahead log: no file is opened."""
        found = {session: file_mark(session_path(self.home, session)) for session in sessions}
        return {session: mark for session, mark in found.items() if mark is not None}
