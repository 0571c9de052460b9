"""Plain text for terminals: nothing in it that a terminal would obey, and columns that line up."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, those that change the direction of text, and those that show as nothing."""
NUMBER: Final = re.compile(r"[-+]?\$?[\d,]+(\.\d+)?( ?(%|s|ms))?|\?|-|")
GAP: Final = "  "
BYTE: Final = 0x100
LARGE_USD: Final = 100.0
UNKNOWN: Final = "?"


def visible(text: str, *, keep: str = "") -> str:
    """The text with what a terminal would obey shown as an escape (`ESC` as x1b); `keep` lists what stays."""
    return UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def _escape(character: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < BYTE else f"\\u{code:04x}"


def line(text: str, limit: int = 100) -> str:
    """The text on one line of at most `limit` characters."""
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns under their names; columns of numbers are aligned at the right."""
    cells = [tuple(columns), *(tuple(visible(cell) for cell in row) for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    is_number = [all(NUMBER.fullmatch(row[n]) for row in cells[1:]) for n in range(len(columns))]
    lines = [
        GAP.join(_pad(cell, width, right=right) for cell, width, right in zip(row, widths, is_number, strict=True))
        for row in cells
    ]
    return "\n".join(text.rstrip() for text in lines)


def _pad(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def count(number: int | None) -> str:
    """A whole number with its thousands apart; `?` if it is not known."""
    return UNKNOWN if number is None else f"{number:,}"


def money(usd: float | None) -> str:
    """Dollars with as many digits as small sums need; `?` if it is not known."""
    if usd is None:
        return UNKNOWN
    if usd < 0:
        return f"-{money(-usd)}"
    usd = abs(usd)
    return f"${usd:,.2f}" if usd >= LARGE_USD else f"${usd:.4f}"


def share(part: int | None, whole: int | None) -> str:
    """A percentage; `?` if either is not known or there is no whole."""
    return UNKNOWN if part is None or not whole else f"{100 * part / whole:.1f} %"


def seconds(duration: float | None) -> str:
    """Seconds with one decimal; `?` if not known."""
    return UNKNOWN if duration is None else f"{duration:,.1f} s"
