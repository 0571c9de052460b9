"""Live progress on stderr: a line that changes where a person watches, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from xnagent.cli.console import Console
from xnagent.cli.told import detail_line, milestone, standing, usage_line
from xnagent.core.events import Stored
from xnagent.core.spine_events import ReplyReceived
from xnagent.core.state import SessionState
from xnagent.core.text import Json
from xnagent.inspect.plain import line

PAUSE_SECONDS: Final = 3.0
LIVE_WIDTH: Final = 100


class Progress:
    """Told of every event; decides what to show."""

    def __init__(self, console: Console, *, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._begun = now()
        self._shown_at = now()
        self._shown = ""
        self._is_live = console.is_terminal and console.verbosity == 0

    def note(self, stored: Stored, record: dict[str, Json]) -> None:
        """One event happened."""
        if self._console.verbosity > 0:
            self._console.warn(detail_line(record))
        if isinstance(stored.event, ReplyReceived) and self._console.verbosity > 0:
            self._console.warn(usage_line(stored.event))
        text = milestone(stored.event)
        if text is not None and self._console.verbosity >= 0:
            self.clear()
            self._console.say(line(text, 200))

    def tick(self, state: SessionState) -> None:
        """Some time went by."""
        if self._console.verbosity < 0 or state.started is None:
            return
        text = standing(state)
        if self._is_live:
            self._console.draw(line(f"{self._now() - self._begun:,.0f} s  {text}", LIVE_WIDTH))
        elif text != self._shown and self._now() - self._shown_at >= PAUSE_SECONDS:
            self._shown, self._shown_at = text, self._now()
            self._console.say(text)

    def clear(self) -> None:
        """Take the live line away."""
        if self._is_live:
            self._console.draw("")
