"""Estimates, anchors and sums of tokens."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.sessions import Story, fact
from xnagent.core.due import is_over, most_likely
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, CallId
from xnagent.core.items import AssistantText, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.rebase import RebasePolicy, Room
from xnagent.core.spine import Spine, add_reply, add_result, estimate, extend, start_request
from xnagent.core.spine_events import RequestStarted
from xnagent.core.state import ratio_of
from xnagent.core.tokens import (
    WEIGHED_PAIRS,
    Calibration,
    Usage,
    add_usage,
    calibrate,
    estimate_head,
    estimate_item,
    estimate_items,
    estimate_text,
    is_plausible,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a" * 10, 3),
        ("é" * 10, 3),
        ("中" * 10, 6),
        ("\u2e7f" * 10, 3),
        ("\u2e80" * 10, 6),
        ("😀" * 10, 6),
        ("a" * 10 + "中" * 10, 9),
        ("\U0010ffff" * 10, 6),
    ],
)
def test_M56_characters_are_weighed(text: str, tokens: int):
    assert estimate_text(text) == tokens


@pytest.mark.parametrize(
    ("item", "tokens"),
    [
        (UserText(text="a" * 100, origin="user"), 8 + 30),
        (AssistantText(text="a" * 100), 8 + 30),
        (ToolResult(call_id=CallId("c"), text="a" * 100), 8 + 30),
        (ToolCall(call_id=CallId("c"), name="a" * 10, arguments="a" * 100), 12 + 3 + 30),
        (Reasoning(wire="chat", payload="a" * 100), 30),
    ],
)
def test_M56_every_kind_of_item_has_its_overhead(item, tokens: int):
    assert estimate_item(item) == tokens
    assert estimate_items([item, item]) == 2 * tokens


def test_M57_T6_tools_and_reasoning_are_counted():
    assert estimate_head("a" * 100, "b" * 200, tool_count=6) == 8 + 30 + 60 + 6 * 30
    bare = estimate_items([AssistantText(text="x")])
    assert estimate_items([Reasoning(wire="chat", payload="r" * 400), AssistantText(text="x")]) == bare + 120


def sent(spine: Spine, estimated: int) -> Spine:
    started = RequestStarted(
        agent=PLANNER,
        request=1,
        manifest="m",
        items=len(spine.items),
        estimate_tokens=estimated,
        predicted_cached_tokens=None,
        sha256="0",
        size_bytes=1,
    )
    return start_request(spine, started)


def replied(spine: Spine, *, reported: int | None, output: int | None = 0, estimated: int = 1_000, **more) -> Spine:
    spine = sent(spine, estimated)
    usage = Usage(input_tokens=reported, output_tokens=output, **more)
    return add_reply(spine, [AssistantText(text="ok")], usage=usage)


@pytest.mark.parametrize("old", [1, 1_000, 100_000])
def test_M59_text_before_the_anchor_does_not_influence_the_estimate(old: int):
    spine = extend(Spine(agent=PLANNER), [UserText(text="a" * old, origin="user")])
    spine = replied(spine, reported=1_500, output=100)
    assert estimate(spine, 400) == 1_600
    longer = extend(spine, [UserText(text="b" * 1_000, origin="state")])
    assert estimate(longer, 400) == 1_600 + 8 + 300
    assert estimate(longer, 99_999) == estimate(longer, 0)


def test_M59_without_an_anchor_head_and_history_are_estimated():
    spine = extend(Spine(agent=PLANNER), [UserText(text="a" * 100, origin="user")])
    assert estimate(spine, 400) == 438


@pytest.mark.parametrize(
    ("reported", "estimated", "is_trusted"),
    [
        (240, 1_000, False),
        (250, 1_000, True),
        (4_000, 1_000, True),
        (4_010, 1_000, False),
        (1, 500, True),
        (1_000_000, 500, True),
        (1, 501, False),
    ],
)
def test_M60_T7_reports_are_believed_within_reason(reported: int, estimated: int, is_trusted):
    assert is_plausible(reported, estimated) is is_trusted
    spine = replied(Spine(agent=PLANNER), reported=reported, estimated=estimated)
    assert (spine.anchor_tokens is not None) is is_trusted


def test_M61_M32_cached_and_written_input_occupy_the_window_too():
    spine = replied(Spine(agent=PLANNER), reported=10_007, output=200, cached_tokens=9_000, estimated=9_000)
    assert estimate(spine, 0) == 10_207


@pytest.mark.parametrize(
    "usage",
    [Usage(), Usage(output_tokens=12), Usage(input_tokens=1_000, output_tokens=1, is_estimated=True)],
)
def test_M33_B069_without_a_report_the_estimate_goes_on(usage: Usage):
    spine = extend(Spine(agent=PLANNER), [UserText(text="a" * 10_000, origin="user")])
    spine = add_reply(sent(spine, 3_000), [AssistantText(text="ok")], usage=usage)
    assert spine.anchor_tokens is None
    assert estimate(spine, 50) == 50 + 8 + 3_000 + 8 + 1


def test_M60_an_absurd_report_keeps_the_anchor_before_it():
    spine = replied(Spine(agent=PLANNER), reported=1_200)
    later = replied(extend(spine, [UserText(text="a" * 100, origin="state")]), reported=0)
    assert later.anchor_tokens == 1_200
    assert estimate(later, 0) == 1_200 + 38 + 9


def test_M63_T8_a_report_is_compared_with_the_estimate_of_its_own_request():
    spine = extend(Spine(agent=PLANNER), [UserText(text="a" * 1_000, origin="user")])
    spine = sent(spine, estimate(spine, 1_000))
    assert spine.sent_estimate == 1_308
    call = ToolCall(call_id=CallId("c"), name="read", arguments="{}")
    spine = add_reply(spine, [call], usage=Usage(input_tokens=1_400, output_tokens=20))
    spine = add_result(spine, ToolResult(call_id=CallId("c"), text="x" * 10_000))
    assert spine.sent_estimate == 1_308
    assert estimate(spine, 1_000) == 1_420 + 8 + 3_000


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(0, 30_000))
def test_M62_a_request_that_may_be_sent_leaves_room_for_the_output(size: int, output: int, window: int):
    room = Room(window_tokens=window, max_output_tokens=output, head_tokens=size)
    if not is_over(Spine(agent=PLANNER), room, policy=RebasePolicy(hard_share=1.0)):
        assert size == 0 or size + output <= window


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [
        (Usage(), Usage(), Usage()),
        (Usage(input_tokens=1), Usage(), Usage(input_tokens=1)),
        (Usage(), Usage(cached_tokens=0), Usage(cached_tokens=0)),
        (Usage(input_tokens=1, output_tokens=2), Usage(input_tokens=3), Usage(input_tokens=4, output_tokens=2)),
        (Usage(is_estimated=True), Usage(), Usage(is_estimated=True)),
    ],
)
def test_M33_unknown_numbers_stay_unknown(left: Usage, right: Usage, total: Usage):
    assert add_usage(left, right) == total == add_usage(right, left)


def test_M56_M59_the_ratio_weighs_what_is_only_estimated_and_leaves_reports_alone():
    spine = extend(Spine(agent=PLANNER), [UserText(text="a" * 10_000, origin="user")])
    assert estimate(spine, 1_000, ratio=1.5) == round(1.5 * (1_000 + 3_008))
    longer = extend(replied(spine, reported=1_500, output=100), [UserText(text="b" * 1_000, origin="state")])
    assert estimate(longer, 1_000, ratio=1.5) == 1_600 + round(1.5 * 308)


def test_T8_the_ratio_is_of_pairs_and_the_first_one_is_believed():
    once = calibrate(Calibration(), reported=1_300, estimated=1_000)
    assert once == Calibration(ratio=1.3, pairs=1)
    assert calibrate(once, reported=1_100, estimated=1_000).ratio == pytest.approx(1.2)
    for reported, estimated in ((None, 1_000), (900, 500), (249, 1_000), (4_001, 1_000)):
        assert calibrate(once, reported=reported, estimated=estimated) is once


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 40_000)), max_size=60))
def test_M60_T7_the_ratio_stays_within_what_is_plausible_whatever_is_reported(pairs):
    known = Calibration()
    for reported, estimated in pairs:
        before, known = known, calibrate(known, reported=reported, estimated=estimated)
        assert 0.25 <= known.ratio <= 4.0
        if before.pairs >= WEIGHED_PAIRS:
            assert abs(known.ratio - before.ratio) <= (4.0 - 0.25) / WEIGHED_PAIRS


def test_T8_the_log_holds_the_ratio_so_that_a_resumed_session_has_the_same():
    """By model, from the estimate of all that was sent; the reply and what follows it are not in it."""
    story = Story()
    story.begin("Port it. " * 400)
    story.tell()
    sizes = []
    for factor in (1.2, 1.4):
        spine, head = story.spine(), story.state.manifests["m-planner"].head_tokens
        sizes.append((head + spine.tokens, round(factor * (head + spine.tokens))))
        usage = Usage(input_tokens=sizes[-1][1], output_tokens=50)
        story.reply(PLANNER, AssistantText(text="long " * 500), usage=usage)
        story.add(fact(f"f{factor}"))
        story.tell()
    ratio = sum(reported / estimated for estimated, reported in sizes) / 2
    assert ratio_of(story.state, "m") == pytest.approx(ratio)
    assert ratio_of(story.state, "another") == 1.0
    assert fold_all(story.events).calibrations == story.state.calibrations
    story.reply(PLANNER, AssistantText(text="ok"), usage=Usage(input_tokens=9, output_tokens=9, is_estimated=True))
    assert story.state.calibrations["m"].pairs == 2


def test_M105_what_is_only_estimated_may_be_half_as_large_again():
    room = Room(window_tokens=10_256, max_output_tokens=0, head_tokens=0)
    spine = replied(Spine(agent=PLANNER), reported=3_000, estimated=3_000)
    news = extend(spine, [UserText(text="a" * 16_000, origin="state")])
    assert estimate(news, 0) == 7_808
    assert most_likely(news, room) == 7_808 + 2_404
    assert is_over(news, room, policy=RebasePolicy())
    assert not is_over(replace(news, anchor_tokens=2_000), room, policy=RebasePolicy())
