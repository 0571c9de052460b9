"""Edit's ladder against edits that nearly fit: whatever it does, no wrong place is ever changed."""

import itertools

import pytest

from tests.tools.near_misses import KINDS, cases

SEED = 20_261_130
COUNT = 300
RESCUED = {
    "exact": "",
    "CRLF file": "line ends",
    "CRLF in old": "line ends",
    "mixed line ends": "line ends",
    "trailing space in file": "trailing whitespace",
    "trailing space in old": "trailing whitespace",
    "CRLF and trailing space": "trailing whitespace",
    "indentation left out": "shifted",
    "indentation too deep": "shifted",
    "tabs in file": "tabs or spaces",
    "tabs in old": "tabs or spaces",
    "look-alikes in file": "look-alike",
    "look-alikes in old": "look-alike",
    "no-break spaces in file": "look-alike",
    "near-duplicate before it": "",
}


@pytest.mark.parametrize("part", range(6))
async def test_no_wrong_place_is_ever_changed(scene, part):
    made = list(itertools.islice(cases(SEED, COUNT), part * 50, part * 50 + 50))
    for one in made:
        scene.put("f.py", one.file)
        done = await scene.do("edit", path="f.py", old=one.old, new=one.new)
        after = scene.bytes_of("f.py")
        if one.wanted is None:
            assert (done.code, after) in {(code, one.file) for code in ("NO_MATCH", "NOT_UNIQUE")}, one.kind
            continue
        assert after == one.wanted, (one.kind, done.text)
        assert RESCUED[one.kind] in done.text
        assert ("Not an exact match" in done.text) == bool(RESCUED[one.kind])


def test_every_kind_of_near_miss_is_among_them():
    kinds = {one.kind for one in cases(SEED, COUNT)}
    assert len(kinds) == len(KINDS)
    assert set(RESCUED) < kinds
