"""A log that leaves nothing behind, for `--ephemeral`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread

from xnagent.core.events import Event, Stored
from xnagent.core.ids import SessionId
from xnagent.errors import XnagentError
from xnagent.ports import Clock
from xnagent.store.sqlite import SessionStore


class EphemeralLog(SessionStore):
    """A session's log in a temporary folder that is removed on `aclose`; nothing in it is synced to disk."""

    @classmethod
    async def begin(cls, *, session: SessionId, clock: Clock) -> Self:
        """Make the folder and the log in it."""
        folder = Path(await anyio.to_thread.run_sync(tempfile.mkdtemp, None, "xnagent-"))
        try:
            return await cls.create(folder / f"{session}.db", session=session, clock=clock)
        except XnagentError:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    async def append(self, *events: Event, durable: bool = True) -> tuple[Stored, ...]:
        """As `SessionStore.append`, but never synced."""
        return await super().append(*events, durable=False)

    async def aclose(self) -> None:
        """Close the log and remove its folder."""
        await super().aclose()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_remove, self.path.parent)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
