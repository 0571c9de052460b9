"""Reads a session's log while another task writes it: the one way in which progress and records come about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from xnagent.cli.console import Console
from xnagent.cli.progress import Progress
from xnagent.core.events import Stored
from xnagent.core.fold import fold
from xnagent.core.ids import SessionId
from xnagent.core.state import SessionState
from xnagent.errors import StoreError, UsageError
from xnagent.store.codec import as_record
from xnagent.store.place import Place

POLL_SECONDS: Final = 0.1


class Follower:
    """Shows each event once, in order."""

    def __init__(self, place: Place, session: SessionId, *, console: Console) -> None:
        self.place = place
        self.session = session
        self.state = SessionState()
        self.watch: Callable[[Stored], None] | None = None
        """Told of each event, too."""
        self.seen = 0
        """The number of the last event that was shown or skipped."""
        self._console = console
        self._progress = Progress(console)

    def skip(self) -> None:
        """Begin after what is there already."""
        for stored in self.place.events():
            self.state = fold(self.state, stored.event)
            self.seen = stored.seq

    def advance(self) -> None:
        """Show what is new."""
        if not self.place.exists():
            return
        for stored in self.place.events(after=self.seen):
            self.state = fold(self.state, stored.event)
            self.seen = stored.seq
            if self.watch is not None:
                self.watch(stored)
            record = as_record(self.session, stored)
            if self._console.output == "jsonl":
                self._console.record(record)
            self._progress.note(stored, record)
        self._progress.tick(self.state)

    async def follow(self) -> None:
        """Until cancelled. A reader of stdout that is slow holds up this task only."""
        while True:
            await anyio.to_thread.run_sync(self._try_to_advance)
            await anyio.sleep(POLL_SECONDS)

    def finish(self) -> None:
        """Show the rest."""
        self._try_to_advance()
        self._progress.clear()

    def _try_to_advance(self) -> None:
        try:
            self.advance()
        except (StoreError, UsageError) as error:
            if self._console.verbosity > 0:
                self._console.warn(str(error))
