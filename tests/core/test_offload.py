"""Which results of a step are cut: at most the limit in all, the largest first, pages of stored outputs last."""

from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.ids import AgentId, CallId
from xnagent.core.items import ToolCall, ToolResult
from xnagent.core.offload import SHORTEST_PREVIEW, cuts, offloaded, whole_of
from xnagent.core.spine import Spine, Whole
from xnagent.core.spine_events import ToolFinished

TICKET = "artifact:0123456789abcdef"
PAGE = Whole(name=TICKET, is_page=True)


def spine(*sizes: int, pages: tuple[int, ...] = ()) -> tuple[Spine, ToolResult]:
    """A step of so many results, of which the last is not there yet."""
    calls = tuple(ToolCall(call_id=CallId(f"c{n}"), name="t", arguments="{}") for n in range(len(sizes)))
    results = [ToolResult(call_id=call.call_id, text="x" * size) for call, size in zip(calls, sizes, strict=True)]
    known = {result.call_id: result for result in results[:-1]}
    wholes = {CallId(f"c{n}"): PAGE for n in pages}
    return Spine(agent=AgentId("r1"), open_calls=calls, results=known, wholes=wholes), results[-1]


def shares(*sizes: int, limit: int, pages: tuple[int, ...] = ()) -> dict[str, int]:
    open_spine, last = spine(*sizes, pages=pages)
    return dict(cuts(open_spine, last, whole=None, limit=limit))


def test_M101_five_results_of_60_000_characters_are_at_most_the_cap():
    found = shares(*[60_000] * 5, limit=200_000)
    assert found == {"c4": 2_000, "c3": 18_000}
    assert 3 * 60_000 + sum(found.values()) == 200_000


def test_M101_what_fits_is_left_alone_and_the_largest_goes_first():
    assert shares(60_000, 60_000, limit=120_000) == {}
    assert shares(100, 50_000, 30_000, limit=60_000) == {"c1": 29_900}


def test_M107_pages_of_stored_outputs_go_last():
    assert shares(50_000, 20_000, limit=60_000, pages=(0,)) == {"c1": 10_000}
    assert shares(50_000, 20_000, limit=30_000, pages=(0,)) == {"c1": 2_000, "c0": 28_000}


def test_nothing_is_cut_before_the_step_is_complete():
    open_spine, _ = spine(90_000, 90_000, 90_000)
    left = ToolResult(call_id=CallId("c1"), text="y" * 90_000)
    without = Spine(agent=open_spine.agent, open_calls=open_spine.open_calls, results={})
    assert cuts(without, left, whole=None, limit=1_000) == {}


@given(st.lists(st.integers(0, 9_000), min_size=1, max_size=30), st.integers(1_000, 60_000), st.data())
def test_M101_the_total_is_at_most_the_limit_and_the_cut_is_deterministic(sizes, limit, data):
    pages = tuple(data.draw(st.sets(st.integers(0, len(sizes) - 1))))
    found = shares(*sizes, limit=limit, pages=pages)
    assert found == shares(*sizes, limit=limit, pages=pages)
    left = [found.get(f"c{n}", size) for n, size in enumerate(sizes)]
    assert sum(left) <= max(limit, SHORTEST_PREVIEW * len(sizes))
    assert all(room < sizes[int(name[1:])] for name, room in found.items())
    assert bool(found) <= (sum(sizes) > limit)


def test_M106_what_stands_in_its_place_says_where_the_rest_is():
    text = "".join(f"{n}\n" for n in range(9_000))
    cut = offloaded(text, 2_000, whole=Whole(name=TICKET, is_page=False))
    assert (len(cut) <= 2_000, cut[:4], cut[-5:]) == (True, "0\n1\n", "8999\n")
    assert f"too long together; for the rest read {TICKET} …]" in cut
    assert "read a.py again in smaller parts, with offset and limit" in offloaded(
        text, 2_000, whole=Whole(name="a.py", is_page=True)
    )
    shortest = offloaded(text, SHORTEST_PREVIEW, whole=Whole(name=f"{'long/' * 20}name.py", is_page=True))
    assert "for the rest read long/" in shortest


def test_what_a_result_is_a_part_of():
    finished = ToolFinished(agent=AgentId("r1"), call_id=CallId("c"), tool="t", text="x")
    assert whole_of(finished) is None
    paged = ToolFinished(agent=AgentId("r1"), call_id=CallId("c"), tool="t", text="x", pages=(("a:b.py:1-9", "0"),))
    assert whole_of(paged) == Whole(name="a:b.py", is_page=True)
