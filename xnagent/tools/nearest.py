"""What stands in a file that is most like a text that is not in it: for error messages, never for replacing."""

from __future__ import annotations

import difflib
import heapq
import itertools
import operator
import re
from collections.abc import Iterator
from typing import Final

from xnagent.core.values import dataclass
from xnagent.tools.pages import numbered

WORD: Final = re.compile(r"\w+")
MIN_LIKENESS: Final = 0.5
MAX_CANDIDATES: Final = 6
MAX_COMPARED: Final = 1_500
MAX_SEARCHED_LINES: Final = 50_000
MAX_SHOWN_LINES: Final = 12
FEW_WORDS: Final = 8
MAX_RARE: Final = 500
"""Lines up to which a word is looked up place by place; of a more common one each line is asked."""
_NO_WORD: Final = {code: " " for code in range(128) if not WORD.match(chr(code)) and chr(code) != "\n"}


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
    best = _most_like(lines, old, starts=_candidates(lines, old, size=size))
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
    totals = _scores("\n".join(lines), set(WORD.findall("\n".join(old))))
    if size > 1:
        sums = [0, *itertools.accumulate(totals)]
        totals = list(map(operator.sub, sums[size:], sums))
    best = heapq.nlargest(MAX_CANDIDATES, range(len(totals)), key=totals.__getitem__)
    return [at for at in best if totals[at]]


def _scores(text: str, words: set[str]) -> list[int]:
    """How many of the words each line has: few are looked up in the text, for many each line is taken apart."""
    plain = _only_words(text)
    if len(words) > FEW_WORDS:
        return list(map(len, map(words.intersection, map(str.split, plain.split("\n")))))
    spaced = f" {plain} ".replace("\n", " \n ")
    lines = spaced.split("\n")
    scores = [0] * len(lines)
    for marked in (f" {word} " for word in words):
        numbers = list(itertools.islice(_lines_with(spaced, marked), MAX_RARE + 1))
        if len(numbers) > MAX_RARE:
            scores = list(map(operator.add, scores, map(operator.contains, lines, itertools.repeat(marked))))
            continue
        for number in numbers:
            scores[number] += 1
    return scores


def _lines_with(text: str, part: str) -> Iterator[int]:
    """The numbers of the lines that have it, from 0."""
    number = counted = 0
    found = text.find(part)
    while found >= 0:
        number += text.count("\n", counted, found)
        yield number
        counted = text.find("\n", found)
        found = text.find(part, counted) if counted >= 0 else -1


def _only_words(text: str) -> str:
    """The same lines with nothing in them but words and spaces. `translate` is fast for ASCII only."""
    if text.isascii():
        return text.translate(_NO_WORD)
    lines = text.split("\n")
    plain = "\n".join(line if line.isascii() else "" for line in lines).translate(_NO_WORD).split("\n")
    odd = (number for number, line in enumerate(lines) if not line.isascii())
    for number in odd:
        plain[number] = " ".join(WORD.findall(lines[number]))
    return "\n".join(plain)


def _most_like(lines: list[str], old: list[str], *, starts: list[int]) -> tuple[float, int] | None:
    """The likeness of the window that is most like it, and minus its start; of equals the first."""
    matcher = difflib.SequenceMatcher(None, "", _compared(old))
    best: tuple[float, int] | None = None
    for at in starts:
        matcher.set_seq1(_compared(lines[at : at + len(old)]))
        least = best[0] if best else 0.0
        if matcher.real_quick_ratio() >= least and matcher.quick_ratio() >= least:
            found = matcher.ratio(), -at
            best = max(best, found) if best else found
    return best


def _compared(lines: list[str]) -> str:
    return "\n".join(line.strip() for line in lines)[:MAX_COMPARED]


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
