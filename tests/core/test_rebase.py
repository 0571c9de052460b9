"""When a spine is rebased, onto what, and when it is refused."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.sessions import ROOM, Story, example, fact, rebased, task
from tests.core.test_items import THINK, call, result, user
from xnagent.core.archive import archived
from xnagent.core.due import Conditions, costs_of, is_due, sizes_of, verdict
from xnagent.core.events import SessionResumed
from xnagent.core.fold import fold
from xnagent.core.ids import PLANNER, AgentId, CallId, RunId
from xnagent.core.items import AssistantText, Reasoning, ToolCall, ToolResult, UserText, calls_of, is_balanced
from xnagent.core.pricing import Price
from xnagent.core.rebase import RebasePlan, RebasePolicy, Room, clip_item, plan_rebase, room_for
from xnagent.core.rent import Rates, Rent
from xnagent.core.spine import Spine, estimate, extend, hand_over, replace_items
from xnagent.core.spine_events import RebaseRefused, RebasesSuspended, RequestStarted, ToolFinished
from xnagent.core.tokens import estimate_items

B001 = (
    user("task"),
    call("t1"),
    result("t1"),
    call("t2"),
    call("t3"),
    result("t2"),
    result("t3"),
    AssistantText(text="done"),
)
PRICE = Price(input_usd=3, cached_usd=0.3, output_usd=15)


def spine_with(items, **fields) -> Spine:
    return replace(extend(Spine(agent=PLANNER), items), **fields)


def room_with_tail(tail_tokens: int) -> tuple[Room, RebasePolicy]:
    """A room whose tail budget is exactly so many tokens."""
    room = Room(window_tokens=10_256, max_output_tokens=0, head_tokens=0)
    return room, RebasePolicy(
        tail_share=(tail_tokens + 0.5) / room.usable_tokens, least_tail_tokens=0, newest_share=0.0
    )


@pytest.mark.parametrize("kept", range(1, 8))
def test_B001_T1_keeping_the_last_items_never_parts_a_call_from_its_result(kept: int):
    room, policy = room_with_tail(estimate_items(B001[-kept:]))
    plan = plan_rebase(spine_with(B001), "checkpoint", room=room, policy=policy)
    assert is_balanced(plan.items)
    assert plan.items[0] is B001[0]
    ids = {item.call_id for item in calls_of(plan.items)}
    assert ("t2" in ids) is ("t3" in ids)


@given(st.integers(0, 200), st.integers(0, 9))
def test_B001_T1_every_tail_budget_keeps_pairs(budget: int, cut: int):
    items = (*B001, user("more"), THINK, *(replace(item, call_id=CallId("t9")) for item in (call(""), result(""))))
    room, policy = room_with_tail(budget)
    spine = spine_with(items[: len(items) - (cut if is_balanced(items[: len(items) - cut]) else 0)])
    plan = plan_rebase(spine, "checkpoint", room=room, policy=policy)
    assert is_balanced(plan.items)
    assert estimate_items(plan.items[2:]) <= budget
    tail = plan.items[2:]
    assert spine.items[len(spine.items) - len(tail) :] == tail
    assert plan.items_dropped == len(spine.items) - 1 - len(tail)


def test_T2_a_run_with_one_user_message_and_200_calls_can_be_rebased():
    story = example()
    run = AgentId("r2")
    story.launch(RunId("r2"))
    for number in range(200):
        story.step(f"output {number} " * 20, agent=run)
    room = Room(window_tokens=16_000, max_output_tokens=1_000, head_tokens=500)
    assert is_due(story.spine(run), room, policy=RebasePolicy()) == "hard"
    before = estimate(story.spine(run), room.head_tokens)
    assert story.rebase(run, room=room, forced=False)
    assert estimate(story.spine(run), room.head_tokens) < before / 3
    assert is_balanced(story.spine(run).items)
    assert story.spine(run).items[-1].text.startswith("output 199")


def sized(tokens: int) -> Spine:
    return spine_with((user(), user(), user()), anchor_tokens=tokens, tokens_since_anchor=0)


@pytest.mark.parametrize(("size", "cause"), [(6_000, None), (6_001, "soft"), (9_000, "soft"), (9_001, "hard")], ids=str)
def test_M19_M53_the_threshold_itself_does_not_trigger_and_one_token_more_does(size: int, cause):
    room = Room(window_tokens=11_256, max_output_tokens=1_000, head_tokens=0)
    assert room.usable_tokens == 10_000
    policy = RebasePolicy(policy="threshold", soft_share=0.6, hard_share=0.9)
    assert is_due(sized(size), room, policy=policy) == cause


def test_M62_the_output_has_its_place_and_a_small_window_has_none_left():
    assert Room(window_tokens=100_000, max_output_tokens=20_000, head_tokens=1).usable_tokens == 79_744
    assert Room(window_tokens=1_000, max_output_tokens=20_000, head_tokens=1).usable_tokens == 0


@pytest.mark.parametrize(
    ("cause", "sent", "usable"), [("soft", 100, 90_000), ("overflow", 60_000, 60_000), ("overflow", 99_999, 90_000)]
)
def test_B029_after_an_overflow_the_room_is_at_most_what_was_sent(cause: str, sent: int, usable: int):
    room = Room(window_tokens=100_256, max_output_tokens=10_000, head_tokens=500)
    smaller = room_for(spine_with((user(),), sent_estimate=sent), room, cause=cause)
    assert (smaller.usable_tokens, smaller.max_output_tokens, smaller.head_tokens) == (usable, 10_000, 500)


@pytest.mark.parametrize(
    "spine",
    [
        spine_with(()),
        spine_with((user(),)),
        spine_with((user(), user())),
        spine_with((user(), user(), user()), pending_request=3),
        spine_with((user(), user(), call("a")), open_calls=(call("a"),)),
    ],
    ids=["empty", "only the objective", "only a checkpoint", "request under way", "open call"],
)
def test_M19_nothing_is_due_where_nothing_can_go(spine: Spine):
    assert is_due(spine, Room(window_tokens=0, max_output_tokens=0, head_tokens=9), policy=RebasePolicy()) is None


def held_spine(**fields) -> Spine:
    """20,000 tokens, all in the cache; 5,000 after what was told last, 400 of checkpoint: 13,600 can go."""
    shape = {"tokens": 19_000, "first_tokens": 0, "tokens_to_state": 14_000, "told_tokens": 14_000}
    sent = {
        "requests": 5,
        "sent_tokens": 19_000,
        "held_tokens": 20_000,
        "anchor_tokens": 20_000,
        "tokens_since_anchor": 0,
    }
    return spine_with((user(), user(), user()), **{**shape, **sent, "view_tokens": 400, **fields})


LONG_TAIL = RebasePolicy(tail_share=0.25, tail_tokens=None)
RENT = 13_600 * 0.3 / 1_000_000
"""Of each request."""
WRITE = (5_400 * (3 - 0.3) + 0.5 * 13_600 * 3) / 1_000_000
"""Of checkpoint and tail, and of half of what is dropped: it may be fetched again."""


@pytest.mark.parametrize(
    ("paid", "price", "policy", "cause"),
    [
        (WRITE - RENT - 1e-9, PRICE, "economic", None),
        (WRITE - RENT + 1e-9, PRICE, "economic", "economic"),
        (1.0, PRICE, "threshold", None),
        (1.0, None, "economic", None),
        (1.0, Price(input_usd=3, cached_usd=0, output_usd=1), "economic", None),
    ],
)
def test_M52_rent_or_buy_goes_when_the_rereads_have_cost_what_a_rebase_costs(paid, price, policy, cause):
    rates = None if price is None else Rates(price=price)
    spine = held_spine(rent=Rent(paid_usd=paid))
    said = verdict(spine, ROOM, policy=replace(LONG_TAIL, policy=policy), conditions=Conditions(rates=rates))
    assert (said.cause, bool(said.why)) == (cause, True)


def test_M52_an_expired_cache_makes_it_due_at_once_and_too_small_a_gain_never():
    policy, gone = LONG_TAIL, Conditions(rates=Rates(price=PRICE), has_expired=True)
    assert is_due(held_spine(), ROOM, policy=policy, conditions=Conditions(rates=gone.rates)) is None
    assert is_due(held_spine(), ROOM, policy=policy, conditions=gone) == "expired"
    little = held_spine(told_tokens=3_000, tokens_to_state=3_000)
    assert is_due(little, ROOM, policy=policy, conditions=gone) is None
    assert "too many" in verdict(little, ROOM, policy=policy, conditions=gone).why


def test_M52_a_workers_tail_is_what_fits_into_its_share_and_the_rest_can_go():
    story = example()
    run = AgentId("r2")
    story.launch(RunId("r2"))
    for number in range(60):
        story.step(f"output {number} " * 100, agent=run)
    story.request(run)
    room = Room(window_tokens=40_000, max_output_tokens=4_000, head_tokens=1_000)
    spine, policy = replace(story.spine(run), pending_request=None), RebasePolicy()
    sizes = sizes_of(spine, room, policy=policy)
    assert sizes.after_tokens == 1_000 + spine.first_tokens + 400 + 3_000
    made = plan_rebase(spine, "checkpoint " * 100, room=room, policy=policy)
    assert made.tokens_after <= sizes.after_tokens + 400
    assert sizes.whole_tokens == made.tokens_before


def test_a_page_that_a_rebase_dropped_and_that_was_read_again_is_no_gain_of_the_next():
    """The loop of compacting and reading again: what came back once is taken to come back once more."""
    story, run = example(), AgentId("r2")
    story.launch(RunId("r2"))

    def read(sha256: str) -> int:
        (made,) = story.reply(run, story.call())
        text = "line\n" * 4_000
        pages = (("a.py:1-4000", sha256),)
        story.add(ToolFinished(agent=run, call_id=made.call_id, tool="read", text=text, pages=pages))
        return story.spine(run).wanted_tokens

    assert read("one") == 0
    story.rebase(run)
    assert read("two") == 0, "the file is another now"
    assert read("two") == 0, "the spine still shows it"
    story.rebase(run)
    back = read("two")
    assert back > 5_000
    room, policy, spine = (
        Room(window_tokens=400_000, max_output_tokens=4_000, head_tokens=0),
        RebasePolicy(),
        story.spine(run),
    )
    without = sizes_of(replace(spine, wanted_tokens=0), room, policy=policy)
    assert sizes_of(spine, room, policy=policy).after_tokens == min(without.whole_tokens, without.after_tokens + back)
    story.rebase(run)
    assert story.spine(run).wanted_tokens == 0


def test_a_page_that_is_only_referred_to_is_wanted_once_and_stays_known():
    story, run = example(), AgentId("r2")
    story.launch(RunId("r2"))

    def read(sha256: str, text: str) -> None:
        (made,) = story.reply(run, story.call())
        pages = (("a.py:1-4000", sha256),)
        story.add(ToolFinished(agent=run, call_id=made.call_id, tool="read", text=text, pages=pages))

    read("one", "line\n" * 4_000)
    for _ in range(3):
        read("", "[unchanged]")
        assert story.spine(run).wanted_tokens > 5_000
    page = story.state.work[run].pages["a.py:1-4000"]
    assert (page.sha256, page.step, page.referred_at) == ("one", 1, 4)
    assert story.spine(run).wanted_tokens == page.tokens
    read("one", "line\n" * 4_000)
    assert story.spine(run).wanted_tokens == page.tokens, "shown whole once more, it is the same page"


class Uncounted(tuple):
    """Items that may be counted, but not looked at."""

    __slots__ = ()

    def __iter__(self):
        raise AssertionError("an item was looked at")

    def __getitem__(self, key):
        raise AssertionError("an item was looked at")


def test_M52_whether_a_rebase_is_due_is_told_without_a_look_at_the_history():
    spine = held_spine(rent=Rent(paid_usd=1.0))
    unread = replace(spine, items=Uncounted(spine.items))
    conditions = Conditions(rates=Rates(price=PRICE))
    assert is_due(unread, ROOM, policy=LONG_TAIL, conditions=conditions) == "economic"
    assert costs_of(unread, ROOM, policy=LONG_TAIL, conditions=conditions).rent_usd == pytest.approx(RENT)


def test_M52_rent_is_summed_for_each_request_and_starts_anew_after_a_rebase():
    story = Story()
    story.begin()
    story.step("x" * 1_000)
    number = story.state.request_count + 1
    started = replace(next(event for event in story.events if isinstance(event, RequestStarted)), request=number)
    story.add(replace(started, rent_usd=0.25, rebase_usd=0.75))
    assert story.spine().rent == Rent(paid_usd=0.25, lowest_usd=0.75)
    story.add(replace(started, rent_usd=0.25, rebase_usd=0.75))
    assert story.spine().rent.paid_usd == 0.25
    story.rebase()
    assert story.spine().rent == Rent()
    story.add(replace(started, request=number + 1))
    assert story.spine().rent == Rent()


def test_T9_after_a_rebase_the_soft_limit_waits_for_three_requests_and_the_hard_one_does_not():
    policy = RebasePolicy(policy="threshold")
    room = Room(window_tokens=10_256, max_output_tokens=0, head_tokens=0)
    for requests, cause in ((0, None), (2, None), (3, "soft")):
        spine = replace(sized(7_000), generation=1, requests=requests)
        assert is_due(spine, room, policy=policy) == cause
        assert is_due(replace(spine, anchor_tokens=9_500), room, policy=policy) == "hard"


def plan_of(before: int, after: int) -> RebasePlan:
    return RebasePlan(items=(), tokens_before=before, tokens_after=after, items_dropped=0, checkpoint_tokens=0)


@pytest.mark.parametrize(
    ("before", "after", "share", "has_gain"),
    [(1_000, 800, 0.2, True), (1_000, 801, 0.2, False), (1_000, 1_000, 0.0, False), (1_000, 999, 0.0, True)],
)
def test_M52_T30_a_rebase_must_free_its_share(before, after, share, has_gain):
    assert plan_of(before, after).has_gain(RebasePolicy(min_gain_share=share)) is has_gain


@pytest.mark.parametrize("factor", [3.0, 0.3])
def test_T8_a_gain_is_measured_on_one_scale(factor: float):
    """The report says three times (or a third of) what the estimate says; that is no gain (or no loss) of a rebase."""
    story = Story()
    story.begin()
    story.add(*(fact(f"f{n}", "words " * 20) for n in range(20)))
    story.tell()
    story.rebase()
    spine = story.spine()
    reported = replace(spine, anchor_tokens=int(factor * estimate(spine, ROOM.head_tokens)))
    checkpoint_again = spine.items[1].text
    minimal = plan_rebase(reported, checkpoint_again, room=ROOM, policy=RebasePolicy())
    assert minimal.items == spine.items
    assert not minimal.has_gain(RebasePolicy())
    long = extend(spine, [user("x" * 60_000), user("y")])
    measured = replace(long, state_at=3, anchor_tokens=int(factor * estimate(long, ROOM.head_tokens)))
    assert plan_rebase(measured, checkpoint_again, room=ROOM, policy=RebasePolicy()).has_gain(RebasePolicy())


def test_T9_I7_a_refusal_holds_until_the_spine_has_grown_by_a_tenth_of_the_window():
    room = Room(window_tokens=10_256, max_output_tokens=0, head_tokens=0)
    spine = sized(6_500)
    story = Story()
    story.begin()
    state = replace(story.state, spines={PLANNER: spine})
    refusal = RebaseRefused(agent=PLANNER, cause="soft", tokens_before=6_500, tokens_after=6_400, detail="")
    state = fold(state, refusal)
    refused = state.spines[PLANNER]
    assert (refused.refused_at, refused.refusals, state.refused_rebases) == (6_500, 1, (refusal,))
    for size, cause in ((6_500, None), (7_499, None), (7_500, "soft"), (9_001, "hard")):
        assert is_due(replace(refused, anchor_tokens=size), room, policy=RebasePolicy()) == cause
    assert is_due(replace(refused, refused_at=9_000, anchor_tokens=9_001), room, policy=RebasePolicy()) == "hard"


def test_T10_three_refusals_suspend_rebases_until_the_spine_has_grown_or_the_model_is_another():
    room = Room(window_tokens=10_256, max_output_tokens=0, head_tokens=0)
    story = Story()
    story.begin()
    state = replace(story.state, spines={PLANNER: sized(9_100)})
    refusal = RebaseRefused(
        agent=PLANNER, cause="hard", tokens_before=9_100, tokens_after=9_000, detail="", checkpoint_tokens=700
    )
    for _ in range(3):
        assert is_due(state.spines[PLANNER], room, policy=RebasePolicy()) == "hard"
        state = fold(state, refusal)
    state = fold(state, RebasesSuspended(agent=PLANNER, refusals=3, tokens=9_100, detail=""))
    suspended = state.spines[PLANNER]
    assert (suspended.refusals, suspended.is_suspended, suspended.view_tokens) == (3, True, 700)
    for size, cause in ((9_100, None), (10_099, None), (10_100, "hard")):
        assert is_due(replace(suspended, anchor_tokens=size), room, policy=RebasePolicy()) == cause
    resumed = fold(state, SessionResumed(epoch=2)).spines[PLANNER]
    assert (resumed.refusals, resumed.is_suspended) == (0, False)
    assert not hand_over(suspended).is_suspended
    owing = replace(suspended, rent=Rent(paid_usd=0.5, lowest_usd=0.01))
    assert hand_over(owing).rent == Rent()
    assert not replace_items(suspended, suspended.items, board=None, cursor=0).is_suspended


def test_M20_a_rebase_before_the_news_tells_them_so_that_nothing_is_left_to_append():
    story = Story()
    story.begin()
    story.step("x" * 3_000)
    story.add(task("late"))
    story.rebase()
    assert '"late"' in story.spine().items[1].text
    assert story.tell() is None


def test_M21_what_came_after_the_last_state_message_is_still_there():
    story = Story()
    story.begin()
    story.step("old")
    story.add(fact("f1"))
    story.step("one", "two")
    after = story.spine().items[story.spine().state_at + 1 :]
    story.rebase()
    assert story.spine().items[2:] == after
    assert [item.text for item in after if isinstance(item, ToolResult)] == ["one", "two"]


def test_M21_with_no_room_at_all_the_newest_step_is_dropped_whole_and_the_spine_stays_valid():
    story = Story()
    story.begin()
    story.step("one", "two")
    story.rebase(policy=RebasePolicy(tail_share=0.0, least_tail_tokens=0, newest_share=0.0))
    assert [type(item) for item in story.spine().items] == [UserText, UserText]


def test_M22_results_texts_and_arguments_are_clipped_and_stay_linked():
    policy = RebasePolicy(result_characters=200, argument_characters=50)
    arguments = json.dumps({"path": "a.py", "content": "x" * 5_000})
    items = (
        user(),
        Reasoning(wire="chat", payload="r" * 5_000),
        AssistantText(text="t" * 5_000),
        ToolCall(call_id=CallId("c1"), name="write", arguments=arguments),
        ToolCall(call_id=CallId("c2"), name="read", arguments='{"path":"a.py"}'),
        ToolResult(call_id=CallId("c1"), text="head" + "o" * 5_000 + "tail", is_error=True),
        ToolResult(call_id=CallId("c2"), text="short"),
    )
    plan = plan_rebase(spine_with(items), "checkpoint", room=ROOM, policy=policy)
    _, _, reasoning, text, write, read, failed, short = plan.items
    assert reasoning is items[1]
    assert len(text.text) < 300
    assert " characters omitted; see run_inspect or the log" in text.text
    assert json.loads(write.arguments) == {
        "_omitted": f"{len(arguments)} characters of arguments, left out at a rebase"
    }
    assert (write.call_id, write.name) == ("c1", "write")
    assert (read, short) == (items[4], items[6])
    assert failed.is_error
    assert failed.text.startswith("head")
    assert failed.text.endswith("tail")
    assert is_balanced(plan.items)


def test_M22_T19_a_second_rebase_does_not_cut_what_the_first_one_cut():
    policy = RebasePolicy(result_characters=1_000)
    once = clip_item(ToolResult(call_id=CallId("c"), text="x" * 90_000), policy)
    assert clip_item(once, policy) == once
    call_once = clip_item(ToolCall(call_id=CallId("c"), name="w", arguments="x" * 9_000), policy)
    assert clip_item(call_once, policy) == call_once


def test_M22_the_newest_results_are_not_dropped_because_they_are_many():
    """Six results at the limit are more than a quarter of a window of 40,000: clipped harder, not lost."""
    story = Story()
    story.begin()
    story.step(*("x" * 6_000 for _ in range(6)))
    room = Room(window_tokens=40_000, max_output_tokens=4_000, head_tokens=1_000)
    story.rebase(room=room)
    assert len(calls_of(story.spine().items)) == 6


def test_M22_T19_what_is_clipped_harder_still_says_how_much_is_missing():
    story = Story()
    story.begin()
    story.step(*("x" * 90_000 for _ in range(6)))
    story.rebase(room=Room(window_tokens=40_000, max_output_tokens=4_000, head_tokens=1_000))
    results = [item.text for item in story.spine().items if isinstance(item, ToolResult)]
    assert len(results) == 6
    for text in results:
        omitted = int(re.search(r"\[… ([\d,]+) characters omitted", text)[1].replace(",", ""))
        assert omitted + text.count("x", 0, text.index("\n[")) + text.count("x", text.rindex("…]\n")) == 90_000


def test_M23_M24_the_books_after_a_rebase():
    story = example()
    story.tell()
    before = story.spine()
    work, board = story.state.work, story.state.board
    plan = story.plan()
    story.add(rebased(PLANNER, plan, cursor=story.state.cause_count))
    spine = story.spine()
    assert spine.items == plan.items
    assert spine.items[0] is before.items[0]
    assert (spine.state_at, spine.generation, spine.lineage) == (1, 1, "planner.1")
    assert (spine.cursor, spine.base, spine.anchor_tokens) == (story.state.cause_count, archived(board), None)
    assert (spine.requests, spine.refused_at, spine.unanswered_rebases) == (0, None, 1)
    assert spine.tokens == estimate_items(plan.items) == plan.tokens_after - ROOM.head_tokens
    assert story.state.work is work
    assert len(story.state.rebases) == 1
    story.step("ok")
    assert story.spine().unanswered_rebases == 0


def test_M24_a_worker_has_no_board_to_remember():
    story = example()
    story.launch(RunId("r2"))
    story.step("x", agent=AgentId("r2"))
    story.rebase(AgentId("r2"))
    assert story.spine(AgentId("r2")).base is None
    assert [item.origin for item in story.spine(AgentId("r2")).items[:2]] == ["task", "state"]


def test_M50_the_objective_stays_first_so_that_system_tools_and_objective_stay_cached():
    story = example()
    first = story.spine().items[0]
    for _ in range(3):
        story.step("ok")
        story.rebase()
        assert story.spine().items[0] is first
    assert story.spine().generation == 3


def test_M81_a_number_survives_ten_rebases_to_the_digit():
    story = example()
    story.add(fact("f9", "pi", value="3.14159265358979323846"))
    for _ in range(10):
        story.step("ok")
        story.rebase()
    assert story.spine().items[1].text.count("3.14159265358979323846") == 1
