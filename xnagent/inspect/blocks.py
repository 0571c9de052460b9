"""What `inspect` shows to people, before anybody says how it is drawn: pairs, tables, trees, lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xnagent.inspect.plain import table, visible

INDENT = "  "
LABEL_WIDTH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A column."""

    title: str
    rank: int = 0
    """A column of a higher rank is left out first where there is no room for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells under headings. Whoever draws it makes what a terminal would obey visible."""

    title: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A line of a tree with what stands below it."""

    text: str
    status: str = ""
    """One word that says how it stands; shown behind the text."""
    branches: Sequence[Branch] = ()

    @property
    def line(self) -> str:
        """Text and status."""
        return f"{self.text} [{self.status}]" if self.status else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Branches under a title."""

    title: str
    branches: Sequence[Branch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Names with their values; those without a value are left out."""

    rows: Sequence[tuple[str, str]]

    @property
    def told(self) -> Sequence[tuple[str, str]]:
        """Those with a value."""
        return [(name, value) for name, value in self.rows if value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Text as it is."""

    text: str


Block: TypeAlias = Table | Tree | Pairs | Lines


def plain(blocks: Iterable[Block]) -> str:
    """The blocks for whatever is no terminal: one after the other, an empty line between them."""
    return "\n\n".join(text for block in blocks if (text := _plain(block)))


def _plain(block: Block) -> str:
    match block:
        case Table():
            cells = table([heading.title for heading in block.headings], block.rows)
            return f"{block.title}\n{cells}" if block.title else cells
        case Tree():
            return "\n".join([block.title, *_indented(block.branches, depth=0)]) if block.branches else ""
        case Pairs():
            return "\n".join(f"{name:<{LABEL_WIDTH}}{visible(value)}" for name, value in block.told)
        case Lines():
            return visible(block.text, keep="\n")


def _indented(branches: Iterable[Branch], *, depth: int) -> Iterator[str]:
    for branch in branches:
        yield f"{INDENT * depth}{visible(branch.line)}"
        yield from _indented(branch.branches, depth=depth + 1)
