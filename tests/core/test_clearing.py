"""M102: a Worker's old results of looking as tickets, only in the tail of a rebase."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.clearing import KEPT_RESULTS, LEAST_CHARACTERS, MANY_RESULTS, old_results, with_tickets
from xnagent.core.ids import CallId, Ticket
from xnagent.core.items import AssistantText, Item, ToolCall, ToolResult, UserText, is_balanced
from xnagent.core.rebase import RebasePolicy, Room, kept_tail, plan_rebase
from xnagent.core.spine import Spine, extend

LONG = "a line of text\n" * 80


def step(number: int, tool: str = "read", text: str = LONG, **arguments: str) -> list[Item]:
    name = CallId(f"c{number}")
    made = ToolCall(call_id=name, name=tool, arguments=json.dumps(arguments or {"path": f"f{number}"}))
    return [AssistantText(text="I look."), made, ToolResult(call_id=name, text=f"{number}: {text}")]


def steps(*made: list[Item]) -> list[Item]:
    return [item for one in made for item in one]


def ticket(number: int) -> Ticket:
    return Ticket(f"artifact:{number:016x}")


@pytest.mark.parametrize(("results", "cleared"), [(8, 0), (9, 5), (20, 16)])
def test_M102_of_more_than_8_results_all_but_the_newest_4_become_tickets(results: int, cleared: int):
    assert (MANY_RESULTS, KEPT_RESULTS) == (8, 4)
    old = old_results(steps(*(step(n) for n in range(results))))
    assert old == tuple(f"c{n}" for n in range(cleared))


def test_M102_80_000_tokens_are_too_many_whatever_their_number():
    half = "x" * 140_000
    assert old_results(steps(*(step(n, text=half) for n in range(1)))) == ()
    assert old_results(steps(*(step(n, text=half) for n in range(6)))) == ("c0", "c1")


def test_M102_results_of_tools_that_change_something_are_untouched():
    mixed = steps(*(step(n, tool=("bash", "edit", "write", "note", "read")[n % 5]) for n in range(40)))
    assert old_results(mixed) == ()
    more = steps(*(step(n, tool=("bash", "read", "grep", "glob")[n % 4]) for n in range(40)))
    assert len(old_results(more)) == 30 - KEPT_RESULTS
    assert not [name for name in old_results(more) if int(name[1:]) % 4 == 0]


def test_M107_T21_pages_of_stored_outputs_and_short_results_stay():
    pages = steps(*(step(n, path=f" {ticket(n)}") for n in range(20)))
    assert old_results(pages) == ()
    assert old_results(steps(*(step(n, text="x" * (LEAST_CHARACTERS // 2)) for n in range(20)))) == ()
    broken = [ToolCall(call_id=CallId("c0"), name="read", arguments="{"), ToolResult(call_id=CallId("c0"), text=LONG)]
    assert old_results([*broken, *steps(*(step(n) for n in range(1, 10)))])[0] == "c0"


def test_M106_T23_a_ticket_says_how_to_see_the_result_then_and_now():
    tail = steps(*(step(n) for n in range(2)))
    items, ticketed = with_tickets(tail, {CallId("c0"): ticket(7)})
    text = items[2].text
    assert f"read {ticket(7)}" in text
    assert "make the call again" in text
    assert re.search(r"[\d,]+ characters", text)
    assert items[3:] == tuple(tail[3:])
    assert [(one.call_id, one.ticket) for one in ticketed] == [("c0", ticket(7))]
    assert ticketed[0].tokens > 200
    assert with_tickets(tail, {}) == (tuple(tail), ())


def test_M102_I5_it_happens_at_a_rebase_and_shortens_the_tail_alone():
    room = Room(window_tokens=100_000, max_output_tokens=4_000, head_tokens=1_000)
    policy = RebasePolicy()
    spine = extend(Spine(agent="r1"), [UserText(text="task", origin="task"), *steps(*(step(n) for n in range(12)))])
    old = old_results(kept_tail(spine, room, policy=policy))
    tickets = {name: ticket(n) for n, name in enumerate(old)}
    plan = plan_rebase(spine, "checkpoint", room=room, policy=policy, tickets=tickets)
    without = plan_rebase(spine, "checkpoint", room=room, policy=policy)
    assert len(plan.ticketed) == 8
    assert is_balanced(plan.items)
    assert without.tokens_after - plan.tokens_after == sum(one.tokens for one in plan.ticketed)
    again = old_results(plan.items)
    assert not set(again) & set(old)


def test_M102_M106_a_ticket_tells_how_long_the_result_is_that_it_holds_not_what_the_tail_kept_of_it():
    room = Room(window_tokens=400_000, max_output_tokens=4_000, head_tokens=1_000)
    policy = RebasePolicy(tail_tokens=None, tail_share=0.5, result_characters=2_000)
    steps_made = steps(*(step(n, text="y" * 8_996) for n in range(12)))
    spine = extend(Spine(agent="r1"), [UserText(text="task", origin="task"), *steps_made])
    tickets = {name: ticket(n) for n, name in enumerate(old_results(kept_tail(spine, room, policy=policy)))}
    plan = plan_rebase(spine, "checkpoint", room=room, policy=policy, tickets=tickets)
    told = [item.text for item in plan.items if isinstance(item, ToolResult) and item.call_id in tickets]
    assert len(told) == 8
    assert all(re.search(r": (8,999|9,000) characters", text) for text in told)


@given(st.lists(st.tuples(st.sampled_from(["read", "grep", "bash"]), st.integers(0, 3_000)), max_size=30))
def test_M102_whatever_the_tail_holds_at_most_the_old_long_ones_go(shapes: list[tuple[str, int]]):
    tail = steps(*(step(n, tool, "x" * size) for n, (tool, size) in enumerate(shapes)))
    old = old_results(tail)
    items, ticketed = with_tickets(tail, {name: ticket(n) for n, name in enumerate(old)})
    looks = [f"c{n}" for n, (tool, _) in enumerate(shapes) if tool != "bash"]
    assert set(old) <= set(looks[:-KEPT_RESULTS])
    assert is_balanced(items)
    assert len(items) == len(tail)
    assert all(one.tokens > 0 for one in ticketed)
