"""The spine: it grows at the end, knows its newest state message, and takes results once."""

import itertools
from dataclasses import FrozenInstanceError

import pytest

from tests.core.reading import causes_in, deltas_in, state_in
from tests.core.sessions import ROOM, Story, delegated, example, fact, settled, task
from xnagent.core import events as ev
from xnagent.core.due import is_due, is_over
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, CallId, RunId
from xnagent.core.items import AssistantText, ToolCall, ToolResult, UserText
from xnagent.core.lifetime import Wait
from xnagent.core.rebase import RebasePolicy, Room
from xnagent.core.spine import (
    Spine,
    add_reply,
    add_result,
    estimate,
    extend,
    missing_calls,
    replace_items,
    start_request,
)
from xnagent.core.spine_events import RequestStarted
from xnagent.core.state import spine_of
from xnagent.core.tokens import Usage


def test_M1_requests_extend_each_other_over_three_generations():
    story = Story()
    story.begin()
    sent: dict[str, list[tuple]] = {}
    for number in range(9):
        story.add(task(f"t{number}"))
        story.tell()
        sent.setdefault(story.spine().lineage, []).append(story.spine().items)
        story.answer(PLANNER, *story.reply(PLANNER, story.call()), "x" * number)
        if number % 3 == 2:
            story.rebase()
    assert list(sent) == ["planner.0", "planner.1", "planner.2"]
    for requests in sent.values():
        for before, after in itertools.pairwise(requests):
            assert len(after) > len(before)
            assert after[: len(before)] == before


def test_M2_M16_the_first_state_message_holds_everything_and_the_next_does_not_repeat_it():
    story = example()
    without = fold_all([event for event in story.events if getattr(event, "agent", None) is None])
    assert spine_of(without, PLANNER).items == ()
    rebuilt = Story(states=[without])
    document = state_in(rebuilt.tell().items[0].text)
    assert list(document["tasks"]) == ["core", "cli", "old"]
    assert list(document["runs"]) == ["r1", "r2"]
    assert list(document["facts"]) == ["f1", "f3"]
    assert document["messages"] == {"m1": "Keep 3.11 working, too."}
    assert rebuilt.tell() is None


def test_M9_every_cause_is_told_once_also_after_a_restart():
    story = Story()
    story.begin()
    story.step()
    for number in range(1, 5):
        story.add(task(f"t{number}"), delegated(f"r{number}", f"t{number}"), settled(f"r{number}"))
        story = Story(states=[fold_all(story.events)], events=story.events)
        story.step("ok")
    told = [line for text in deltas_in(story.spine().items) for line in causes_in(text)]
    assert told == [f"run r{n} settled: completed (task t{n})" for n in range(1, 5)]


def test_M10_the_final_checks_are_told_once_for_each_session():
    story = Story()
    story.begin(checks=("make all",))
    for number in range(4):
        story.add(task(f"t{number}"))
        story.step("ok")
    assert sum("make all" in item.text for item in story.spine().items if isinstance(item, UserText)) == 1
    story.rebase()
    assert sum("make all" in item.text for item in story.spine().items if isinstance(item, UserText)) == 1


def test_M12_the_position_of_the_newest_state_message_is_known():
    story = Story()
    story.begin()
    for number in range(4):
        story.add(fact(f"f{number}"))
        told = story.tell()
        spine = story.spine()
        assert spine.items[spine.state_at] is told.items[0]
        assert spine.tokens_to_state == sum_of(spine.items[: spine.state_at + 1])
        story.step("ok", "ok")


def sum_of(items) -> int:
    return estimate(extend(Spine(agent=PLANNER), items), 0)


def test_M13_replies_and_results_join_the_spine_after_the_state_message():
    story = Story()
    story.begin()
    story.step("one", "two")
    kinds = [item.kind for item in story.spine().items]
    assert kinds == ["user_text", "user_text", "assistant_text", "tool_call", "tool_call", "tool_result", "tool_result"]


def test_M14_M15_agents_do_not_see_each_others_messages():
    story = example()
    story.launch(RunId("r2"))
    story.step("output of r2", agent=AgentId("r2"))
    story.tell()
    planner, first, second = (repr(story.spine(AgentId(name)).items) for name in ("planner", "r1", "r2"))
    assert "worker-only output" in first
    assert "worker-only output" not in planner + second
    assert "output of r2" not in planner + first
    assert "Two tasks." not in first + second


def test_M48_M49_I5_what_was_sent_cannot_be_changed():
    story = example()
    spine = story.spine()
    with pytest.raises(TypeError):
        spine.items[0] = spine.items[1]
    with pytest.raises(FrozenInstanceError):
        spine.items[0].text = "changed"
    with pytest.raises(FrozenInstanceError):
        spine.items = ()


def test_I3_only_an_open_call_takes_a_result_and_only_one():
    calls = tuple(ToolCall(call_id=CallId(name), name="read", arguments="{}") for name in "ab")
    spine = Spine(agent=PLANNER, items=calls, open_calls=calls)
    spine = add_result(spine, ToolResult(call_id=CallId("b"), text="B"))
    assert missing_calls(spine) == calls[:1]
    for name in ("b", "c"):
        with pytest.raises(ValueError, match=f"{name} is not an open call of planner"):
            add_result(spine, ToolResult(call_id=CallId(name), text="again"))
    with pytest.raises(ValueError, match=r"open calls \(a\)"):
        extend(spine, [])


def test_M55_a_large_result_makes_the_next_request_of_the_same_turn_rebase():
    story = example()
    run = AgentId("r2")
    story.launch(RunId("r2"))
    room = Room(window_tokens=20_000, max_output_tokens=1_000, head_tokens=500)
    for size in (10, 10, 60_000, 10):
        due = is_due(story.spine(run), room, policy=RebasePolicy())
        story.step("x" * size, agent=run)
    assert due in {"soft", "hard"}
    assert sum(isinstance(item, UserText) for item in story.spine(run).items) == 1


def test_T5_a_spine_that_is_small_enough_before_the_news_may_be_too_large_with_it():
    story = Story()
    story.begin()
    story.step("ok")
    room = Room(window_tokens=6_000, max_output_tokens=500, head_tokens=500)
    assert is_due(story.spine(), room, policy=RebasePolicy()) is None
    story.add(ev.UserMessageAdded(message="m1", text="word " * 4_000))
    story.tell()
    assert is_over(story.spine(), room, policy=RebasePolicy())
    assert is_due(story.spine(), room, policy=RebasePolicy()) == "hard"


def test_B049_a_repeated_request_counts_once_and_is_not_rebased_under_way():
    story = Story()
    story.begin()
    story.step("ok")
    story.tell()
    story.request()
    once = story.spine()
    story.request()
    assert (story.spine().requests, story.spine().rent) == (once.requests, once.rent)
    assert (
        is_due(story.spine(), Room(window_tokens=1, max_output_tokens=0, head_tokens=9), policy=RebasePolicy()) is None
    )


def test_M32_tokens_of_the_last_request_count_whether_cached_or_not():
    story = Story()
    story.begin()
    story.tell()
    usage = Usage(input_tokens=3_000, cached_tokens=2_900, output_tokens=50)
    story.reply(PLANNER, AssistantText(text="ok"), usage=usage)
    assert estimate(story.spine(), ROOM.head_tokens) == 3_050


def sent(spine: Spine, *, long_items: int = 0, waited_seconds: float | None = None, has_runs: bool = False) -> Spine:
    """The spine with a request under way."""
    started = RequestStarted(
        agent=spine.agent,
        request=1,
        manifest="m",
        items=len(spine.items),
        estimate_tokens=1,
        predicted_cached_tokens=None,
        sha256="s",
        size_bytes=1,
        long_items=long_items,
        waited_seconds=waited_seconds,
    )
    return start_request(spine, started, has_runs=has_runs)


def test_M33_a_request_that_is_sent_again_is_no_second_wait_and_waits_outlive_a_rebase():
    text = UserText(text="x", origin="user")
    first = sent(extend(Spine(agent=PLANNER), [text, text]), waited_seconds=None, has_runs=True)
    replied = add_reply(first, [AssistantText(text="a")], usage=Usage())
    second = sent(replied, waited_seconds=7.0)
    again = sent(second, waited_seconds=9.0)
    assert again.waits == second.waits == (Wait(seconds=7.0, had_runs=True),)
    rebased = replace_items(again, [text, text], board=None, cursor=0)
    assert rebased.waits == again.waits
    assert sent(rebased, waited_seconds=3.0).waits[-1] == Wait(seconds=3.0, had_runs=False)


def test_M33_a_rebase_leaves_the_longer_lifetime_to_what_it_keeps():
    text = UserText(text="x", origin="user")
    spine = extend(Spine(agent=PLANNER), [text, text, text])
    long, short = sent(spine, long_items=3), sent(spine, long_items=2)
    assert (long.is_long_lived, short.is_long_lived, spine.is_long_lived) == (True, False, False)
    rebased = [replace_items(one, [text, text], board=None, cursor=0) for one in (long, short, sent(spine))]
    assert [one.long_items for one in rebased] == [1, 1, 0]
    assert not any(one.is_long_lived for one in rebased)
