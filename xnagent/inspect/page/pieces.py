"""Small pieces that sections are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from xnagent.inspect.page.drawing import mark
from xnagent.inspect.page.markup import Markup, joined, tag

CHUNK: Final = 100
"""Rows of a long list that a browser lays out together, when they come near."""
EMPTY: Final = frozenset({None, ""})


def section(name: str, title: str, *content: object, note: object = "") -> Markup:
    """A part of the page, with its heading."""
    about = [tag("p", note, class_="note")] if note else []
    return tag("section", tag("h2", title), *about, *content, id=name, aria_label=title)


def badge(status: str) -> Markup:
    """A state by sign, word and colour."""
    return tag("span", f"{mark(status)} {status}", class_=f"badge s-{status}")


def quiet(text: str) -> Markup:
    """What is said where there is nothing to show."""
    return tag("p", text, class_="quiet")


def block(text: object) -> Markup:
    """Text as it is, which may be long."""
    return tag("pre", text, tabindex=0)


def fields(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Names and values; those without a value are left out."""
    told = [(name, value) for name, value in pairs if value not in EMPTY]
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in told)) if told else Markup("")


def listed(values: Iterable[object]) -> Markup:
    """Short values in a row."""
    return joined(
        part for n, value in enumerate(values) for part in ((", ", tag("code", value)) if n else (tag("code", value),))
    )


def fold(summary: object, *content: object, name: str | None = None, is_open: bool = False) -> Markup:
    """What is unfolded on demand."""
    return tag("details", tag("summary", summary), *content, id=name, open=is_open)


def chunked(rows: Sequence[Markup]) -> Markup:
    """A list of rows; a long one in chunks, so that a browser need not lay out what is far away."""
    if len(rows) <= 2 * CHUNK:
        return tag("div", *rows)
    return joined(tag("div", *rows[n : n + CHUNK], class_="chunk") for n in range(0, len(rows), CHUNK))
