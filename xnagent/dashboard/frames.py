"""Server-sent events as bytes, and a viewer's place between two of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from xnagent.core.text import Json

BEAT: Final = b":\n\n"
"""A comment: it keeps a connection and tells that it is gone."""
RETRY: Final = b"retry: 1000\n\n"
PLACE: Final = re.compile(r"(\d{1,15})-(\d{1,15})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """What a viewer has: `12-1767254400000` is the log up to event 12, and parts drawn up to that millisecond."""

    seq: int = 0
    drawn: int = 0

    def __str__(self) -> str:
        """As it stands in `id:` and comes back in `Last-Event-ID`."""
        return f"{self.seq}-{self.drawn}"


def cursor_of(text: str) -> Cursor:
    """The place that was sent; the beginning for anything else."""
    found = PLACE.fullmatch(text.strip())
    return Cursor() if found is None else Cursor(seq=int(found[1]), drawn=int(found[2]))


def data_of(lines: Iterable[str]) -> bytes:
    """The data of an event: lines none of which holds a line break."""
    return "".join(f"data: {line}\n" for line in lines).encode()


def frame(name: str, data: bytes, *, cursor: object = None) -> bytes:
    """One event; with `cursor` a viewer that comes back says that it has it."""
    place = "" if cursor is None else f"id: {cursor}\n"
    return f"event: {name}\n{place}".encode() + data + b"\n"


def told(name: str, value: Mapping[str, Json], *, cursor: object = None) -> bytes:
    """One event with an object."""
    return frame(name, data_of([json.dumps(value, separators=(",", ":"))]), cursor=cursor)
