"""The end of the log in memory: what is committed, and what was submitted and is not yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import anyio

from xnagent.core.events import Event, Stored
from xnagent.core.ids import Ticket
from xnagent.core.masking import Mask
from xnagent.core.state import SessionState
from xnagent.store.artifacts import check_same, digest, ticket_of
from xnagent.store.codec import encode, masked
from xnagent.store.folding import fold_new
from xnagent.store.place import Append, Put
from xnagent.store.writer import Operation


class Tail:
    """Gives places to events and folds them ahead; shows the state only as far as it is committed, in order."""

    def __init__(
        self, *, state: SessionState, last_seq: int, hashes: Mapping[Ticket, str], mask: Mask | None = None
    ) -> None:
        self._mask = mask or Mask()
        self._committed = state, last_seq
        self._ahead = state, last_seq
        self._hashes = dict(hashes)
        self._pending: deque[Operation] = deque()
        self._bell = anyio.Event()

    @property
    def committed(self) -> tuple[SessionState, int]:
        """The state, and the place of the newest event in it."""
        self._take_settled()
        return self._committed

    def _take_settled(self) -> None:
        while self._pending and self._pending[0].is_settled:
            operation = self._pending.popleft()
            if operation.error is None and isinstance(operation.work, Append):
                self._committed = operation.work.state, operation.work.last_seq

    @property
    def ahead(self) -> SessionState:
        """The state with what was submitted: what the next event is folded onto."""
        return self._ahead[0]

    def appended(self, events: Iterable[Event], *, at: str, is_durable: bool) -> Append:
        """The events with their places and the state after them. Raises StoreWriteError if they cannot be stored."""
        state, last_seq = self._ahead
        encoded = [masked(*encode(event), mask=self._mask) for event in events]
        rows = tuple(
            (Stored(seq=seq, at=at, event=event), content) for seq, (event, content) in enumerate(encoded, last_seq + 1)
        )
        self._ahead = fold_new(state, (stored for stored, _ in rows)), last_seq + len(rows)
        state, last_seq = self._ahead
        return Append(events=rows, state=state, last_seq=last_seq, is_durable=is_durable)

    def new_content(self, data: bytes, *, is_verbatim: bool) -> tuple[Ticket, Put | None]:
        """The ticket, and what has to be written; None if it was stored or submitted before."""
        data = data if is_verbatim else self._mask.data(data)
        sha = digest(data)
        ticket = ticket_of(sha)
        if ticket in self._hashes:
            check_same(self._hashes[ticket], sha)
            return ticket, None
        self._hashes[ticket] = sha
        return ticket, Put(sha=sha, data=bytes(data))

    def add(self, operation: Operation) -> None:
        """Remember what was submitted, in the order in which it was."""
        self._pending.append(operation)

    def find(self, ticket: Ticket) -> bytes | None:
        """Content that may not be on the disk yet."""
        works = (operation.work for operation in self._pending)
        return next((work.data for work in works if isinstance(work, Put) and ticket_of(work.sha) == ticket), None)

    def ring(self) -> None:
        """Take what is settled, so that nothing keeps it longer, and wake those who wait for news."""
        self._take_settled()
        self._bell.set()
        self._bell = anyio.Event()

    async def news(self) -> None:
        """Wait for the next `ring`."""
        await self._bell.wait()
