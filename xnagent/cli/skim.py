"""Reads of a session what was asked for: of most parts an outline will do, and it takes a third of the time."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from xnagent.core.evolve import evolve
from xnagent.core.fold import fold_all
from xnagent.core.spine_events import DENIED
from xnagent.inspect.reading import Reading
from xnagent.store.outline import is_work_of_others, without_work
from xnagent.store.place import Place

OUTLINED: Final = frozenset({"spine", "deltas", "rebases", "requests", "tasks"})
"""The parts that an outline has. `runs` tells of every call and its result, `facts` by whose call one was retracted;
`cost` tells what estimates turned out to be, and needs every text for that."""


def can_skim(parts: Collection[str], *, is_text: bool) -> bool:
    """Whether an outline will do; no parts: an overview as text, or all there is as an object."""
    return OUTLINED.issuperset(parts) and (bool(parts) or is_text)


def skim(place: Place) -> Reading:
    """The session as it is there now, but for what an outline leaves out."""
    # Asked before reading: a session that ends in between is then complete in what is read.
    is_live = place.holder() is not None
    outline = tuple(place.events(is_outline=True))
    events = without_work(outline)
    state = fold_all(stored.event for stored in events)
    denied = sum(is_work_of_others(one.event) and getattr(one.event, "code", "") == DENIED for one in outline)
    return Reading(
        session=place.read_session(),
        state=evolve(state, denials=state.denials + denied),
        events=events,
        is_live=is_live,
    )


@contextmanager
def uncollected() -> Iterator[None]:
    """Without searches for garbage: millions of values are made here, and all of them are kept to the end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
