"""What stands in a file that is most like a text that is not in it: for error messages, never for replacing."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

from xnagent.tools.pages import numbered

WORD: Final = re.compile(r"\w+")
MIN_LIKENESS: Final = 0.5
MAX_CANDIDATES: Final = 6
MAX_COMPARED: Final = 1_500
MAX_SEARCHED_LINES: Final = 50_000
MAX_SHOWN_LINES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """The lines that are most like the text."""

    first: int
    last: int
    likeness: float
    shown: str
    difference: str

    @property
    def report(self) -> str:
        """For the model: where, how alike, what differs first."""
        where = f"lines {self.first}–{self.last}" if self.last > self.first else f"line {self.first}"
        return f"Nearest is {where} ({self.likeness:.0%} alike); {self.difference}\n{self.shown}"


def nearest(text: str, wanted: str) -> Near | None:
    """The window of as many lines that is most like `wanted`; None: nothing is like it."""
    lines = text.replace("\r\n", "\n").split("\n")[:MAX_SEARCHED_LINES]
    old = wanted.replace("\r\n", "\n").strip("\n").split("\n")
    size = min(len(old), len(lines))
    best = max(
        ((_likeness(lines[at : at + size], old), -at) for at in _candidates(lines, old, size=size)), default=None
    )
    if best is None or best[0] < MIN_LIKENESS:
        return None
    first = -best[1] + 1
    return Near(
        first=first,
        last=first + size - 1,
        likeness=best[0],
        shown=numbered(text, first=first, last=min(first + size - 1, first + MAX_SHOWN_LINES - 1)),
        difference=_first_difference(lines[first - 1 : first - 1 + size], old, first=first),
    )


def _candidates(lines: list[str], old: list[str], *, size: int) -> list[int]:
    """Where the words of the text are densest."""
    words = set(WORD.findall("\n".join(old)))
    scores = [len(words.intersection(WORD.findall(line))) for line in lines]
    total = sum(scores[:size])
    sums = [(total, 0)]
    for at in range(1, len(lines) - size + 1):
        total += scores[at + size - 1] - scores[at - 1]
        sums.append((total, -at))
    sums.sort(reverse=True)
    return [-at for score, at in sums[:MAX_CANDIDATES] if score]


def _likeness(lines: list[str], old: list[str]) -> float:
    one, other = ("\n".join(part.strip() for part in side)[:MAX_COMPARED] for side in (lines, old))
    return difflib.SequenceMatcher(None, one, other).ratio()


def _first_difference(lines: list[str], old: list[str], *, first: int) -> str:
    for number, (actual, given) in enumerate(zip(lines, old, strict=False), first):
        if actual != given:
            return f"first difference: line {number}, {_kind(actual, given)}:"
    return "the old text goes on behind them:" if len(old) > len(lines) else "they differ at the edges:"


def _kind(actual: str, given: str) -> str:
    if actual.strip() != given.strip():
        at = next((n for n, (a, b) in enumerate(zip(actual, given, strict=False)) if a != b), 0)
        start = max(0, at - 10)
        return f"the file has {actual[start : at + 30]!r}, old has {given[start : at + 30]!r}"
    if actual.rstrip() == given.rstrip():
        return "trailing whitespace"
    front = actual[: len(actual) - len(actual.lstrip())], given[: len(given) - len(given.lstrip())]
    return f"the file is indented with {_named(front[0])}, old with {_named(front[1])}"


def _named(indent: str) -> str:
    kinds = [(len(re.findall(mark, indent)), name) for mark, name in (("\t", "tabs"), (" ", "spaces"))]
    return " and ".join(f"{count} {name}" for count, name in kinds if count) or "nothing"
