"""The session's log, opened for writing: `ports.Log` on SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from xnagent.core.ids import SessionId
from xnagent.ports import Clock
from xnagent.store.files import FilePlace
from xnagent.store.placed import PlacedLog


class SessionStore(PlacedLog):
    """One session's file, held by this process until `aclose`."""

    @classmethod
    async def create(cls, path: Path, *, session: SessionId, clock: Clock) -> Self:
        """Make the file of a new session and open it."""
        return await cls.create_at(FilePlace(path), session=session, clock=clock)

    @classmethod
    async def open(cls, path: Path, *, clock: Clock) -> Self:
        """Take a session over. Raises StoreBusyError if another process runs it, and as the file deserves."""
        return await cls.open_at(FilePlace(path), clock=clock)

    @property
    def path(self) -> Path:
        """The file."""
        return Path(str(self.place))
