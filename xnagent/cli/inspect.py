"""`xnagent inspect`: a session's log as tables or JSON."""

from __future__ import annotations

from argparse import Namespace

from xnagent.cli.arguments import INSPECT_PARTS
from xnagent.cli.console import Console
from xnagent.cli.options import host_of
from xnagent.core.fold import fold_all
from xnagent.core.ids import SessionId
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document, overview_text, part_text
from xnagent.store.codec import as_record
from xnagent.store.lock import is_held
from xnagent.store.reading import read_events, read_session
from xnagent.store.sessions import session_path


def execute(arguments: Namespace, console: Console) -> int:
    """Show the asked parts, or an overview."""
    parts = [part for part in INSPECT_PARTS if getattr(arguments, part, False)]
    reading = read(arguments)
    if console.output != "text":
        console.record(document(reading, parts))
    elif parts:
        console.answer("\n\n".join(part_text(reading, part) for part in parts))
    else:
        console.answer(overview_text(reading))
    return 0


def read(arguments: Namespace) -> Reading:
    """The session that the arguments name."""
    path = session_path(host_of(arguments).home, arguments.session)
    # Asked before reading: a session that ends in between is then complete in what is read.
    is_live = is_held(path)
    events = tuple(read_events(path))
    session = SessionId(read_session(path))
    return Reading(
        session=session,
        state=fold_all(stored.event for stored in events),
        events=events,
        records=[as_record(session, stored) for stored in events],
        is_live=is_live,
    )
