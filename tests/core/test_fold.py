"""Folding: total over what may stand in a log, deterministic, and never touching what was."""

from dataclasses import replace
from functools import reduce
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.sessions import Story, delegated, evidence, example, fact, settled, task
from tests.core.strategies import NEEDS_ITS_PLACE, any_event, stories
from xnagent.core import events as ev
from xnagent.core import fold as folding
from xnagent.core.checkpoint import checkpoint
from xnagent.core.decide import decide, is_verified, outcome_of
from xnagent.core.fold import KEPT_CAUSES, fold, fold_all
from xnagent.core.fold_steps import KEPT_CALLS, STEPS
from xnagent.core.ids import PLANNER, AgentId, CallId, FactId, RunId, TaskId, Ticket
from xnagent.core.items import AssistantText, UserText
from xnagent.core.messages import nudge_message, state_message
from xnagent.core.record import final_record
from xnagent.core.spine_events import (
    PrefixBroken,
    RequestFailed,
    RequestRetried,
    SpineExtended,
    ToolFinished,
    ToolStarted,
)
from xnagent.core.state import SessionState, active_runs, can_progress, has_ended, run_of, steps_of, work_of
from xnagent.core.text import canonical
from xnagent.core.tokens import Usage
from xnagent.core.view import view

R1 = AgentId("r1")
logs = st.lists(any_event, max_size=15)
wild = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@wild
@given(logs)
def test_fold_takes_any_events_in_any_order_and_is_deterministic(events):
    assert fold_all(events) == fold_all(events)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(stories(), st.data())
def test_many_events_at_once_make_the_same_state_as_one_by_one(story, data):
    """Each state of a story is one `fold` further than the one before."""
    cut = data.draw(st.integers(0, len(story.events)))
    first, rest = story.events[:cut], story.events[cut:]
    assert repr(fold_all(first)) == repr(story.states[cut])
    before = repr(story.states[cut])
    assert repr(fold_all(rest, story.states[cut])) == repr(story.state)
    assert repr(story.states[cut]) == before, "what was there is not changed in place"


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(logs)
def test_any_events_at_once_make_the_same_state_as_one_by_one(events):
    assert repr(fold_all(events)) == repr(reduce(fold, events, SessionState()))


@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "one-by-one"])
def test_what_does_not_fit_is_refused_alike_and_leaves_the_state_as_it_was(at_once):
    story = Story()
    story.begin()
    before, extra = repr(story.state), ToolFinished(agent=R1, call_id=CallId("c9"), tool="bash", text="")
    with pytest.raises(ValueError, match="c9 is not an open call of r1"):
        fold_all([extra], story.state) if at_once else fold(story.state, extra)
    assert repr(story.state) == before


@wild
@given(logs)
def test_fold_changes_nothing_of_an_earlier_state(events):
    state = SessionState()
    for event in events:
        before = repr(state)
        after = fold(state, event)
        assert repr(state) == before
        state = after


@wild
@given(logs)
def test_what_is_computed_from_a_state_takes_any_state(events):
    state = fold_all(events)
    outcome_of(state), is_verified(state), state_message(state), nudge_message(state), view(state.board)
    checkpoint(state, PLANNER), checkpoint(state, R1), steps_of(state), can_progress(state)
    assert canonical(final_record(state))
    assert decide(state, frozenset(), parallel=2) == decide(state, frozenset(), parallel=2)


def test_a_run_of_a_task_that_nobody_planned_does_not_stop_the_planner():
    story = Story()
    story.begin()
    story.add(delegated("r1", "unplanned"))
    story.step()
    assert story.state.planner in {"waiting", "unfinished"}


def test_every_event_has_a_handler():
    assert set(folding._HANDLERS) | set(STEPS) == set(get_args(ev.Event))
    assert not set(folding._HANDLERS) & set(STEPS)
    assert set(NEEDS_ITS_PLACE) < set(get_args(ev.Event))


UNKNOWN = [
    ev.TaskRevised(task=TaskId("x"), title="", objective=""),
    ev.TaskDropped(task=TaskId("x")),
    ev.RunLaunched(run=RunId("r9"), base="c"),
    ev.RunSubmitted(run=RunId("r9"), status="completed", summary=""),
    ev.PatchTaken(run=RunId("r9"), patch=Ticket("t"), commit="c", changed_files=()),
    ev.CheckFinished(run=RunId("r9"), evidence=evidence()),
    ev.RunInterrupted(run=RunId("r9"), reason=""),
    settled("r9"),
    ev.FactCorrected(fact=FactId("f9"), text="", source="r1"),
    ev.FactRetracted(fact=FactId("f9"), reason=""),
    RequestRetried(agent=R1, request=1, attempt=1, fault="server", detail="", wait_seconds=1.0),
]


@pytest.mark.parametrize("event", UNKNOWN, ids=lambda event: event.type)
def test_an_event_about_something_unknown_changes_nothing(event):
    state = example().state
    assert fold(state, event) == state


def test_a_task_goes_from_pending_to_completed_and_is_reopened_by_a_revision():
    revised = ev.TaskRevised(task=TaskId("a"), title="New", objective="More", checks=("make",))
    log = [task("a"), delegated("r1", "a"), settled("r1"), revised]
    statuses = [fold_all(log[: n + 1]).board.tasks["a"].status for n in range(len(log))]
    assert statuses == ["pending", "active", "completed", "pending"]
    assert fold_all(log).board.tasks["a"].runs == ("r1",)


@pytest.mark.parametrize(
    ("end", "status", "line"),
    [
        (settled("r1"), "completed", "run r1 settled: completed (task a)"),
        (settled("r1", "failed", reason="no"), "failed", "run r1 settled: failed (task a)"),
        (settled("r1", "cancelled"), "pending", "run r1 settled: cancelled (task a)"),
        (settled("r1", "failed", conflicts=("a.py",)), "failed", "run r1 settled: merge conflict (task a)"),
    ],
)
def test_a_run_that_settles_wakes_the_planner(end, status, line):
    state = replace(fold_all([task("a"), delegated("r1", "a")]), planner="waiting")
    state = fold(state, end)
    assert state.board.tasks["a"].status == status
    assert state.causes[-1].text == line
    assert (state.planner, state.last_wake) == ("ready", state.cause_count)


def test_a_dropped_task_stays_dropped_when_its_run_ends():
    state = fold_all([task("a"), delegated("r1", "a"), ev.TaskDropped(task=TaskId("a")), settled("r1")])
    assert state.board.tasks["a"].status == "dropped"


def test_a_run_of_an_unknown_task_settles_without_one():
    state = fold_all([delegated("r1", "a"), settled("r1")])
    assert run_of(state, "r1").status == "completed"
    assert run_of(state, "r2") is None
    assert active_runs(state) == ()


def test_evidence_is_kept_by_command_newest_last():
    run = RunId("r1")
    checks = [evidence("a", exit_code=1), evidence("b"), evidence("a")]
    state = fold_all([task("t"), delegated("r1", "t"), *(ev.CheckFinished(run=run, evidence=one) for one in checks)])
    assert [(one.command, one.has_passed) for one in state.board.runs["r1"].evidence] == [("b", True), ("a", True)]


def test_final_checks_are_news_for_the_planner():
    state = fold_all(ev.CheckFinished(run=None, evidence=evidence("make", exit_code=code)) for code in (1, 0))
    assert [cause.text for cause in state.causes] == ["final check failed: make", "final check passed: make"]
    assert state.checks["make"].has_passed


def test_M6_a_fact_has_revisions_and_a_retracted_one_is_not_pinned():
    correct = ev.FactCorrected(fact=FactId("f1"), text="Two", value="2", source="r1")
    state = fold_all([fact("f1", is_pinned=True), correct])
    known = state.board.facts["f1"]
    assert (known.text, known.value, known.source, known.revision, known.is_pinned) == ("Two", "2", "r1", 2, True)
    gone = fold(state, ev.FactRetracted(fact=FactId("f1"), reason="")).board.facts["f1"]
    assert (gone.retracted, gone.is_pinned) == ("retracted", False)
    assert [cause.is_operation for cause in state.causes] == [True, False]


def test_causes_and_calls_are_bounded_and_counted():
    state = fold_all(task(f"t{n}") for n in range(KEPT_CAUSES + 5))
    assert (len(state.causes), state.cause_count) == (KEPT_CAUSES, KEPT_CAUSES + 5)
    assert state.causes[0].number == 6
    story = Story()
    story.begin()
    for _ in range(KEPT_CALLS + 5):
        story.step("ok")
    assert len(work_of(story.state, PLANNER).calls) == KEPT_CALLS
    assert steps_of(story.state) == (KEPT_CALLS + 5, 0)


def test_M115_the_same_failing_call_is_counted_until_something_else_works():
    story = Story()
    story.begin()
    seen = []
    for arguments, code in [("{}", "X"), ("{}", "X"), ('{"a":1}', "X"), ("{}", "ok"), ("{}", "X")]:
        (call,) = story.reply(PLANNER, story.call("read", arguments))
        story.answer(PLANNER, call, "text", code)
        seen.append(work_of(story.state, PLANNER).failures[1])
    assert seen == [1, 2, 1, 0, 1]
    assert work_of(story.state, PLANNER).calls[0] == "read: text [X]"


def test_M115_what_failed_before_may_work_once_a_run_has_settled():
    story = Story()
    story.begin()
    story.add(task("a"), delegated("r1", "a"))
    (call,) = story.reply(PLANNER, story.call("finish", "{}"))
    story.answer(PLANNER, call, "r1 is active", "ACTIVE")
    assert work_of(story.state, PLANNER).failures[1] == 1
    story.add(settled("r1"))
    assert work_of(story.state, PLANNER).failures == ("", 0)


def test_a_message_to_a_worker_waits_in_its_inbox_until_it_is_in_the_spine():
    story = Story()
    story.begin()
    story.add(task("a"), delegated("r1", "a"), ev.RunMessageSent(run=RunId("r1"), text="Hurry"))
    story.launch(RunId("r1"))
    assert work_of(story.state, R1).inbox == ("Hurry",)
    story.deliver(RunId("r1"))
    assert work_of(story.state, R1).inbox == ()
    story.add(SpineExtended(agent=PLANNER, kind="message", items=(UserText(text="x", origin="harness"),)))
    story.add(SpineExtended(agent=R1, kind="nudge", items=(UserText(text="Hand in.", origin="harness"),)))
    assert work_of(story.state, R1).nudged
    story.add(ev.RunCancelRequested(run=RunId("r1"), reason="late"))
    assert work_of(story.state, R1).cancel_reason == "late"


def test_a_started_tool_is_remembered_until_it_has_its_result():
    story = Story()
    story.begin()
    (call,) = story.reply(PLANNER, story.call("bash"))
    started = ToolStarted(agent=PLANNER, call_id=call.call_id, tool="bash", effect="opaque", spool="c1")
    story.add(started)
    assert story.state.started_tools == {(PLANNER, call.call_id): started}
    story.answer(PLANNER, call)
    assert story.state.started_tools == {}


def planner_replies(story: Story, *, with_call: bool = False) -> str:
    calls = story.reply(PLANNER, AssistantText(text="Well."), *([story.call()] if with_call else []))
    for call in calls:
        story.answer(PLANNER, call)
    return story.state.planner


def test_the_planner_waits_only_if_something_will_wake_it():
    story = Story()
    story.begin()
    assert planner_replies(story, with_call=True) == "ready"
    story.add(task("a"), delegated("r1", "a"))
    story.tell()
    assert planner_replies(story) == "waiting"
    story.add(ev.UserMessageAdded(message="m1", text="more"))
    assert planner_replies(story) == "ready"


def test_B029_a_planner_that_answers_without_a_call_is_asked_once_and_then_believed():
    story = Story()
    story.begin()
    assert planner_replies(story) == "unfinished"
    story.nudge()
    assert story.state.planner == "nudged"
    planner_replies(story)
    assert (story.state.finish.outcome, story.state.finish.summary) == ("completed", "Well.")


def test_runs_that_wait_for_each_other_do_not_keep_the_planner_waiting():
    story = Story()
    story.begin()
    story.add(
        task("a", depends_on=(TaskId("b"),)),
        task("b", depends_on=(TaskId("a"),)),
        delegated("r1", "a"),
        delegated("r2", "b"),
    )
    assert not can_progress(story.state)
    story.tell()
    assert planner_replies(story) == "unfinished"


def test_the_end_of_a_session_and_its_resumption():
    limit = ev.LimitReached(limit="steps", detail="first")
    fault = RequestFailed(agent=PLANNER, request=1, fault="server", detail="")
    story = Story()
    story.begin(checks=("make",))
    story.add(
        limit,
        ev.LimitReached(limit="usd", detail="second"),
        fault,
        RequestFailed(agent=R1, request=2, fault="server", detail=""),
        ev.SessionInterrupted(signal="SIGTERM"),
        ev.FinishRequested(outcome="failed", summary="no"),
        ev.CheckFinished(run=None, evidence=evidence("make", exit_code=1)),
        ev.ResultApplied(is_applied=False, branch="b"),
        ev.SessionSettled(outcome="interrupted", exit_code=143),
        PrefixBroken(agent=PLANNER, request=1, segment="head", detail="", lost_tokens=1),
    )
    state = story.state
    assert (state.limit, state.fault, len(state.breaks)) == (limit, fault, 1)
    assert state.settled.exit_code == 143
    state = fold(state, ev.SessionResumed(epoch=2))
    ends = (state.limit, state.fault, state.interrupted, state.applied, state.settled)
    assert ends == (None,) * 5
    assert (state.epoch, dict(state.checks)) == (2, {})


@pytest.mark.parametrize(
    ("settled", "stands"),
    [(None, True), ("interrupted", True), ("deadline", True), ("error", True), ("failed", False), ("limit", False)],
)
def test_what_the_planner_said_at_the_end_stands_if_only_its_last_part_was_cut_short(settled, stands):
    story = Story()
    story.begin()
    finish = ev.FinishRequested(outcome="completed", summary="yes")
    story.add(finish, None if settled is None else ev.SessionSettled(outcome=settled, exit_code=1))
    resumed = fold(story.state, ev.SessionResumed(epoch=2))
    assert resumed.finish == (finish if stands else None)
    assert fold(resumed, ev.UserMessageAdded(message="m1", text="More.")).finish is None


def test_a_planner_that_answers_again_has_no_fault():
    story = Story()
    story.begin()
    story.add(RequestFailed(agent=PLANNER, request=1, fault="server", detail=""))
    planner_replies(story, with_call=True)
    assert story.state.fault is None


def test_M33_B069_totals_count_by_role_and_an_unknown_cost_stays_unknown():
    story = Story()
    story.begin()
    usage = Usage(input_tokens=10, output_tokens=1)
    story.reply(PLANNER, AssistantText(text="a"), usage=usage, cost_usd=0.5)
    story.reply(PLANNER, AssistantText(text="b"), usage=Usage(input_tokens=5), cost_usd=0.25)
    totals = story.state.totals["planner"]
    assert (totals.requests, totals.cost_usd, totals.usage) == (2, 0.75, Usage(input_tokens=15, output_tokens=1))
    story.reply(PLANNER, AssistantText(text="c"), cost_usd=None)
    story.reply(PLANNER, AssistantText(text="d"), cost_usd=0.5)
    assert story.state.totals["planner"].cost_usd is None


def test_an_agent_has_ended_when_it_said_so():
    state = fold_all([task("a"), delegated("r1", "a")])
    assert not has_ended(state, PLANNER)
    assert not has_ended(state, R1)
    assert not has_ended(state, AgentId("r9"))
    assert has_ended(fold(state, ev.RunSubmitted(run=RunId("r1"), status="blocked", summary="")), R1)
    assert has_ended(fold(state, ev.FinishRequested(outcome="failed", summary="")), PLANNER)
