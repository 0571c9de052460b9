"""Markup in which all content is data: no text of a session can make a tag, an attribute or a script."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from xnagent.core.text import Json
from xnagent.inspect.plain import visible

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
PIECE: Final = 1_000
"""Lines of an island that are handed on together."""
VOID: Final = frozenset({"br", "input", "link", "meta"})


class Markup(str):
    """Markup that was made here; every other text is escaped before it gets into the page."""

    __slots__ = ()


def shown(value: object) -> Markup:
    """The value as text that is only read: escaped, and what a terminal or a browser would obey made visible."""
    return value if isinstance(value, Markup) else Markup(html.escape(visible(str(value), keep="\n\t")))


def joined(parts: Iterable[object]) -> Markup:
    """The parts one after the other."""
    return Markup("".join(map(shown, parts)))


def tag(element: str, /, *content: object, **attributes: object) -> Markup:
    """An element. `class_` is `class`, `data_new` is `data-new`; attributes that are None or False are left out."""
    told = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{element}{told}>" if element in VOID else f"<{element}{told}>{joined(content)}</{element}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{shown(value)}"'


def island(name: str, values: Iterable[Json]) -> Iterator[str]:
    """Pieces of markup with values for the page's script, one a line.

    Nothing in them can end the element: there is no `<` and only ASCII.
    """
    return island_of(name, map(written, values))


def written(value: Json) -> str:
    """A value as one line of an island: only ASCII, and no `<`."""
    return safe(_encode(value))


def safe(lines: str) -> str:
    """JSON in ASCII, without `<`."""
    return lines.replace("<", "\\u003c")


def island_of(name: str, lines: Iterable[str]) -> Iterator[str]:
    """The same as `island` of lines that `written` or `safe` made."""
    yield f'<script type="application/x-ndjson" id="{shown(name)}">'
    rest, between = iter(lines), ""
    while piece := list(islice(rest, PIECE)):
        yield between + "\n".join(piece)
        between = "\n"
    yield "</script>"
