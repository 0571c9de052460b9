"""Blocks for a terminal, in its width. Needs rich, and is imported only where somebody sees it.

The layout is ours: rich's own tables and trees take a minute for a log of 27,000 events.
"""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from rich.cells import cell_len
from rich.console import Console as Terminal
from rich.console import ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from xnagent.inspect.blocks import LABEL_WIDTH, Block, Branch, Heading, Lines, Pairs, Table, Tree
from xnagent.inspect.plain import NUMBER, UNKNOWN, visible

LEAST_WIDTH: Final = 20
READABLE: Final = 28
"""So wide a column of text has to be at least, if it is longer."""
NARROWEST: Final = 6
"""A column of text that nothing can be taken from."""
GAP: Final = 2
NONE: Final = Style()
BOLD: Final = Style(bold=True)
DIM: Final = Style(dim=True)
STYLES: Final[Mapping[str, Style]] = {
    **dict.fromkeys(("completed", "cached", "passed", "ok", "holds", "yes"), Style(color="green")),
    **dict.fromkeys(
        ("partly", "fresh", "working", "running", "queued", "interrupted", "active"), Style(color="yellow")
    ),
    **dict.fromkeys(("failed", "cancelled", "retracted", "dropped", "no result"), Style(color="red")),
    UNKNOWN: DIM,
}
"""Of a cell or a status by its whole text."""
ONWARD, LAST, BESIDE, BELOW = "├── ", "└── ", "│   ", "    "

Piece = tuple[str, Style]
"""Text without a line break."""
Line = Sequence[Piece]


def drawn(blocks: Iterable[Block], columns: int) -> str:
    """The blocks as text for a terminal of so many columns; without colours where `NO_COLOR` is set."""
    is_plain = bool(os.environ.get("NO_COLOR"))
    terminal = Terminal(
        file=io.StringIO(),
        force_terminal=True,
        color_system=None if is_plain else "standard",
        width=max(LEAST_WIDTH, columns),
        legacy_windows=False,
        _environ={},
    )
    with terminal.capture() as capture:
        terminal.print(_Page(blocks), end="")
    return capture.get()


@dataclass(frozen=True, slots=True)
class _Page:
    """Lines that are laid out already."""

    blocks: Iterable[Block]

    def __rich_console__(self, console: Terminal, options: ConsoleOptions) -> RenderResult:
        sheet = _Sheet(console, options.max_width)
        made = (lines for block in self.blocks if (lines := list(sheet.lines(block))))
        for number, lines in enumerate(made):
            for line in [[], *lines] if number else lines:
                yield from (Segment(text, style) for text, style in _trimmed(line))
                yield Segment.line()


def _trimmed(line: Line) -> Line:
    """Without spaces at the end."""
    pieces = list(line)
    while pieces and not pieces[-1][0].strip(" "):
        pieces.pop()
    return [*pieces[:-1], (pieces[-1][0].rstrip(" "), pieces[-1][1])] if pieces else []


def _style(text: str) -> Style:
    return STYLES.get(text.partition(" (")[0], NONE)


@dataclass(frozen=True, slots=True)
class _Sheet:
    """How blocks become lines of a width."""

    console: Terminal
    width: int

    def lines(self, block: Block) -> Iterator[Line]:
        """The lines of a block."""
        match block:
            case Table():
                yield from self.titled(block.title)
                yield from self.table(block)
            case Tree():
                yield from self.titled(block.title if block.branches else "")
                yield from self.tree(block.branches)
            case Pairs():
                for name, value in block.told:
                    room = self.width - LABEL_WIDTH - 1
                    for n, part in enumerate(self.wrapped(visible(value), room)):
                        yield [(f"{'' if n else visible(name):<{LABEL_WIDTH + 1}}", BOLD), (part, _style(value))]
            case Lines():
                for text in visible(block.text, keep="\n").split("\n"):
                    yield from ([(part, NONE)] for part in self.wrapped(text, self.width))

    def titled(self, title: str, style: Style = BOLD) -> Iterator[Line]:
        """A line of its own; nothing for nothing."""
        if title:
            yield from ([(part, style)] for part in self.wrapped(visible(title), self.width))

    def wrapped(self, text: str, room: int) -> Sequence[str]:
        """The text in lines that are no wider, broken between words where that is possible."""
        width = cell_len(text)
        if width <= room:
            return [text]
        if width == len(text):
            return textwrap.wrap(text, max(1, room), break_on_hyphens=False) or [""]
        return [line.plain.rstrip(" ") for line in Text(text).wrap(self.console, max(2, room), overflow="fold")]

    def table(self, block: Table) -> Iterator[Line]:
        """Headings, a rule and the rows; below, what has no room."""
        if not block.rows:
            return
        cells = [[visible(cell) for cell in column] for column in zip(*block.rows, strict=True)]
        widths, hidden = fitting(block.headings, cells, width=self.width)
        if not widths:
            return
        sides = {n: _is_number(cells[n]) for n in widths}
        titles = [(block.headings[n].title, BOLD) for n in widths]
        yield from self.row(titles, widths=widths, sides=sides, is_heading=True)
        yield [("─" * min(self.width, _taken(widths)), NONE)]
        for row in zip(*(cells[n] for n in widths), strict=True):
            yield from self.row([(cell, _style(cell)) for cell in row], widths=widths, sides=sides)
        if hidden:
            yield from self.titled(f"no room for: {', '.join(hidden)} (a wider terminal, or --json)", DIM)

    def row(
        self, cells: Line, *, widths: Mapping[int, int], sides: Mapping[int, bool], is_heading: bool = False
    ) -> Iterator[Line]:
        """Its lines; those of a heading that is shorter than another stand at the bottom."""
        columns = [self.wrapped(text, room) for (text, _), room in zip(cells, widths.values(), strict=True)]
        if is_heading:
            tallest = max(map(len, columns))
            columns = [[*[""] * (tallest - len(column)), *column] for column in columns]
        for parts in zip_longest(*columns, fillvalue=""):
            line: list[Piece] = []
            for part, (_, style), room, is_right in zip(parts, cells, widths.values(), sides.values(), strict=True):
                space = " " * (room - cell_len(part))
                line += [(space + part if is_right else part + space, style), (" " * GAP, NONE)]
            yield line

    def tree(self, branches: Sequence[Branch]) -> Iterator[Line]:
        """Each branch behind its guides."""
        waiting = [("", branch, n == 0) for n, branch in enumerate(reversed(branches))]
        while waiting:
            before, branch, is_last = waiting.pop()
            after = before + (BELOW if is_last else BESIDE)
            yield from self.branch(branch, guide=before + (LAST if is_last else ONWARD), further=after)
            waiting += [(after, below, n == 0) for n, below in enumerate(reversed(branch.branches))]

    def branch(self, branch: Branch, *, guide: str, further: str) -> Iterator[Line]:
        """Its text, and its status behind that."""
        room = max(NARROWEST, self.width - len(guide))
        parts = self.wrapped(visible(branch.text), room)
        status = f"[{visible(branch.status)}]" if branch.status else ""
        fits = cell_len(parts[-1]) + 1 + cell_len(status) <= room
        for n, part in enumerate(parts):
            end = [(f" {status}", _style(branch.status))] if status and fits and n == len(parts) - 1 else []
            yield [(further if n else guide, DIM), (part, NONE), *end]
        if status and not fits:
            yield [(further, DIM), (status, _style(branch.status))]


def fitting(
    headings: Sequence[Heading], cells: Sequence[Sequence[str]], *, width: int
) -> tuple[dict[int, int], list[str]]:
    """How wide each column is, by its number, and the names of those for which there is no room.

    Columns without a word in them are in neither. Those of the highest rank go first, of the same rank the last.
    """
    whole = {n: _widest(headings[n].title, column) for n, column in enumerate(cells) if _says_something(column)}
    least = {n: wide if _is_number(cells[n]) else min(wide, READABLE) for n, wide in whole.items()}
    hidden: list[int] = []
    while _taken(least) > width and any(headings[n].rank for n in least):
        worst = max(least, key=lambda n: (headings[n].rank, n))
        hidden.append(worst)
        del least[worst]
    _narrow(least, [n for n in least if not _is_number(cells[n])], width=width)
    return _grown(least, whole, room=width - _taken(least)), [headings[n].title for n in sorted(hidden)]


def _narrow(widths: dict[int, int], texts: Sequence[int], *, width: int) -> None:
    """Take from the widest columns of text what is still too much."""
    while texts and _taken(widths) > width:
        widest = max(texts, key=lambda n: widths[n])
        if widths[widest] <= NARROWEST:
            return
        widths[widest] -= 1


def _says_something(column: Iterable[str]) -> bool:
    return any(cell not in {"", UNKNOWN} for cell in column)


def _is_number(column: Iterable[str]) -> bool:
    return all(map(NUMBER.fullmatch, column))


def _widest(title: str, column: Sequence[str]) -> int:
    """A title may stand on several lines above numbers, word by word."""
    words = title.split() if _is_number(column) else [title]
    return max(map(cell_len, (*column, *words)))


def _taken(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _grown(least: Mapping[int, int], whole: Mapping[int, int], *, room: int) -> dict[int, int]:
    """What room is left goes to the columns that are narrower than their text, the narrowest need first."""
    widths = dict(least)
    for number in sorted(widths, key=lambda n: whole[n] - widths[n]):
        more = min(max(0, room), whole[number] - widths[number])
        widths[number] += more
        room -= more
    return widths
