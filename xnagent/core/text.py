"""Text that may be stored and sent: clean code points, canonical JSON, cuts that say what they cut."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | Mapping[str, Json] | Sequence[Json] | None"
"""A JSON value."""


def clean(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD, so that the text can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def canonical(value: Json) -> str:
    """JSON whose bytes depend on the value alone: sorted keys, no spaces, no escapes that are not needed."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def clip(text: str, limit: int, *, head_share: float = 0.5, how_to_get: str = "") -> str:
    """Keep head and tail and say how many characters were left out; never longer than `limit`, so never cut twice.

    `head_share` is the part of the kept text that comes from the beginning; `how_to_get` tells the reader where
    the rest is.
    """
    if len(text) <= limit:
        return text
    more = f"; {how_to_get}" if how_to_get else ""
    room = limit - len(_cut(len(text), more))
    if room <= 0:
        return text[: max(0, limit)]
    head = int(room * head_share)
    tail = room - head
    return text[:head] + _cut(len(text) - room, more) + (text[-tail:] if tail else "")


def _cut(count: int, more: str) -> str:
    return f"\n[… {count:,} characters omitted{more} …]\n"


def one_line(text: str) -> str:
    """The text on one line, unable to close a tag around it."""
    return " ".join(text.split()).replace("</", "<\\/")


def first_line(text: str, limit: int = 160) -> str:
    """The first line that is not empty, at most `limit` characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def indented(text: str) -> str:
    """The text as an entry of a list: its further lines are indented, and it cannot close a tag around it."""
    return text.replace("</", "<\\/").replace("\n", "\n  ")
