"""Clean code points, canonical bytes, cuts that say what they cut."""

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.text import canonical, clean, clip, first_line

any_characters = st.text(st.characters(codec=None, categories=None) | st.sampled_from("\ud83d\ude00\udcff\ufeff"))


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("ok \ud83d", "ok \ufffd"),
        ("ok \ud83d…", "ok \ufffd…"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("a\udcff", "a\ufffd"),
        ("\ufeffa\udcff", "\ufeffa\ufffd"),
        ("那个 – é 😀", "那个 – é 😀"),
        ("", ""),
    ],
)
def test_B055_half_pairs_are_replaced_and_pairs_joined(raw: str, cleaned: str):
    assert clean(raw) == cleaned


@given(any_characters)
def test_B055_clean_text_can_always_be_sent_and_stays_as_it_is(text: str):
    cleaned = clean(text)
    cleaned.encode()
    assert clean(cleaned) == cleaned
    assert json.loads(canonical(cleaned).encode()) == cleaned


def test_M28_canonical_bytes_do_not_depend_on_the_order_of_keys():
    tools = [{"name": f"t{n}", "parameters": {"type": "object", "b": 1, "a": "é"}} for n in range(5)]
    rng = random.Random(28)
    seen = set()
    for _ in range(100):
        shuffled = [dict(rng.sample(list(tool.items()), len(tool))) for tool in tools]
        seen.add(canonical(shuffled))
    assert len(seen) == 1
    assert canonical({"b": [1, 1.0, True], "a": "é\u2028"}) == '{"a":"é\u2028","b":[1,1.0,true]}'


@given(st.text(max_size=80), st.integers(0, 60), st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_M22_a_cut_keeps_head_and_tail_and_counts_what_is_missing(text: str, limit: int, share: float):
    cut = clip(text, limit, head_share=share)
    if len(text) <= limit:
        assert cut == text
        return
    head, found, tail = cut.partition("\n[… ")
    if found and "\n[… " not in text:
        omitted = int(tail.split(" ", 1)[0].replace(",", ""))
        kept = tail.split(" …]\n", 1)[1]
        assert text.startswith(head)
        assert text.endswith(kept)
        assert len(head) + omitted + len(kept) == len(text)


def test_M22_a_cut_says_how_to_get_the_rest():
    cut = clip("a" * 5_000, 100, how_to_get="see x")
    assert re.fullmatch(r"a+\n\[… 4,9\d\d characters omitted; see x …\]\na+", cut)


@pytest.mark.parametrize("size", [101, 120, 150, 1_000])
def test_M22_M49_a_cut_is_shorter_than_what_it_replaces(size: int):
    assert len(clip("x" * size, 100)) < size


@pytest.mark.parametrize("size", [101, 150, 5_000])
def test_M22_T19_what_was_cut_is_not_cut_again(size: int):
    """The second cut would swallow the first one's notice and report a handful of missing characters."""
    once = clip("x" * size, 100)
    assert clip(once, 100) == once


@pytest.mark.parametrize(
    ("text", "line"),
    [("", ""), ("\n \n", ""), ("\n\n  two \nthree", "two"), ("x" * 200, "x" * 159 + "…"), ("x" * 160, "x" * 160)],
)
def test_the_first_line_is_one_line_and_bounded(text: str, line: str):
    assert first_line(text) == line
