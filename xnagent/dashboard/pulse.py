"""Which logs to read again: those that were written to, until what was written can be read."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from xnagent.store.place import Sessions

WRITTEN_SECONDS: Final = 5.0
"""How long after a write something is looked for: a commit can be read when it is synced, which may take a while."""
SETTLED_SECONDS: Final = 0.2
"""How long after something was found there may be more of the same write."""


@dataclass(slots=True, kw_only=True)
class Pulse:
    """Asks the store what was written to."""

    sessions: Sessions
    _marks: Mapping[str, Hashable] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def due(self, names: Sequence[str]) -> list[str]:
        """Those of the sessions that may have news. Blocks; raises StoreError as the store deserves."""
        marks, now = self.sessions.marks(names), time.monotonic()
        written = {name: now + WRITTEN_SECONDS for name in names if marks.get(name) != self._marks.get(name)}
        waiting = {name: until for name, until in self._until.items() if until > now and name in marks}
        self._marks, self._until = marks, waiting | written
        return list(self._until)

    def found(self, name: str) -> None:
        """Something new was read."""
        if name in self._until:
            self._until[name] = min(self._until[name], time.monotonic() + SETTLED_SECONDS)
