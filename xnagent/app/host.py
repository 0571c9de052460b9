"""What the process gives to its sessions: a home, an environment, time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path

import anyio

from xnagent.core.hooks import Hook
from xnagent.core.ids import SessionId
from xnagent.core.values import dataclass
from xnagent.models.gate import Gates
from xnagent.ports import Clock
from xnagent.store.files import FileSessions
from xnagent.store.history import Past
from xnagent.store.place import Place, Sessions
from xnagent.tools.given import GivenFunction


class SystemClock:
    """The machine's time."""

    def now(self) -> str:
        """UTC as ISO 8601 with milliseconds."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the process gives to its sessions."""

    home: Path
    environ: Mapping[str, str]
    clock: Clock = field(default_factory=SystemClock)
    gates: Gates = field(default_factory=Gates)
    """What all its sessions' calls to models go through."""
    store: Sessions | None = None
    """Where sessions are kept; None: as files in `home`."""
    hooks: tuple[Hook, ...] = ()
    """The user's commands around what sessions do."""
    past: Past = field(default_factory=Past)
    """What earlier sessions used."""
    tools: tuple[GivenFunction, ...] = ()
    """Functions of this program that Workers may call."""

    @property
    def sessions(self) -> Sessions:
        """Where sessions are kept."""
        return self.store or FileSessions(self.home)

    def place(self, session: str) -> Place:
        """Where this session is kept. Raises UsageError for what can be no session's name."""
        return self.sessions.place(session)

    def work_folder(self, session: SessionId) -> Path:
        """Where the session's repositories are."""
        return self.home / "work" / session
