"""Folding that knows whose fault it is when an event does not fit the ones before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xnagent.core.events import Stored
from xnagent.core.fold import Folding
from xnagent.core.state import SessionState
from xnagent.errors import StoreDamagedError, StoreWriteError

FOLD_FAULTS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""How `fold` refuses an event, such as a result without its call."""


def fold_stored(events: Iterable[Stored]) -> SessionState:
    """The state that a file holds. Raises StoreDamagedError with the number of the first event that does not fit."""
    folding = Folding()
    for stored in events:
        try:
            folding.take(stored.event)
        except FOLD_FAULTS as error:
            raise StoreDamagedError(
                f"STORE_EVENT_DAMAGED: event {stored.seq} ({stored.event.type}) does not fit the events before it: "
                f"{error}. The file was left as it is; its events can be read, but it cannot be resumed."
            ) from error
    return folding.state


def fold_new(state: SessionState, events: Iterable[Stored]) -> SessionState:
    """The state after events that are about to be stored.

    Raises StoreWriteError: what cannot be folded must not be stored, or the session could never be opened again.
    """
    folding = Folding(state)
    for stored in events:
        try:
            folding.take(stored.event)
        except FOLD_FAULTS as error:
            raise StoreWriteError(
                f"STORE_EVENT_REFUSED: a {stored.event.type} event does not fit the log: {error}. "
                f"Nothing of this append was stored, everything before it is intact."
            ) from error
    return folding.state
