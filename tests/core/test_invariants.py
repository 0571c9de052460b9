"""The invariants of DESIGN section 5 over whole sessions of any shape."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.core.reading import state_in, told_view, volatile_in
from tests.core.sessions import VOLATILE, Story, example, fact
from tests.core.strategies import policies, rooms, stories, texts
from xnagent.core import events as ev
from xnagent.core.board import OPEN_TASK
from xnagent.core.checkpoint import checkpoint
from xnagent.core.delta import delta
from xnagent.core.due import RETRY_GROWTH_SHARE, is_due
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, CallId, FactId, RunId
from xnagent.core.items import ToolCall, ToolResult, UserText, calls_of, is_balanced
from xnagent.core.messages import state_message
from xnagent.core.rebase import RebasePolicy
from xnagent.core.spine import Spine, add_reply, add_result, estimate, extend
from xnagent.core.spine_events import SpineRebased
from xnagent.core.tokens import Usage
from xnagent.core.view import view

ROOT = Path(__file__).resolve().parents[2]
sessions = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def lives(story: Story):
    """Every pair of consecutive states of every spine."""
    for before, after in itertools.pairwise(story.states):
        for agent, spine in before.spines.items():
            yield spine, after.spines[agent]


@sessions
@given(stories())
def test_I1_I5_M1_M15_M48_between_rebases_a_spine_only_grows_and_keeps_the_same_objects(story: Story):
    for before, after in lives(story):
        if before.generation == after.generation:
            kept = after.items[: len(before.items)]
            assert len(kept) == len(before.items)
            assert all(left is right for left, right in zip(before.items, kept, strict=True))
        else:
            head = before.items[: before.head]
            assert all(left is right for left, right in zip(head, after.items, strict=False))


@sessions
@given(stories())
def test_I2_baseline_or_checkpoint_and_deltas_are_the_current_view(story: Story):
    spine = story.spine()
    if not spine.is_open:
        story.tell()
        told = story.spine()
        assert told_view(told.items) == view(told.base)
        assert delta(told.base, story.state.board) == ()


@sessions
@given(stories())
def test_I2_M9_at_every_moment_the_messages_tell_the_base_that_is_remembered(story: Story):
    for state in story.states:
        spine = state.spines.get(PLANNER)
        if spine is not None and spine.base is not None:
            assert told_view(spine.items) == view(spine.base)
            assert spine.cursor <= state.cause_count


@sessions
@given(stories())
def test_I2_M3_an_unchanged_state_is_not_told_again(story: Story):
    if not story.spine().is_open:
        story.tell()
        assert state_message(story.state) is None
        story.rebase()
        assert state_message(story.state) is None


@sessions
@given(stories())
def test_I3_every_call_has_one_result_right_after_its_reply(story: Story):
    for state in story.states:
        for spine in state.spines.values():
            assert spine.call_ids == {call.call_id for call in calls_of(spine.items)}
            if spine.is_open:
                assert set(spine.results) < {call.call_id for call in spine.open_calls}
            else:
                assert is_balanced(spine.items)


@sessions
@given(stories())
def test_I4_M17_M23_a_rebase_changes_only_its_spine(story: Story):
    for (before, after), event in zip(itertools.pairwise(story.states), story.events, strict=True):
        if isinstance(event, SpineRebased):
            assert before.board is after.board
            assert before.work is after.work
            assert before.totals is after.totals
            assert before.request_count == after.request_count
            assert before.started_tools is after.started_tools
            assert (before.causes, before.planner) == (after.causes, after.planner)
            others = [agent for agent in before.spines if agent != event.agent]
            assert all(before.spines[agent] is after.spines[agent] for agent in others)


@sessions
@given(stories(), st.randoms(use_true_random=False))
def test_I1_M16_a_restart_folds_the_log_to_the_same_spines(story: Story, rng):
    cut = rng.randint(0, len(story.events))
    again = fold_all(story.events[cut:], fold_all(story.events[:cut]))
    assert again == story.state


@sessions
@given(stories())
def test_I6_M30_nothing_volatile_is_rendered(story: Story):
    written = [
        item.text
        for state in story.states[-1:]
        for spine in state.spines.values()
        for item in spine.items
        if isinstance(item, UserText)
    ]
    written += [checkpoint(story.state, agent) for agent in story.state.spines]
    for text in written:
        assert not volatile_in(text)
        assert not [value for value in VOLATILE if value in text]


@pytest.mark.parametrize(
    "text", ["at 2026-01-02T03:04:05Z", "0189cafe-0000-4000-8000-00000000beef", "/tmp/x", "req_id"]
)
def test_I6_M29_the_scanner_finds_what_it_looks_for(text: str):
    assert volatile_in(text)


@sessions
@given(stories(), rooms, policies)
def test_I7_M52_T9_after_a_refusal_only_the_hard_limit_asks_again_until_the_spine_has_grown(story: Story, room, policy):
    spine = story.spine()
    assume(not spine.is_open and not story.plan(room=room, policy=policy).has_gain(policy))
    assert not story.rebase(room=room, policy=policy, forced=False)
    assert is_due(story.spine(), room, policy=policy) in {None, "hard"}
    story.add(state_message(story.state))
    grown = estimate(story.spine(), room.head_tokens) - story.spine().refused_at
    if grown < RETRY_GROWTH_SHARE * room.usable_tokens:
        assert is_due(story.spine(), room, policy=policy) in {None, "hard"}


@sessions
@given(stories(), rooms, policies)
def test_I7_a_rebase_that_claims_a_gain_frees_the_share(story: Story, room, policy):
    plan = story.plan(room=room, policy=policy)
    if plan.has_gain(policy):
        assert plan.tokens_after < plan.tokens_before
        assert plan.tokens_before - plan.tokens_after >= policy.min_gain_share * plan.tokens_before


@sessions
@given(stories())
def test_I8_pinned_facts_open_tasks_and_unretracted_facts_are_in_the_checkpoint(story: Story):
    board = story.state.board
    text = checkpoint(story.state, PLANNER)
    document = state_in(text)
    shown = [known for known in board.facts.values() if known.retracted is None]
    assert list(document["facts"]) == [known.fact for known in sorted(shown, key=lambda known: not known.is_pinned)]
    for known in shown:
        entry = document["facts"][known.fact]
        assert entry.get("value") == known.value
        assert len(known.text) > 1_000 or entry.get("text", "") == known.text
    for name, task in board.tasks.items():
        assert document["tasks"][name]["status"] == task.status
        assert task.status not in OPEN_TASK or f"\n- {name} ({task.status}" in text
    assert document["messages"] == dict(board.messages)


@sessions
@given(texts, st.booleans())
def test_I8_M81_a_pinned_fact_is_there_to_the_last_character_and_a_retracted_one_is_not(words: str, retracted):
    story = example()
    marked = f"marker-{words}-end" + "y" * 1_500
    story.add(fact("f7", marked, value="3.141592653589793238462643", is_pinned=True))
    if retracted:
        story.add(ev.FactRetracted(fact=FactId("f7"), reason="wrong"))
    text = checkpoint(story.state, PLANNER)
    assert ("3.141592653589793238462643" in text) is not retracted
    assert ("y" * 1_500 in text) is not retracted


def test_I8_a_message_of_the_planner_to_a_worker_outlives_its_rebases():
    story = example()
    run = RunId("r2")
    story.launch(run)
    story.add(ev.RunMessageSent(run=run, text="Use the new parser, not the old one."))
    story.deliver(run)
    small = RebasePolicy(tail_share=0.0, least_tail_tokens=0)
    for _ in range(2):
        story.step("output " * 200, agent=run)
        story.rebase(run, policy=small)
    shown = "".join(item.text for item in story.spine(run).items if isinstance(item, UserText))
    assert "Use the new parser, not the old one." in shown


@sessions
@given(stories())
def test_same_state_same_checkpoint(story: Story):
    again = fold_all(story.events)
    for agent in story.state.spines:
        assert checkpoint(again, agent) == checkpoint(story.state, agent)


def test_M18_B007_the_bytes_are_the_same_in_another_process_with_another_hash_seed():
    def rendered(seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "tests.core.sessions"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        ).stdout

    first = rendered("0")
    assert len(first) == 64
    assert all(rendered(seed) == first for seed in ("1", "4242"))


@given(st.integers(1, 4), st.randoms(use_true_random=False))
def test_I3_T31_results_stand_in_the_order_of_the_calls_whatever_ends_first(count: int, rng):
    calls = [ToolCall(call_id=CallId(f"c{n}"), name="read", arguments="{}") for n in range(count)]
    spine = add_reply(Spine(agent=PLANNER), calls, usage=Usage())
    for call in rng.sample(calls, count):
        with pytest.raises(ValueError, match="open calls"):
            extend(spine, [UserText(text="too early", origin="harness")])
        spine = add_result(spine, ToolResult(call_id=call.call_id, text=call.call_id))
    assert not spine.is_open
    assert calls_of(spine.items) == tuple(calls)
    assert [item.text for item in spine.items[count:]] == [call.call_id for call in calls]
    assert extend(spine, [UserText(text="now", origin="harness")]).items[-1].text == "now"
