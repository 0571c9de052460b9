"""Blocks for a terminal, in its width. Needs rich, and is imported only where somebody sees it."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console as Terminal
from rich.console import JustifyMethod, RenderableType
from rich.table import Table as RichTable
from rich.text import Text
from rich.tree import Tree as RichTree

from xnagent.inspect.blocks import Block, Branch, Heading, Lines, Pairs, Table, Tree
from xnagent.inspect.plain import NUMBER, UNKNOWN, visible

LEAST_WIDTH: Final = 20
READABLE: Final = 28
"""So wide a column of text has to be at least, if it is longer."""
GAP: Final = 2
STYLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("completed", "cached", "passed", "ok", "holds", "yes"), "green"),
    **dict.fromkeys(("partly", "fresh", "working", "running", "queued", "interrupted", "active"), "yellow"),
    **dict.fromkeys(("failed", "cancelled", "retracted", "dropped", "no result"), "red"),
    UNKNOWN: "dim",
}
"""Of a cell or a status by its whole text."""


def drawn(blocks: Iterable[Block], columns: int) -> str:
    """The blocks as text for a terminal of so many columns; without colours where `NO_COLOR` is set."""
    is_plain = bool(os.environ.get("NO_COLOR"))
    terminal = Terminal(
        file=io.StringIO(),
        force_terminal=True,
        color_system=None if is_plain else "standard",
        width=max(LEAST_WIDTH, columns),
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    with terminal.capture() as capture:
        for number, block in enumerate(blocks):
            if number:
                terminal.print()
            for part in _parts(block, terminal.width):
                terminal.print(part)
    return "\n".join(line.rstrip(" ") for line in capture.get().split("\n"))


def _parts(block: Block, width: int) -> Iterable[RenderableType]:
    match block:
        case Table():
            return _table(block, width)
        case Tree():
            return [_tree(block)] if block.branches else []
        case Pairs():
            return [_pairs(block)]
        case Lines():
            return [Text(visible(block.text, keep="\n"))]


def _cell(text: str) -> Text:
    shown = visible(text)
    return Text(shown, style=STYLES.get(shown.partition(" (")[0], ""))


def _pairs(block: Pairs) -> RichTable:
    grid = RichTable.grid(padding=(0, GAP, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in block.told:
        grid.add_row(Text(name), _cell(value))
    return grid


def _tree(block: Tree) -> RichTree:
    root = RichTree(Text(block.title, style="bold"), guide_style="dim")
    waiting = [(root, branch) for branch in reversed(block.branches)]
    while waiting:
        above, branch = waiting.pop()
        node = above.add(_line(branch))
        waiting += [(node, below) for below in reversed(branch.branches)]
    return root


def _line(branch: Branch) -> Text:
    text = Text(visible(branch.text), overflow="fold")
    return text.append(" ").append_text(_cell(branch.status)) if branch.status else text


def _table(block: Table, width: int) -> Iterable[RenderableType]:
    title = [Text(block.title, style="bold")] if block.title else []
    if not block.rows:
        return title
    cells = [[visible(cell) for cell in column] for column in zip(*block.rows, strict=True)]
    widths, hidden = fitting(block.headings, cells, width=width)
    made = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for number, room in widths.items():
        side: JustifyMethod = "right" if _is_number(cells[number]) else "left"
        made.add_column(Text(block.headings[number].title), justify=side, width=room, overflow="fold")
    for row in block.rows:
        made.add_row(*(_cell(row[number]) for number in widths))
    more = [Text(f"no room for: {', '.join(hidden)} (a wider terminal, or --json)", style="dim")] if hidden else []
    return [*title, made, *more]


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
    return _grown(least, whole, room=width - _taken(least)), [headings[n].title for n in sorted(hidden)]


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
