"""Where an edit's old text stands in a file: exactly, or by one of five readings that lose nothing.

The ladder is: exact; line ends; trailing whitespace; indentation shifted as a whole; tabs for spaces or the other way
round; look-alike characters. Likeness alone never counts: on each rung the text must be the same after one named
normalisation.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MAX_PLACES: Final = 10_000
"""More are not looked for."""

LINE_END: Final = re.compile(r"\r?\n")
LOOK_ALIKES: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\uff07", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\uff02", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000", " "),
    }
)
"""One character for one, so that positions stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A piece of the file's text and what shall stand there."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The places on the first rung that has any."""

    matches: tuple[Match, ...] = ()
    rung: str = ""
    """How the text had to be read; empty: exactly."""
    is_lossless: bool = True
    """Several places may be replaced at once."""


def find(text: str, old: str, *, new: str, is_all: bool) -> Found:
    """All places of `old` on the first rung of the ladder that has any."""
    exact = [
        Match(start=at, end=at + len(old), new=_with_line_ends(text, (at, at + len(old)), old=old, new=new))
        for at in itertools.islice(_positions(text, old, overlapping=not is_all), MAX_PLACES)
    ]
    if exact:
        return Found(matches=tuple(exact))
    view = _View(text)
    wanted = _Wanted(old=_lf(old), new=_lf(new), is_raw="\r" in new)
    rungs: tuple[tuple[str, bool, Callable[[], Iterator[tuple[int, int, str]]]], ...] = (
        ("line ends (CRLF or LF) were not compared", True, lambda: _same_text(view, wanted, overlapping=not is_all)),
        ("trailing whitespace was not compared", False, lambda: _same_but_trailing(view, wanted)),
        ("the indentation was shifted to the file's", False, lambda: _same_but_shifted(view, wanted)),
        ("the indentation was written with the file's tabs or spaces", False, lambda: _same_but_tabs(view, wanted)),
        ("look-alike quotes, dashes or spaces were taken as equal", False, lambda: _same_looks(view, wanted)),
    )
    for rung, is_lossless, places in rungs:
        matches = tuple(
            view.match(start, end, new=put, wanted=wanted) for start, end, put in itertools.islice(places(), MAX_PLACES)
        )
        if matches:
            return Found(matches=matches, rung=rung, is_lossless=is_lossless)
    return Found()


def replaced(text: str, matches: Sequence[Match]) -> str:
    """The text with every match replaced; all else stays, byte for byte."""
    pieces: list[str] = []
    done = 0
    for match in matches:
        pieces += [text[done : match.start], match.new]
        done = match.end
    return "".join([*pieces, text[done:]])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Old and new text with LF line ends."""

    old: str
    new: str
    is_raw: bool
    """The model wrote CR itself: the new text stands as it is."""

    @property
    def lines(self) -> list[str]:
        return self.old.removesuffix("\n").split("\n")

    @property
    def has_words(self) -> bool:
        return bool(self.old.strip())


class _View:
    """A text with LF line ends, and the way back to its own positions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lf = _lf(text)
        crlf = re.finditer(r"\r\n", text) if "\r" in text else ()
        self._ends = [match.start() - n for n, match in enumerate(crlf)]
        lines = self.lf.split("\n")
        self.lines = lines[:-1] if not lines[-1] else lines
        self.stripped = [line.strip() for line in self.lines]
        self.starts = list(itertools.accumulate((len(line) + 1 for line in self.lines), initial=0))

    def raw(self, position: int) -> int:
        """The position in the file's text."""
        return position + bisect.bisect_left(self._ends, position)

    def match(self, start: int, end: int, *, new: str, wanted: _Wanted) -> Match:
        """A match in the view as a match in the file's text, with the line ends that stand there."""
        span = self.raw(start), self.raw(end)
        put = new if wanted.is_raw else _with_line_ends(self.text, span, old="", new=new)
        return Match(start=span[0], end=span[1], new=put)

    def window(self, first: int, wanted: _Wanted, *, new: str) -> tuple[int, int, str]:
        """Whole lines from `first` as a match; a final line end belongs to it if the old text has one."""
        start = self.starts[first]
        end = self.starts[first + len(wanted.lines)] - 1
        if not wanted.old.endswith("\n"):
            return start, end, new
        if end < len(self.lf):
            return start, end + 1, new
        return start, end, new.removesuffix("\n")


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n") if "\r" in text else text


def _positions(text: str, old: str, *, overlapping: bool) -> Iterator[int]:
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + (1 if overlapping else len(old)))


def _with_line_ends(text: str, span: tuple[int, int], *, old: str, new: str) -> str:
    """The new text with the line ends of the place where it goes: one by one, then like the last of them."""
    if "\r" in old or "\r" in new or "\n" not in new:
        return new
    ends = LINE_END.findall(text, *span) or [_nearest_end(text, span)]
    count = iter(range(new.count("\n")))
    return re.sub("\n", lambda _: ends[min(next(count), len(ends) - 1)], new)


def _nearest_end(text: str, span: tuple[int, int]) -> str:
    after = LINE_END.search(text, span[1])
    if after:
        return after[0]
    before = text.rfind("\n", 0, span[0])
    return "\r\n" if before > 0 and text[before - 1] == "\r" else "\n"


def _same_text(view: _View, wanted: _Wanted, *, overlapping: bool) -> Iterator[tuple[int, int, str]]:
    for at in _positions(view.lf, wanted.old, overlapping=overlapping):
        yield at, at + len(wanted.old), wanted.new


def _windows(lines: list[str], wanted: list[str]) -> Iterator[int]:
    size, first = len(wanted), -1
    with contextlib.suppress(ValueError):
        while True:
            first = lines.index(wanted[0], first + 1)
            if lines[first : first + size] == wanted:
                yield first


def _same_but_trailing(view: _View, wanted: _Wanted) -> Iterator[tuple[int, int, str]]:
    if not wanted.has_words:
        return
    for first in _windows([line.rstrip() for line in view.lines], [line.rstrip() for line in wanted.lines]):
        yield view.window(first, wanted, new=wanted.new)


def _same_but_shifted(view: _View, wanted: _Wanted) -> Iterator[tuple[int, int, str]]:
    if not wanted.has_words:
        return
    lines = wanted.lines
    for first in _windows(view.stripped, [line.strip() for line in lines]):
        actual = view.lines[first : first + len(lines)]
        new = _shifted(wanted.new, _shift(actual, lines))
        if new is not None:
            yield view.window(first, wanted, new=new)


def _same_but_tabs(view: _View, wanted: _Wanted) -> Iterator[tuple[int, int, str]]:
    if not wanted.has_words:
        return
    lines = wanted.lines
    for first in _windows(view.stripped, [line.strip() for line in lines]):
        new = _converted(wanted.new, _unit(view.lines[first : first + len(lines)], lines))
        if new is not None:
            yield view.window(first, wanted, new=new)


def _unit(actual: Sequence[str], given: Sequence[str]) -> tuple[str, str] | None:
    """Which piece of the given indentation stands for which of the file's: so many spaces for a tab, or a tab for them.

    None: no one piece does for all lines.
    """
    pairs = {
        (_indent(real), _indent(line))
        for real, line in zip(actual, given, strict=True)
        if line.strip() and real != line
    }
    real, line = next(iter(sorted(pairs)), ("", ""))
    tabs, spaces = (real, line) if "\t" in real else (line, real)
    if not tabs or tabs.strip("\t") or not spaces or spaces.strip(" ") or len(spaces) % len(tabs):
        return None
    width = " " * (len(spaces) // len(tabs))
    unit = (width, "\t") if tabs == real else ("\t", width)
    return unit if all(_in_units(own, unit) == actual_indent for actual_indent, own in pairs) else None


def _in_units(indent: str, unit: tuple[str, str]) -> str | None:
    count, rest = divmod(len(indent), len(unit[0]))
    return unit[1] * count if not rest and indent == unit[0] * count else None


def _converted(text: str, unit: tuple[str, str] | None) -> str | None:
    if unit is None:
        return None
    lines = text.split("\n")
    indents = [_in_units(_indent(line), unit) if line.strip() else "" for line in lines]
    if None in indents:
        return None
    return "\n".join(f"{indent}{line.lstrip()}" for indent, line in zip(indents, lines, strict=True))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _shift(actual: Sequence[str], given: Sequence[str]) -> tuple[str, str] | None:
    """What to take from the front of each line and what to put there; None: not the same for all lines."""
    shifts = {
        _difference(real.rstrip(), line.rstrip()) for real, line in zip(actual, given, strict=True) if line.strip()
    }
    return shifts.pop() if len(shifts) == 1 else None


def _difference(actual: str, given: str) -> tuple[str, str] | None:
    if actual.endswith(given):
        return "", actual.removesuffix(given)
    return (given.removesuffix(actual), "") if given.endswith(actual) else None


def _shifted(text: str, shift: tuple[str, str] | None) -> str | None:
    if shift is None:
        return None
    taken, put = shift
    lines = text.split("\n")
    if not all(line.startswith(taken) for line in lines if line.strip()):
        return None
    return "\n".join(put + line.removeprefix(taken) if line.strip() else line for line in lines)


def _same_looks(view: _View, wanted: _Wanted) -> Iterator[tuple[int, int, str]]:
    """Only what differs between old and new is replaced, so that the file's own characters around it stay."""
    if not wanted.has_words:
        return
    head = _common(wanted.old, wanted.new)
    tail = _common(wanted.old[head:][::-1], wanted.new[head:][::-1])
    put = wanted.new[head : len(wanted.new) - tail]
    old = wanted.old.translate(LOOK_ALIKES)
    for at in _positions(view.lf.translate(LOOK_ALIKES), old, overlapping=True):
        yield at + head, at + len(old) - tail, put


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
