"""The parts of a live page: the sections of a report, each made anew only when it may have changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from xnagent.core.masking import Mask
from xnagent.dashboard.tailing import Log
from xnagent.inspect.page.changes import patch_tickets
from xnagent.inspect.page.ledger import request_table
from xnagent.inspect.page.markup import Markup
from xnagent.inspect.page.whole import SECTIONS, Sheet, requests_section, told_of

GROWING: Final = frozenset({"requests", "log"})
"""Sections that get lines instead."""
FIXED: Final = frozenset({"found", "noscript"})
PATCHED: Final = tuple(name for name in SECTIONS if name not in GROWING | FIXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A section as it was drawn last."""

    html: Markup
    drawn: int
    """When it last became another one: milliseconds since 1970, later ones greater."""


def sheet_of(log: Log, mask: Mask) -> Sheet:
    """What sections are made from: all that `document` tells, of what the log keeps ready."""
    with log.lock:
        return _sheet(log, mask)


def _sheet(log: Log, mask: Mask) -> Sheet:
    reading = log.reading()
    told = told_of(reading)
    requests = [log.rows[number] for number in sorted(log.rows)]
    shown = cast("dict[str, Any]", mask.value(told)) if mask.grams else told
    shown |= {"events": log.records, "requests": requests}
    texts = log.patches(patch_tickets(shown["final"], shown["runs"]))
    return Sheet(shown=shown, story=log.story, texts=texts)


def redrawn(log: Log, known: Mapping[str, Part], *, mask: Mask, now: int) -> dict[str, Part]:
    """All parts; one that came out the same keeps its time. News is read between two of them."""
    sheet, parts = sheet_of(log, mask), {}
    for name in PATCHED:
        with log.lock:
            html = SECTIONS[name](sheet)
        before = known.get(name)
        parts[name] = before if before is not None and before.html == html else Part(html=html, drawn=now)
    return parts


def ledger_section(log: Log) -> Markup:
    """All requests' lines."""
    with log.lock:
        return requests_section(request_table([log.line_of(number) for number in sorted(log.rows)]))
