"""`xnagent inspect`: a session's log as tables or JSON."""

from __future__ import annotations

import importlib
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Final

from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.cli.looking import INSPECT_PARTS
from xnagent.cli.skim import can_skim, skim, uncollected
from xnagent.cli.wanted import has_wishes, wanted_of
from xnagent.core.fold import fold_all
from xnagent.core.text import Json
from xnagent.errors import UsageError
from xnagent.inspect.blocks import Block, plain
from xnagent.inspect.filters import Wanted
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import ANY_EVENT, document, overview_blocks, part_blocks
from xnagent.inspect.sql import DEFAULT_ROWS, answer_blocks, ask
from xnagent.store.codec import record_lines
from xnagent.store.place import Place
from xnagent.store.records import Records

ANSWER_SECONDS: Final = 10.0
"""So long may a question take, once the session is read."""


def execute(arguments: Namespace, console: Console) -> int:
    """Show the asked parts, or an overview; or answer a question in SQL."""
    parts = [part for part in INSPECT_PARTS if getattr(arguments, part, False)]
    place, is_text = host_of(arguments).place(arguments.session), console.output == "text"
    is_skimmed = not has_wishes(arguments) and can_skim(parts, is_text=is_text)
    with uncollected():
        reading = skim(place) if is_skimmed else read(place)
        wanted = wanted_of(arguments, reading)
        if not hasattr(arguments, "sql"):
            _show(reading, parts or (["events"] if wanted != ANY_EVENT else []), console=console, wanted=wanted)
            return 0
        if parts or wanted != ANY_EVENT:
            raise UsageError("USAGE: --sql is a question of its own; give it without parts and without filters")
        return answer(arguments, reading, console=console)


def _show(reading: Reading, parts: Sequence[str], *, console: Console, wanted: Wanted) -> None:
    if console.output != "text":
        console.record(document(reading, parts, wanted=wanted))
    elif parts:
        show(
            console, [block for part in parts for block in part_blocks(reading, part, mask=console.mask, wanted=wanted)]
        )
    else:
        show(console, overview_blocks(reading, mask=console.mask))


def answer(arguments: Namespace, reading: Reading, *, console: Console) -> int:
    """The answer to `--sql`: a table, or its rows as objects."""
    limit, end = getattr(arguments, "limit", DEFAULT_ROWS), time.monotonic() + ANSWER_SECONDS
    found = ask(reading, arguments.sql, limit=limit, is_over=lambda: time.monotonic() > end)
    if console.output != "text":
        told: Json = {"columns": found.columns, "rows": found.objects, "is_whole": found.is_whole}
        console.record({"session": reading.session, "sql": told})
        return 0
    show(console, answer_blocks(found, mask=console.mask))
    if not found.is_whole:
        console.say(f"xnagent: these are the first {limit:,} rows; --limit N shows more")
    return 0


def show(console: Console, blocks: Sequence[Block]) -> None:
    """The blocks in the terminal's width, or as plain text where there is none."""
    columns = console.columns
    if columns is None:
        console.answer(plain(blocks))
    else:
        console.raw(importlib.import_module("xnagent.cli.drawn").drawn(blocks, columns).encode())


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
        records=Records(session, events),
        lines=partial(record_lines, session, events),
        is_live=is_live,
    )
