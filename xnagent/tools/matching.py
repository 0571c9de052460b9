"""Where an edit's old text stands in a file: exactly, or by one of five readings that lose nothing.

The ladder is: exact; line ends; trailing whitespace; indentation shifted as a whole; tabs for spaces or the other way
round; look-alike characters. Likeness alone never counts: on each rung the text must be the same after one named
normalisation.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final

from xnagent.core.values import dataclass

MAX_PLACES: Final = 10_000
"""More are not looked for."""
MAX_LOOKS: Final = 1_000_000
"""Lines that are looked at to find whole lines again. Only a text that is the same all over takes more."""
RAREST_OF: Final = 8
"""Of so many of the longest lines the rarest is looked for."""

LINE_END: Final = re.compile(r"\r?\n")
LOOK_ALIKES: Final[Mapping[str, str]] = MappingProxyType(
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


_Places = Iterator[tuple[int, int, str]]
"""Start, end, and what shall stand there."""


def find(text: str, old: str, *, new: str, is_all: bool) -> Found:
    """All places of `old` on the first rung of the ladder that has any."""
    view, wanted = _View(text), _Wanted(given=old, old=_lf(old), new=_lf(new), is_raw="\r" in new)
    found = _lossless(view, wanted, put=new, is_all=is_all)
    if found.matches or not wanted.has_words:
        return found
    rungs: tuple[tuple[str, Callable[[_View, _Wanted], _Places]], ...] = (
        ("trailing whitespace was not compared", _same_but_trailing),
        ("the indentation was shifted to the file's", _same_but_shifted),
        ("the indentation was written with the file's tabs or spaces", _same_but_tabs),
        ("look-alike quotes, dashes or spaces were taken as equal", _same_looks),
    )
    for rung, places in rungs:
        matches = view.matches(places(view, wanted), wanted)
        if matches:
            return Found(matches=matches, rung=rung, is_lossless=False)
    return Found()


def find_lossless(text: str, old: str, *, new: str, is_all: bool) -> Found:
    """All places of `old` on the first two rungs: exactly, or with other line ends."""
    wanted = _Wanted(given=old, old=_lf(old), new=_lf(new), is_raw="\r" in new)
    return _lossless(_View(text), wanted, put=new, is_all=is_all)


def _lossless(view: _View, wanted: _Wanted, *, put: str, is_all: bool) -> Found:
    text, old = view.text, wanted.given
    exact = [
        Match(start=at, end=at + len(old), new=_with_line_ends(text, (at, at + len(old)), old=old, new=put))
        for at in itertools.islice(_positions(text, old, overlapping=not is_all), MAX_PLACES)
    ]
    if exact or not ("\r" in text or "\r" in old):
        return Found(matches=tuple(exact))
    matches = view.matches(_same_text(view, wanted, overlapping=not is_all), wanted)
    return Found(matches=matches, rung="line ends (CRLF or LF) were not compared" if matches else "")


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

    given: str
    """The old text as it came."""
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
        self._spans: dict[tuple[str, ...], tuple[tuple[int, int], ...]] = {}

    @cached_property
    def lf(self) -> str:
        """With LF for CRLF."""
        return _lf(self.text)

    def spans(self, lines: Sequence[str]) -> tuple[tuple[int, int], ...]:
        """Where whole lines stand that are these but for whitespace at their ends; looked for once."""
        stripped = tuple(line.strip() for line in lines)
        if stripped not in self._spans:
            self._spans[stripped] = _stripped_places(self.lf, stripped)
        return self._spans[stripped]

    @cached_property
    def _ends(self) -> list[int]:
        """Where the view has LF for CRLF."""
        if len(self.lf) == len(self.text):
            return []
        return [at + n for n, at in enumerate(itertools.accumulate(map(len, self.text.split("\r\n")[:-1])))]

    def raw(self, position: int) -> int:
        """The position in the file's text."""
        return position + bisect.bisect_left(self._ends, position)

    def match(self, start: int, end: int, *, new: str, wanted: _Wanted) -> Match:
        """A match in the view as a match in the file's text, with the line ends that stand there."""
        span = self.raw(start), self.raw(end)
        put = new if wanted.is_raw else _with_line_ends(self.text, span, old="", new=new)
        return Match(start=span[0], end=span[1], new=put)

    def matches(self, places: _Places, wanted: _Wanted) -> tuple[Match, ...]:
        """As many of the places as are looked for."""
        found = itertools.islice(places, MAX_PLACES)
        return tuple(self.match(start, end, new=put, wanted=wanted) for start, end, put in found)

    def whole(self, span: tuple[int, int], wanted: _Wanted, *, new: str) -> tuple[int, int, str]:
        """Whole lines as a match; a final line end belongs to it if the old text has one."""
        start, end = span
        if not wanted.old.endswith("\n"):
            return start, end, new
        if end < len(self.lf):
            return start, end + 1, new
        return start, end, new.removesuffix("\n")

    def lines(self, span: tuple[int, int]) -> list[str]:
        """The lines there."""
        return self.lf[span[0] : span[1]].split("\n")


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


def _same_text(view: _View, wanted: _Wanted, *, overlapping: bool) -> _Places:
    for at in _positions(view.lf, wanted.old, overlapping=overlapping):
        yield at, at + len(wanted.old), wanted.new


def _stripped_places(text: str, lines: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Where whole lines stand that are these stripped ones; nowhere, if it takes too many looks to tell.

    Looked for is a rare one of them; only around its places the text is looked at line by line.
    """
    middle = _rare(text, lines)
    anchor, above, below = lines[middle], lines[:middle], lines[middle + 1 :]
    places: list[tuple[int, int]] = []
    looks = _Looks()
    found = text.find(anchor)
    while found >= 0 and looks.left > 0:
        start, end = text.rfind("\n", 0, found) + 1, _line_end(text, found)
        if text[start:end].strip() == anchor:
            first = _reach_up(text, start, lines=above, looks=looks)
            last = None if first is None else _reach_down(text, end, lines=below, looks=looks)
            if first is not None and last is not None:
                places.append((first, last))
        found = text.find(anchor, end)
    return tuple(places) if looks.left > 0 else ()


@dataclass(slots=True)
class _Looks:
    """At how many lines may still be looked."""

    left: int = MAX_LOOKS


def _rare(text: str, lines: Sequence[str]) -> int:
    """Which of the lines to look for: of the longest ones the rarest."""
    longest = sorted(dict.fromkeys(filter(None, lines)), key=len, reverse=True)[:RAREST_OF]
    return lines.index(min(longest, key=text.count))


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _reach_up(text: str, start: int, *, lines: Sequence[str], looks: _Looks) -> int | None:
    """Where the lines begin that stand right above a line that begins at `start`; None: others stand there."""
    for line in reversed(lines):
        looks.left -= 1
        before = text.rfind("\n", 0, max(0, start - 1)) + 1
        if not start or text[before : start - 1].strip() != line:
            return None
        start = before
    return start


def _reach_down(text: str, end: int, *, lines: Sequence[str], looks: _Looks) -> int | None:
    """Where the lines end that stand right below a line that ends at `end`; what follows the last LF is no line."""
    for line in lines:
        looks.left -= 1
        after = _line_end(text, end + 1)
        if end + 1 >= len(text) or text[end + 1 : after].strip() != line:
            return None
        end = after
    return end


def _same_but_trailing(view: _View, wanted: _Wanted) -> _Places:
    lines = [line.rstrip() for line in wanted.lines]
    for span in view.spans(lines):
        if [line.rstrip() for line in view.lines(span)] == lines:
            yield view.whole(span, wanted, new=wanted.new)


def _same_but_shifted(view: _View, wanted: _Wanted) -> _Places:
    for span in view.spans(wanted.lines):
        new = _shifted(wanted.new, _shift(view.lines(span), wanted.lines))
        if new is not None:
            yield view.whole(span, wanted, new=new)


def _same_but_tabs(view: _View, wanted: _Wanted) -> _Places:
    for span in view.spans(wanted.lines):
        new = _converted(wanted.new, _unit(view.lines(span), wanted.lines))
        if new is not None:
            yield view.whole(span, wanted, new=new)


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


def _same_looks(view: _View, wanted: _Wanted) -> _Places:
    """Only what differs between old and new is replaced, so that the file's own characters around it stay."""
    head = _common(wanted.old, wanted.new)
    tail = _common(wanted.old[head:][::-1], wanted.new[head:][::-1])
    put = wanted.new[head : len(wanted.new) - tail]
    old = _plain(wanted.old)
    for at in _positions(_plain(view.lf), old, overlapping=True):
        yield at + head, at + len(old) - tail, put


def _plain(text: str) -> str:
    """The text without look-alikes. One after the other is much faster than `translate` on what is not ASCII."""
    for odd, plain in () if text.isascii() else LOOK_ALIKES.items():
        text = text.replace(odd, plain)
    return text


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
