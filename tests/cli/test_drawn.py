"""Blocks in the width of a terminal."""

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from xnagent.cli.drawn import drawn, fitting
from xnagent.inspect.blocks import Branch, Heading, Lines, Pairs, Table, Tree, plain

STYLES = re.compile(r"\x1b\[[0-9;]*m")
WORDS = st.text("ab 漢é\x1b\u202e-", max_size=60)


def table(*ranks: int, cells: list[str]) -> Table:
    return Table(title="t", headings=[Heading(title=f"c{n}", rank=rank) for n, rank in enumerate(ranks)], rows=[cells])


@given(st.integers(40, 150), st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=3))
def test_no_line_is_wider_than_the_terminal_and_nothing_is_obeyed(width: int, rows: list[tuple[str, str, str]]):
    headings = [Heading(title=name, rank=rank) for name, rank in (("one", 0), ("two", 1), ("three", 0))]
    branches = [Branch(text=a, status=b, branches=[Branch(text=c)]) for a, b, c in rows]
    blocks = [
        Table(title="t", headings=headings, rows=rows),
        Tree(title="tree", branches=branches),
        Pairs(rows=[("name", b) for _, b, _ in rows]),
        Lines(text="\n".join(c for _, _, c in rows)),
    ]
    shown = STYLES.sub("", drawn(blocks, width))
    assert not set(shown) & {"\x1b", "\u202e"}
    assert max(map(cell_len, shown.splitlines()), default=0) <= width


def test_columns_of_the_highest_rank_go_first_and_empty_ones_are_not_missed():
    headings = [Heading(title=name, rank=rank) for name, rank in (("a", 0), ("b", 2), ("c", 1), ("d", 3))]
    cells = [["x" * 20], ["y" * 20], ["z" * 20], [""]]
    assert fitting(headings, cells, width=70) == ({0: 20, 1: 20, 2: 20}, [])
    assert fitting(headings, cells, width=50) == ({0: 20, 2: 20}, ["b"])
    assert fitting(headings, cells, width=30) == ({0: 20}, ["b", "c"])
    assert fitting(headings, cells, width=10) == ({0: 10}, ["b", "c"])


def test_plain_text_has_every_column_and_the_same_words():
    block = table(0, 5, cells=["x" * 90, "y"])
    assert plain([block]).splitlines() == ["t", f"c0{' ' * 90}c1".rstrip(), f"{'x' * 90}  y"]
    tree = Tree(title="tree", branches=[Branch(text="a", status="ok", branches=[Branch(text="b")])])
    assert plain([tree, Tree(title="empty", branches=[])]) == "tree\na [ok]\n  b"
