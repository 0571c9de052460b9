"""The search for the nearest lines, against the plain way of doing it."""

import difflib

from hypothesis import example, given
from hypothesis import strategies as st

from xnagent.tools.nearest import MAX_CANDIDATES, MAX_COMPARED, MIN_LIKENESS, WORD, nearest

WORDS = ("value", "x", "i", "1", "in", "naïve", "поле", "_a", "a_b", "=", "(", "\t", "  ", "\x0b", "\u00a0", "²")
lines = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
joined = st.sampled_from(["\n", "\r\n"])


def plainly(text: str, wanted: str) -> tuple[int, float] | None:
    """First line and likeness: score every window word by word, compare the best ones whole."""
    have, want = text.replace("\r\n", "\n").split("\n"), wanted.replace("\r\n", "\n").strip("\n").split("\n")
    size = min(len(have), len(want))
    words = set(WORD.findall("\n".join(want)))
    scores = [len(words & set(WORD.findall(line))) for line in have]
    windows = [(-sum(scores[at : at + size]), at) for at in range(len(have) - size + 1)]
    found = [(_ratio(have[at : at + size], want), -at) for score, at in sorted(windows)[:MAX_CANDIDATES] if score]
    best = max(found, default=(0.0, 0))
    return (1 - best[1], best[0]) if best[0] >= MIN_LIKENESS else None


def _ratio(one: list[str], other: list[str]) -> float:
    sides = ("\n".join(line.strip() for line in side)[:MAX_COMPARED] for side in (one, other))
    return difflib.SequenceMatcher(None, *sides).ratio()


def found(text: str, wanted: str) -> tuple[int, float] | None:
    near = nearest(text, wanted)
    return near and (near.first, near.likeness)


@given(st.lists(lines, min_size=1, max_size=14), st.lists(lines, min_size=1, max_size=5), joined)
@example(["x x", "x"], ["x x x"], "\n")
def test_the_nearest_lines_are_those_of_the_plain_way(text, wanted, end):
    assert found(end.join(text), end.join(wanted)) == plainly(end.join(text), end.join(wanted))


@given(st.integers(1, 40), st.integers(400, 600), st.data())
def test_words_that_are_everywhere_are_found_as_rare_ones_are(kinds, count, data):
    """Few or many common words, on both sides of where the way of counting changes."""
    text = [" ".join(f"w{number % modulus}" for modulus in range(1, kinds + 1)) for number in range(count)]
    number = data.draw(st.integers(0, count - 1))
    text[number] += " only here"
    wanted = f"{text[number]} or not"
    assert found("\n".join(text), wanted) == plainly("\n".join(text), wanted)
