"""Where a request stops being an extension of the one before."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.prefix import Break, find_break, find_named, in_head, segment_name
from xnagent.core.spine_events import ManifestRecorded

BEFORE = [b'{"system":"S","tools":["a","b"]', b"user 1", b"assistant 1", b"user 2"]


def changed(index: int, content: bytes) -> list[bytes]:
    return [content if n == index else segment for n, segment in enumerate(BEFORE)]


@pytest.mark.parametrize(
    ("after", "segment", "index", "lost"),
    [
        (changed(0, b'{"system":"T","tools":["a","b"]'), "head", 0, 54),
        (changed(0, b'{"system":"S","tools":["b","a"]'), "head", 0, 54),
        (changed(1, b"user X"), "group 1", 1, 23),
        (changed(2, b"assistant 1 and more"), "group 2", 2, 17),
        (BEFORE[:3], "group 3", 3, 6),
        ([], "head", 0, 54),
    ],
    ids=["system", "order of tools", "old message", "longer message", "missing message", "nothing"],
)
def test_M27_a_break_names_the_first_segment_that_differs(after, segment, index, lost):
    found = find_break(BEFORE, after)
    assert (found.segment, found.index, found.lost_bytes) == (segment, index, lost)
    assert found.lost_tokens == lost // 4


@pytest.mark.parametrize(
    ("after", "detail"),
    [
        (changed(1, b"user X"), "first differing byte 5: b'1' became b'X'"),
        (changed(2, b"assistant 1 and more"), "first differing byte 11: b'' became b' and more'"),
        (BEFORE[:3], "it is missing"),
    ],
)
def test_M27_the_detail_shows_the_first_byte(after, detail):
    assert find_break(BEFORE, after).detail == detail


@given(st.lists(st.binary(max_size=8), max_size=6), st.lists(st.binary(max_size=8), max_size=3))
def test_M27_I1_an_extension_is_no_break(before, more):
    assert find_break(before, [*before, *more]) is None
    assert find_break(before, [bytes(bytearray(segment)) for segment in before]) is None


@given(st.lists(st.binary(max_size=4), max_size=5), st.lists(st.binary(max_size=4), max_size=5))
def test_M27_no_break_means_a_byte_prefix(before, after):
    found = find_break(before, after)
    if found is None:
        assert b"".join(after).startswith(b"".join(before))
    else:
        assert isinstance(found, Break)
        assert before[: found.index] == after[: found.index]


def tool(name: str, description: str = "") -> dict[str, str]:
    return {"name": name, "description": description, "parameters": "{}"}


def head(system: str = "Be good.", tools: tuple[dict[str, str], ...] = (tool("bash"), tool("read")), model: str = "m"):
    return ManifestRecorded(
        manifest="m1",
        role="planner",
        wire="chat",
        model=model,
        system=system,
        tools=json.dumps(tools),
        max_output_tokens=1,
        window_tokens=9,
    )


NEW_READ = (tool("bash"), tool("read", "Now."))
OTHER_TOOLS = (tool("read"), tool("bash"))
BROKEN = Break(segment="head", index=0, lost_bytes=1_000, detail="first differing byte 3: b'a' became b'b'")


@pytest.mark.parametrize(
    ("after", "order", "segment", "kept", "detail"),
    [
        (head(system="Be bad."), "tools-system", "system", len(head().tools), BROKEN.detail),
        (head(system="Be bad."), "system-tools", "system", 0, BROKEN.detail),
        (head(system="Be bad."), None, "system", 0, BROKEN.detail),
        (head(tools=OTHER_TOOLS), "tools-system", "tools", 0, "tool 1: `bash` became `read`"),
        (head(tools=OTHER_TOOLS), "system-tools", "tools", len("Be good."), "tool 1: `bash` became `read`"),
        (head(tools=(tool("bash"),)), None, "tools", 0, "tool 2: `read` became nothing"),
        (
            head(tools=(tool("bash"), tool("read", "Now."))),
            None,
            "tools",
            0,
            "tool 2: the definition of `read` changed",
        ),
        (head("No.", OTHER_TOOLS), "tools-system", "tools", 0, "tool 1: `bash` became `read`"),
        (head("No.", OTHER_TOOLS), "system-tools", "system", 0, BROKEN.detail),
        (head(model="other"), "tools-system", "head", 0, BROKEN.detail),
    ],
)
def test_M27_a_broken_head_is_named_by_its_first_part_that_differs_as_the_model_reads_it(
    after, order, segment, kept, detail
):
    found = in_head(BROKEN, (head(), after), order=order)
    assert (found.segment, found.index, found.lost_bytes, found.detail) == (segment, 0, 1_000 - kept, detail)


HEADS = (b'{"max_tokens":1,"system":"S"', b'{"max_tokens":2,"system":"S"')


def test_M27_other_parameters_break_nothing_of_what_the_model_reads():
    manifests = (head(), replace(head(), max_output_tokens=2, manifest="m2"))
    same = find_named([HEADS[0], b"user 1"], [HEADS[1], b"user 1", b"more"], manifests=manifests, order=None)
    other = find_named([HEADS[0], b"user 1"], [HEADS[1], b"user 2"], manifests=manifests, order=None)
    assert same is None
    assert (other.segment, other.lost_bytes) == ("group 1", 6)


@pytest.mark.parametrize("after", [[HEADS[1], b"user 1"], []])
def test_M27_a_head_that_differs_for_no_known_reason_is_a_break(after: list[bytes]):
    found = find_named([HEADS[0], b"user 1"], after, manifests=(head(), head()), order=None)
    assert (found.segment, found.index) == ("head", 0)


@pytest.mark.parametrize(
    ("index", "agent", "generation", "name"),
    [
        (1, "planner", 0, "objective"),
        (1, "r1", 3, "brief"),
        (2, "planner", 1, "checkpoint"),
        (2, "planner", 0, "group 2"),
        (3, "r1", 1, "group 3"),
    ],
)
def test_M27_what_stands_behind_the_head_has_a_name(index: int, agent: str, generation: int, name: str):
    assert segment_name(index, agent=agent, generation=generation) == name
