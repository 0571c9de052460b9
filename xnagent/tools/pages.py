"""A text in pages of numbered lines."""

from __future__ import annotations

from typing import Final

from xnagent.core.values import dataclass
from xnagent.tools.outcome import RefusedError
from xnagent.tools.output import clip_line

MAX_LINES: Final = 2_000
MAX_BYTES: Final = 50_000
MAX_LINE: Final = 2_000
MAX_SINGLE_LINE: Final = 48_000
BLOCK_CHARACTERS: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Lines of a text as the model reads them."""

    text: str
    """`N<tab>line` for each line."""
    first: int
    last: int
    total: int
    cut_line: int | None
    """The first line of which only a part is shown."""
    is_single: bool = False
    """One line was asked for, and shown as far as possible."""

    @property
    def footer(self) -> str:
        """What is shown, and how to go on; empty if everything is shown."""
        notes = []
        if self.first > 1 or self.last < self.total:
            more = f"continue with offset={self.last + 1}" if self.last < self.total else "end"
            notes.append(f"[lines {self.first}–{self.last} of {self.total}; {more}]")
        if self.cut_line is not None:
            notes.append(self._about_cut())
        return "\n".join(notes)

    def _about_cut(self) -> str:
        if self.is_single:
            return f"[line {self.cut_line} is cut; find a part of it with grep, or use bash with `cut -c`]"
        return f"[line {self.cut_line} is cut; see up to {MAX_SINGLE_LINE:,} characters of it with limit=1]"


def page(text: str, *, name: str, offset: int = 1, limit: int = MAX_LINES) -> Page:
    """Lines from `offset` (1-based; negative: from the end), as many as the limits allow.

    Raises RefusedError `BAD_ARGS` for an offset behind the end.
    """
    total = count_lines(text)
    first = max(1, total + offset + 1) if offset < 0 else max(1, offset)
    if limit < 1:
        raise RefusedError("BAD_ARGS", f"limit is {limit}, must be at least 1.")
    if first > total:
        raise RefusedError("BAD_ARGS", f"{name} has {total} lines; offset {offset} is behind its end.")
    width = MAX_SINGLE_LINE if limit == 1 else MAX_LINE
    lines: list[str] = []
    cut_line = None
    used = 0
    for number, line in _lines_from(text, first, count=min(limit, MAX_LINES)):
        shown = f"{number}\t{clip_line(line, width)}"
        used += len(shown.encode()) + 1
        if lines and used > MAX_BYTES:
            break
        lines.append(shown)
        cut_line = number if cut_line is None and len(line) > width else cut_line
    return Page(
        text="\n".join(lines),
        first=first,
        last=first + len(lines) - 1,
        total=total,
        cut_line=cut_line,
        is_single=limit == 1,
    )


def _start_of(text: str, line: int) -> int:
    """Where a line begins; blocks before it are only counted."""
    start, left = 0, line - 1
    while start < len(text) and (inside := text.count("\n", start, start + BLOCK_CHARACTERS)) < left:
        start, left = start + BLOCK_CHARACTERS, left - inside
    for _ in range(left):
        start = text.index("\n", start) + 1
    return start


def _lines_from(text: str, first: int, *, count: int) -> list[tuple[int, str]]:
    start = _start_of(text, first)
    found: list[tuple[int, str]] = []
    for number in range(first, first + count):
        if start >= len(text):
            break
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        found.append((number, text[start:end].removesuffix("\r").replace("\r", "\\r")))
        start = end + 1
    return found


def count_lines(text: str) -> int:
    """Lines of a text; a final line end does not begin another line."""
    return text.count("\n") + bool(text and not text.endswith("\n"))


def numbered(text: str, *, first: int, last: int, width: int = 300) -> str:
    """Some lines of a text with their numbers, for showing a region; lines are cut at `width`."""
    shown = _lines_from(text, first, count=last - first + 1) if first <= count_lines(text) else []
    return "\n".join(f"{number}\t{clip_line(line, width)}" for number, line in shown)


def region(text: str, *, first: int, last: int, margin: int = 3, limit: int = 40) -> str:
    """The lines `first` to `last` with some around them; the middle of a large region is left out."""
    top, bottom = max(1, first - margin), min(count_lines(text), last + margin)
    if bottom - top < limit:
        return numbered(text, first=top, last=bottom)
    half = limit // 2
    head = numbered(text, first=top, last=top + half - 1)
    tail = numbered(text, first=bottom - half + 1, last=bottom)
    return f"{head}\n[… {bottom - top + 1 - 2 * half} lines …]\n{tail}"
