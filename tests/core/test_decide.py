"""The next actions, for every kind of state."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.sessions import Story, delegated, evidence, settled, task
from tests.core.strategies import stories
from xnagent.core import events as ev
from xnagent.core.decide import (
    CheckWhole,
    Conclude,
    DriveRun,
    SettleQueued,
    StepPlanner,
    Stop,
    decide,
    is_halting,
    is_urgent,
    is_verified,
    needs_check,
    outcome_of,
)
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, RunId, TaskId
from xnagent.core.spine_events import RequestFailed
from xnagent.core.state import SessionState, active_runs

STARTED = ev.SessionStarted(session="s-1", objective="x")
CHECKED = replace(STARTED, checks=("make", "pytest"))
MAKE = replace(STARTED, checks=("make",))
COMPLETED = ev.FinishRequested(outcome="completed", summary="")
FAILED = ev.FinishRequested(outcome="failed", summary="")
BLOCKED = ev.FinishRequested(outcome="blocked", summary="", question="?")
WROTE = ev.UserMessageAdded(message="m1", text="and this")
SIGNAL = ev.SessionInterrupted(signal="SIGINT")
DEADLINE = ev.LimitReached(limit="deadline", detail="")
STEPS = ev.LimitReached(limit="steps", detail="")
FAULT = RequestFailed(agent=PLANNER, request=1, fault="server", detail="")
PREFIX = replace(FAULT, fault="prefix")
R1, R2, R3 = (DriveRun(RunId(name)) for name in ("r1", "r2", "r3"))
PLAN = (task("a"), task("b"), task("c", depends_on=(TaskId("a"),)))
RUNS = (*PLAN, delegated("r1", "a"), delegated("r2", "b"), delegated("r3", "c"))


def passed(command: str = "make", code: int | None = 0) -> ev.CheckFinished:
    return ev.CheckFinished(run=None, evidence=evidence(command, exit_code=code))


def cancel(run: str) -> ev.RunCancelRequested:
    return ev.RunCancelRequested(run=RunId(run), reason="late")


@pytest.mark.parametrize(
    ("events", "in_flight", "actions"),
    [
        ((), (), (StepPlanner(),)),
        ((), (StepPlanner(),), ()),
        (RUNS, (), (R1, R2, StepPlanner())),
        (RUNS, (R1, StepPlanner()), (R2,)),
        (RUNS, (R1, R2, StepPlanner()), ()),
        ((*RUNS, settled("r1")), (R2, StepPlanner()), (R3,)),
        ((*RUNS, settled("r1", "failed")), (R2, StepPlanner()), ()),
        ((*RUNS, ev.TaskDropped(task=TaskId("a")), settled("r1", "cancelled")), (R2, StepPlanner()), (R3,)),
        ((*RUNS, cancel("r2")), (R1, R2), (Stop(R2), StepPlanner())),
        ((*RUNS, cancel("r2")), (R1, R2, Stop(R2)), (StepPlanner(),)),
        ((*RUNS, cancel("r3")), (R1, R2, StepPlanner()), (SettleQueued(RunId("r3")),)),
        ((*RUNS, cancel("r3")), (R1, R2, StepPlanner(), SettleQueued(RunId("r3"))), ()),
        ((*RUNS, ev.RunInterrupted(run=RunId("r1"), reason="x")), (), (R1, R2, StepPlanner())),
        ((COMPLETED,), (StepPlanner(),), ()),
        ((COMPLETED,), (), (Conclude(),)),
        ((COMPLETED,), (Conclude(),), ()),
        ((*RUNS, COMPLETED), (R1, R2, StepPlanner()), (Stop(R1), Stop(R2))),
        ((*RUNS, COMPLETED), (), tuple(SettleQueued(RunId(name)) for name in ("r1", "r2", "r3"))),
        ((*RUNS, COMPLETED), (SettleQueued(RunId("r1")),), ()),
        ((*RUNS, COMPLETED, STEPS), (), (Conclude(),)),
        ((*RUNS, SIGNAL), (), (Conclude(),)),
        ((*RUNS, COMPLETED), (R1, Stop(R1)), ()),
        ((CHECKED, COMPLETED), (), (CheckWhole(),)),
        ((CHECKED, COMPLETED), (CheckWhole(),), ()),
        ((CHECKED, COMPLETED, passed()), (), (CheckWhole(),)),
        ((CHECKED, COMPLETED, passed(), passed("pytest", 1)), (), (Conclude(),)),
        ((CHECKED, COMPLETED, WROTE), (CheckWhole(),), (Stop(CheckWhole()),)),
        ((CHECKED, COMPLETED, WROTE), (CheckWhole(), Stop(CheckWhole())), ()),
        ((CHECKED, COMPLETED, WROTE), (), (StepPlanner(),)),
        ((CHECKED, COMPLETED, WROTE), (Conclude(),), ()),
        ((CHECKED, COMPLETED, WROTE, passed(), passed("pytest"), COMPLETED), (), (CheckWhole(),)),
        ((CHECKED, FAILED), (), (Conclude(),)),
        ((CHECKED, BLOCKED), (), (Conclude(),)),
        ((CHECKED, COMPLETED, SIGNAL), (), (Conclude(),)),
        ((CHECKED, COMPLETED, STEPS), (), (Conclude(),)),
        ((CHECKED, COMPLETED, FAULT), (), (Conclude(),)),
        ((STEPS,), (StepPlanner(),), ()),
        ((STEPS,), (StepPlanner(), R1), (Stop(R1),)),
        ((SIGNAL,), (StepPlanner(), R1), (Stop(R1), Stop(StepPlanner()))),
        ((DEADLINE,), (StepPlanner(),), (Stop(StepPlanner()),)),
        ((CHECKED, COMPLETED, DEADLINE), (CheckWhole(),), (Stop(CheckWhole()),)),
        ((FAULT,), (R2,), (Stop(R2),)),
        ((COMPLETED, ev.SessionSettled(outcome="completed", exit_code=0)), (), ()),
    ],
)
def test_decide(events, in_flight, actions):
    assert decide(fold_all(events), frozenset(in_flight), parallel=2) == actions


def test_a_waiting_planner_is_not_stepped():
    state = replace(fold_all(RUNS), planner="waiting")
    assert decide(state, frozenset(), parallel=1) == (R1,)
    assert decide(state, frozenset(), parallel=0) == ()


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(stories(), st.integers(0, 3))
def test_decide_never_starts_twice_never_passes_the_limit_and_always_has_something_to_do(story: Story, parallel: int):
    state = story.state
    first = decide(state, frozenset(), parallel=parallel)
    assert len(set(first)) == len(first)
    assert sum(isinstance(action, DriveRun) for action in first) <= parallel
    assert not set(decide(state, frozenset(first), parallel=parallel)) & set(first)
    if state.settled is None and state.planner != "waiting":
        assert first
    if state.planner == "waiting" and parallel and not is_halting(state):
        assert first
        assert active_runs(state)


@pytest.mark.parametrize(
    ("events", "is_halted", "urgent"),
    [
        ((), False, False),
        ((COMPLETED,), True, False),
        ((STEPS,), True, False),
        ((FAULT,), True, False),
        ((DEADLINE,), True, True),
        ((SIGNAL,), True, True),
    ],
)
def test_what_halts_a_session_and_what_is_urgent(events, is_halted, urgent):
    assert is_halting(fold_all(events)) is is_halted
    assert is_urgent(fold_all(events)) is urgent


@pytest.mark.parametrize(
    ("events", "needed"),
    [((COMPLETED,), False), ((STARTED, COMPLETED), False), ((CHECKED,), False), ((CHECKED, COMPLETED), True)],
)
def test_the_whole_is_checked_when_the_planner_says_that_it_is_complete(events, needed):
    assert needs_check(fold_all(events)) is needed


DONE = (*PLAN[:1], delegated("r1", "a"), settled("r1"))


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((COMPLETED,), "completed"),
        ((*DONE, COMPLETED), "completed"),
        ((*DONE, task("old"), ev.TaskDropped(task=TaskId("old")), COMPLETED), "completed"),
        ((MAKE, *DONE, COMPLETED, passed()), "completed"),
        ((MAKE, *DONE, COMPLETED, passed(code=1)), "partial"),
        ((MAKE, *DONE, COMPLETED, passed(code=None)), "partial"),
        ((MAKE, COMPLETED, passed(code=1)), "failed"),
        ((*DONE, task("b"), COMPLETED), "partial"),
        ((*DONE, FAILED), "partial"),
        ((task("b"), COMPLETED), "failed"),
        ((task("b"), delegated("r1", "b"), settled("r1", "failed"), COMPLETED), "failed"),
        ((FAILED,), "failed"),
        ((), "failed"),
        ((*DONE, BLOCKED), "blocked"),
        ((*DONE, COMPLETED, FAULT), "provider_error"),
        ((PREFIX,), "prefix_broken"),
        ((FAULT, STEPS), "limit"),
        ((DEADLINE,), "deadline"),
        ((ev.LimitReached(limit="context", detail=""),), "limit"),
        ((*DONE, COMPLETED, STEPS, FAULT, SIGNAL), "interrupted"),
    ],
)
def test_B057_the_outcome_follows_from_state_alone(events, outcome):
    assert outcome_of(fold_all(events)) == outcome


@pytest.mark.parametrize("ran", [(), (passed(),), (passed("something else"), passed("other"))])
def test_B057_a_check_that_was_asked_for_and_never_passed_is_no_success(ran):
    """Only evidence of the very checks counts: none, one of two, or two others are not enough."""
    state = fold_all([CHECKED, *ran, COMPLETED])
    assert outcome_of(state) != "completed"
    assert is_verified(state) is False


@pytest.mark.parametrize(
    ("events", "verified"),
    [
        ((), None),
        ((STARTED, *DONE), None),
        ((CHECKED,), False),
        ((CHECKED, passed()), False),
        ((CHECKED, passed(), passed("pytest")), True),
        ((CHECKED, passed(), passed("pytest", 1)), False),
        ((task("a", checks=("make",)),), False),
        ((task("a", checks=("make",)), delegated("r1", "a"), settled("r1")), True),
        ((task("a", checks=("make",)), ev.TaskDropped(task=TaskId("a"))), None),
        ((CHECKED, task("b"), passed(), passed("pytest")), False),
    ],
)
def test_verified_is_true_false_or_unknown(events, verified):
    assert is_verified(fold_all(events)) is verified


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(stories(), st.sampled_from([COMPLETED, FAILED, BLOCKED]))
def test_B057_completed_is_never_said_against_the_evidence(story: Story, finish):
    story.add(finish)
    state = story.state
    if outcome_of(state) == "completed":
        assert finish is COMPLETED
        assert all(state.checks[check].has_passed for check in state.started.checks)
        assert all(known.status in {"completed", "dropped"} for known in state.board.tasks.values())


def test_an_empty_state_is_a_new_session():
    assert decide(SessionState(), frozenset(), parallel=4) == (StepPlanner(),)
