"""Shapes of the pictures. Numbers are cut to tenths; colours are classes, so that the style sheet decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from xnagent.inspect.page.markup import Markup, tag

WIDTH: Final = 1000
GUTTER: Final = 116
"""Left of the plot, for names."""
PLOT: Final = WIDTH - GUTTER - 14

MARKS: Final = {
    "completed": "✓",
    "failed": "✗",
    "cancelled": "⊘",
    "dropped": "–",
    "interrupted": "‖",
    "active": "●",
    "working": "●",
    "running": "●",
    "submitted": "◐",
}
"""A state must not be told by its colour alone."""
UNKNOWN_MARK: Final = "○"


def mark(status: str) -> str:
    """The sign of a state."""
    return MARKS.get(status, UNKNOWN_MARK)


def at(share: float) -> float:
    """The place on the plot, from a share of its width."""
    return GUTTER + PLOT * share


def number(value: float) -> str:
    """As short as a tenth of a unit allows."""
    return f"{value:.1f}".removesuffix(".0")


def picture(*content: object, height: float, label: str, width: float = WIDTH) -> Markup:
    """A whole picture; it scrolls sideways where the screen is narrow."""
    box = f"0 0 {number(width)} {number(height)}"
    drawn = tag("svg", tag("title", label), *content, viewBox=box, role="img", width=number(width))
    return tag("div", drawn, class_="scroll", tabindex=0)


def rectangle(x: float, y: float, *, size: tuple[float, float], kind: str, about: str = "") -> Markup:
    """A rectangle of width and height; `about` is shown when it is pointed at."""
    places = {"x": number(x), "y": number(y), "width": number(size[0]), "height": number(size[1])}
    return tag("rect", *([tag("title", about)] if about else []), class_=kind, **places)


def line(start: tuple[float, float], end: tuple[float, float], *, kind: str, about: str = "") -> Markup:
    """A straight line."""
    places = {"x1": number(start[0]), "y1": number(start[1]), "x2": number(end[0]), "y2": number(end[1])}
    return tag("line", *([tag("title", about)] if about else []), class_=kind, **places)


def words(x: float, y: float, *, text: object, kind: str = "label") -> Markup:
    """Text at a place."""
    return tag("text", text, x=number(x), y=number(y), class_=kind)


def diamond(x: float, y: float, *, kind: str, about: str) -> Markup:
    """A small square on its corner."""
    drawn = f"M{number(x)} {number(y - 6)}l5 6l-5 6l-5-6z"
    return tag("path", tag("title", about), d=drawn, class_=kind)


def spans(pieces: Iterable[tuple[float, float]], y: float, *, height: float, kind: str) -> Markup:
    """Many pieces of one lane as a single shape; those that touch are one."""
    drawn: list[tuple[float, float]] = []
    for begin, end in sorted(pieces):
        if drawn and begin <= drawn[-1][1] + 0.4:
            drawn[-1] = drawn[-1][0], max(drawn[-1][1], end)
        else:
            drawn.append((begin, max(end, begin + 0.8)))
    path = "".join(
        f"M{number(begin)} {number(y)}h{number(end - begin)}v{number(height)}h{number(begin - end)}z"
        for begin, end in drawn
    )
    return tag("path", d=path, class_=kind)


def legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """What the colours mean: class and words."""
    return tag("ul", *(tag("li", tag("i", class_=f"key {kind}"), text) for kind, text in entries), class_="legend")
