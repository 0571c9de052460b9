"""`xnagent inspect`: a session's log as tables or JSON."""

from __future__ import annotations

from argparse import Namespace

from xnagent.cli.arguments import INSPECT_PARTS
from xnagent.cli.console import Console
from xnagent.cli.options import host_of
from xnagent.core.fold import fold_all
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document, overview_text, part_text
from xnagent.store.codec import as_record
from xnagent.store.place import Place


def execute(arguments: Namespace, console: Console) -> int:
    """Show the asked parts, or an overview."""
    parts = [part for part in INSPECT_PARTS if getattr(arguments, part, False)]
    reading = read(host_of(arguments).place(arguments.session))
    if console.output != "text":
        console.record(document(reading, parts))
    elif parts:
        console.answer("\n\n".join(part_text(reading, part) for part in parts))
    else:
        console.answer(overview_text(reading))
    return 0


def read(place: Place) -> Reading:
    """The session as it is there now."""
    # Asked before reading: a session that ends in between is then complete in what is read.
    is_live = place.holder() is not None
    events = tuple(place.events())
    session = place.read_session()
    return Reading(
        session=session,
        state=fold_all(stored.event for stored in events),
        events=events,
        records=[as_record(session, stored) for stored in events],
        is_live=is_live,
    )
