"""Long results cut to their ends before a summary is asked for (M93)."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from xnagent.core.ids import AgentId, CallId, Ticket
from xnagent.core.items import Item, ToolCall, ToolResult, UserText, is_balanced
from xnagent.core.pruning import (
    HEAD_CHARACTERS,
    LONG_CHARACTERS,
    TAIL_CHARACTERS,
    is_enough,
    long_results,
    plan_pruning,
)
from xnagent.core.rebase import RebasePolicy, Room
from xnagent.core.spine import Spine, extend, replace_items

AGENT = AgentId("r1")
ROOM = Room(window_tokens=30_000, max_output_tokens=1_000, head_tokens=500)
BRIEF = UserText(text="Do it.", origin="task")
TICKET = Ticket("artifact:0123456789abcdef")


def step(name: str, text: str, arguments: str = '{"path":"a.py"}') -> tuple[Item, ...]:
    call = CallId(name)
    return ToolCall(call_id=call, name="read", arguments=arguments), ToolResult(call_id=call, text=text)


def spine_of(*steps: Iterable[Item], unread: int = 0) -> Spine:
    items = [item for one in steps for item in one]
    spine = extend(Spine(agent=AGENT), [BRIEF])
    spine = extend(spine, items)
    return replace(spine, sent_items=len(spine.items) - unread, requests=2)


def pruned(spine: Spine) -> tuple[Item, ...]:
    return plan_pruning(spine, room=ROOM, tickets=dict.fromkeys(long_results(spine), TICKET)).items


def test_M93_only_long_results_that_were_read_are_cut_to_their_ends():
    whole = "".join(chr(ord("a") + n % 26) for n in range(20_000))
    spine = spine_of(step("c1", whole), step("c2", "x" * LONG_CHARACTERS), step("c3", whole), unread=2)
    assert long_results(spine) == ("c1",)
    brief, note, _, result, *rest = pruned(spine)
    assert brief is spine.items[0]
    assert '<checkpoint number="1"' in note.text
    assert result.text.startswith(whole[:HEAD_CHARACTERS] + "\n[… 14,880 characters left out")
    assert result.text.endswith(whole[-TAIL_CHARACTERS:])
    assert f"read {TICKET} for the whole" in result.text
    assert tuple(rest) == spine.items[3:]
    assert is_balanced(pruned(spine))
    assert len(result.text) < LONG_CHARACTERS


def test_T21_a_page_of_a_stored_output_is_not_cut():
    spine = spine_of(step("c1", "x" * 20_000, f'{{"path":"{TICKET}"}}'))
    assert long_results(spine) == ()


def test_M93_a_checkpoint_that_is_there_stays_as_it_is():
    spine = spine_of(step("c1", "x" * 20_000))
    known = UserText(text='<checkpoint number="1">It was.</checkpoint>', origin="state")
    rebased = replace_items(spine, [BRIEF, known, *spine.items[1:]], board=None, cursor=0)
    rebased = replace(rebased, sent_items=len(rebased.items))
    items = pruned(rebased)
    assert items[1] is known
    assert len(items) == len(rebased.items)
    again = replace(replace_items(rebased, items, board=None, cursor=0), sent_items=len(items))
    assert long_results(again) == ()


@pytest.mark.parametrize(("results", "is_relieved"), [(4, True), (1, False)])
def test_M93_it_is_enough_where_it_leaves_half(results: int, is_relieved: bool):
    spine = spine_of(
        *(step(f"c{n}", "word " * 5_000) for n in range(results)), *(step(f"d{n}", "y" * 8_000) for n in range(2))
    )
    plan = plan_pruning(spine, room=ROOM, tickets=dict.fromkeys(long_results(spine), TICKET))
    assert is_enough(plan, room=ROOM, policy=RebasePolicy()) is is_relieved
    assert len(plan.ticketed) == results
    assert sum(one.tokens for one in plan.ticketed) > 0
    assert plan.steps_kept == results + 2
    assert plan.items_dropped == 0
    assert not is_enough(plan, room=replace(ROOM, window_tokens=5_000), policy=RebasePolicy())
