"""A log as flat objects that are made when somebody looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

from xnagent.core.events import Stored
from xnagent.core.ids import SessionId
from xnagent.core.text import Json
from xnagent.store.codec import as_record

Record = Mapping[str, Json]


class Records(Sequence[Record]):
    """What `as_record` makes of events."""

    def __init__(self, session: SessionId, events: Sequence[Stored]) -> None:
        self._session = session
        self._events = events

    @overload
    def __getitem__(self, at: int) -> Record: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Record]: ...

    def __getitem__(self, at: int | slice) -> Record | Sequence[Record]:
        """One is made anew each time."""
        if isinstance(at, slice):
            return Records(self._session, self._events[at])
        return as_record(self._session, self._events[at])

    def __len__(self) -> int:
        """As many as there are events."""
        return len(self._events)
