"""Where the ladder looks, against the plain way of doing it: every window of lines, one after the other."""

from hypothesis import given
from hypothesis import strategies as st

from xnagent.tools.matching import find

PARTS = ("a", "b = 1", "}", "", " ", "\t", "    ", "\u00a0", "\u2019", "'", "é", "\x0b", "\r")
lines = st.lists(st.sampled_from(PARTS), max_size=3).map("".join)
texts = st.lists(lines, max_size=8)


def stripped_windows(text: str, old: str) -> list[int]:
    """The first line of each window that is the old text but for whitespace at the ends of lines."""
    have, want = text.split("\n"), old.removesuffix("\n").split("\n")
    have = have[:-1] if not have[-1] else have
    want = [line.strip() for line in want]
    windows = range(len(have) - len(want) + 1)
    return [at for at in windows if [line.strip() for line in have[at : at + len(want)]] == want]


@given(texts, texts, st.booleans())
def test_lines_are_found_wherever_they_stand_but_for_trailing_whitespace(have, want, is_ended):
    text, old = ("\n".join(part).replace("\r\n", "\n") for part in (have, want))
    old += "\n" if is_ended else ""
    found = find(text, old, new="new", is_all=False)
    if found.rung.startswith("trailing"):
        starts = [text.count("\n", 0, match.start) for match in found.matches]
        ends = [line.rstrip() for line in old.removesuffix("\n").split("\n")]
        trailing = [
            at
            for at in stripped_windows(text, old)
            if [line.rstrip() for line in text.split("\n")[at : at + len(ends)]] == ends
        ]
        assert starts == trailing
        assert all(match.start == 0 or text[match.start - 1] == "\n" for match in found.matches)


@given(texts, st.data())
def test_a_block_of_the_text_is_found_again_with_other_whitespace_behind_its_lines(have, data):
    text = "\n".join(have).replace("\r", "")
    rows = text.split("\n")
    first = data.draw(st.integers(0, len(rows) - 1))
    last = data.draw(st.integers(first, len(rows) - 1))
    old = "\n".join(row.rstrip() + data.draw(st.sampled_from([" ", "  ", "\t "])) for row in rows[first : last + 1])
    found = find(text, old, new="new", is_all=False)
    is_line = last < len(rows) - 1 or rows[last]
    if old.strip() and is_line:
        assert found.matches
        assert found.rung in {"", "trailing whitespace was not compared"}


def test_a_text_that_is_the_same_all_over_is_not_looked_at_line_by_line_for_each_of_its_lines():
    same = "x = 0 \n" * 20_000
    assert not find(same, "x = 0\n" * 2_000 + "y\n", new="new", is_all=False).matches
    found = find(same + "y\n", "x = 0\n" * 2_000 + "y\n", new="new", is_all=False)
    assert [match.end for match in found.matches] == [len(same) + 2]
    assert found.rung == "trailing whitespace was not compared"


def test_where_too_many_looks_would_be_needed_nothing_is_found_rather_than_the_first_of_many():
    assert not find("x = 0 \n  x = 0\n" * 20_000, "x = 0\n" * 500, new="new", is_all=False).matches
    assert not find("x = 0 \n" * 20_000, "x = 0\n" * 500, new="new", is_all=False).matches
