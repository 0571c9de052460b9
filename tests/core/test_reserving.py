"""A run that likely can't be paid beside those at work waits; one is always under way."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.sessions import Story, delegated, settled, task
from xnagent.core import events as ev
from xnagent.core.decide import DriveRun, StepPlanner, decide
from xnagent.core.fold import fold_all
from xnagent.core.forecast import AgentUse, Amount, Forecast
from xnagent.core.ids import AgentId, RunId, TaskId
from xnagent.core.items import AssistantText
from xnagent.core.limits import Limits
from xnagent.core.reserving import Prospect, held, shortage, unpayable
from xnagent.core.state import SessionState
from xnagent.core.tokens import Usage

DOLLAR = Forecast(likely=Amount(uncached_tokens=1_000, cost_usd=1.0))
PLAN = (task("a"), task("b"), task("c"))
R1, R2, R3 = (DriveRun(RunId(name)) for name in ("r1", "r2", "r3"))


def three(*costs: float) -> tuple[ev.Event, ...]:
    """Tasks a, b, c with runs that likely cost so much."""
    runs = [
        delegated(f"r{n}", "abc"[n - 1], forecast=Forecast(likely=Amount(uncached_tokens=1_000, cost_usd=cost)))
        for n, cost in enumerate(costs, 1)
    ]
    return (*PLAN, *runs)


@pytest.mark.parametrize(
    ("limits", "begun"),
    [
        (Limits(), (R1, R2, R3)),
        (Limits(usd=3.0), (R1, R2, R3)),
        (Limits(usd=2.9), (R1, R2)),
        (Limits(usd=1.9), (R1,)),
        (Limits(usd=0.1), (R1,)),
        (Limits(tokens=2_999), (R1, R2)),
        (Limits(tokens=1), (R1,)),
    ],
)
def test_runs_begin_as_long_as_their_likely_costs_fit_and_one_always_does(limits: Limits, begun):
    state = fold_all(three(1.0, 1.0, 1.0))
    assert decide(state, frozenset(), parallel=3, limits=limits) == (*begun, StepPlanner())


def test_a_small_run_goes_before_a_large_one_that_has_to_wait():
    state = fold_all(three(1.0, 5.0, 1.0))
    assert decide(state, frozenset(), parallel=3, limits=Limits(usd=2.5)) == (R1, R3, StepPlanner())


def test_what_a_run_holds_is_free_when_it_ends():
    events = three(1.0, 1.0, 1.0)
    in_flight = frozenset({R1, StepPlanner()})
    assert decide(fold_all(events), in_flight, parallel=3, limits=Limits(usd=1.9)) == ()
    ended = fold_all([*events, settled("r1")])
    assert decide(ended, frozenset({StepPlanner()}), parallel=3, limits=Limits(usd=1.9)) == (R2,)


def test_a_run_that_was_interrupted_goes_on_whatever_is_left():
    events = [*three(1.0, 1.0), *(ev.RunInterrupted(run=RunId(run), reason="x") for run in ("r1", "r2"))]
    assert decide(fold_all(events), frozenset(), parallel=3, limits=Limits(usd=0.1)) == (R1, R2, StepPlanner())


def test_a_run_of_an_older_log_holds_nothing_and_waits_for_nothing():
    state = fold_all([*PLAN, delegated("r1", "a"), delegated("r2", "b")])
    assert decide(state, frozenset(), parallel=3, limits=Limits(usd=0.1)) == (R1, R2, StepPlanner())
    assert held(state, state.board.runs[RunId("r1")]) == (0.0, 0)


def test_a_run_holds_what_it_has_not_used_yet():
    state = fold_all(three(1.0))
    run = state.board.runs[RunId("r1")]
    assert held(state, run) == (1.0, 1_000)
    used = replace(state, uses={AgentId("r1"): AgentUse(steps=1, input_tokens=300, output_tokens=100, cost_usd=0.25)})
    assert held(used, run) == (0.75, 600)
    over = replace(state, uses={AgentId("r1"): AgentUse(steps=1, input_tokens=9_000, cost_usd=None)})
    assert held(over, run) == (1.0, 0)


def test_the_reason_names_what_it_needs_what_is_free_and_who_works():
    state = fold_all(three(1.0, 1.0))
    runs = state.board.runs
    holders = [runs[RunId("r1")], runs[RunId("r2")]]
    why = shortage(state, Limits(usd=1.5), run=runs[RunId("r2")], holders=holders)
    assert why == "it likely costs $1.0000; of $1.5000, $0.5000 is free while r1 work"
    why = shortage(state, Limits(tokens=1_500), run=runs[RunId("r2")], holders=holders)
    assert why == "it likely uses 1,000 tokens; of 1,500, 500 are free while r1 work"


def test_a_run_whose_first_request_can_never_be_paid_is_told():
    prospect = Prospect(forecast=DOLLAR, least_tokens=500, least_usd=0.5)
    state = SessionState()
    assert unpayable(state, Limits(), prospect=prospect) is None
    assert unpayable(state, Limits(usd=0.5, tokens=500), prospect=prospect) is None
    assert "may cost $0.5000, and $0.4000 of $0.4000 is left" in unpayable(state, Limits(usd=0.4), prospect=prospect)
    assert "500 tokens, and 499 of 499" in unpayable(state, Limits(tokens=499), prospect=prospect)


costs = st.floats(0, 10, allow_nan=False)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(costs, min_size=1, max_size=3), costs, st.integers(1, 4), st.permutations(["r1", "r2", "r3"]))
def test_every_run_begins_in_the_end_whatever_the_limit_is(likely, limit, parallel, order):
    """No deadlock: as runs end, in whatever order, all of the others have their turn."""
    events, begun = list(three(*likely)), set()
    for _ in range(2 * len(likely)):
        state = fold_all(events)
        active = frozenset(DriveRun(run) for run in begun if state.board.runs[run].status == "queued")
        found = decide(state, active | {StepPlanner()}, parallel=parallel, limits=Limits(usd=limit))
        begun |= {action.run for action in found if isinstance(action, DriveRun)}
        working = [run for run in order if run in begun and state.board.runs[RunId(run)].status == "queued"]
        assert working or len(begun) == len(likely)
        if working:
            events.append(settled(working[0]))
    assert len(begun) == len(likely)


def test_uses_are_counted_by_agent():
    story = Story()
    story.begin()
    story.add(task("a"), delegated("r1", "a"))
    story.launch(RunId("r1"))
    story.reply(AgentId("r1"), AssistantText(text="x"), usage=Usage(input_tokens=10, output_tokens=2), cost_usd=0.5)
    assert story.state.uses[AgentId("r1")].input_tokens == 10
    assert story.state.board.tasks[TaskId("a")].status == "active"
