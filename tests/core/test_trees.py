"""What the state says of the trees of runs: what is saved, what is not, what a Worker has to be told."""

from dataclasses import replace

import pytest

from tests.core.sessions import delegated, task
from xnagent.core import events as ev
from xnagent.core.fold import fold, fold_all
from xnagent.core.ids import PLANNER, AgentId, RunId, TaskId, Ticket
from xnagent.core.items import UserText
from xnagent.core.spine_events import SpineExtended, ToolStarted
from xnagent.core.state import SessionState, work_of
from xnagent.core.tree_events import RunTreeRestored, RunTreeSaved
from xnagent.core.trees import Merge, TreeLog, merge_message

R1, A1 = RunId("r1"), AgentId("r1")
P, Q = Ticket("artifact:" + "1" * 16), Ticket("artifact:" + "2" * 16)


def at_step(state: SessionState, number: int) -> SessionState:
    return replace(state, work={**state.work, A1: replace(work_of(state, A1), steps=number)})


def began(call: str, agent: AgentId = A1) -> ToolStarted:
    return ToolStarted(agent=agent, call_id=call, tool="bash", effect="opaque", spool=call)


def saved(step: int, commit: str, *, since: str, patch: Ticket | None) -> RunTreeSaved:
    return RunTreeSaved(run=R1, step=step, commit=commit, since=since, patch=patch)


@pytest.fixture
def state() -> SessionState:
    """A run that has begun at `base`, in its third step."""
    events = [task("a"), delegated("r1", "a"), ev.RunLaunched(run=R1, base="base")]
    return at_step(fold_all(events), 3)


def tree_of(state: SessionState) -> TreeLog:
    return work_of(state, A1).tree


def test_calls_with_an_effect_make_their_step_unsaved_until_it_is_saved(state):
    state = fold_all([began("c1"), began("c2")], state)
    state = fold(at_step(state, 4), began("c3"))
    assert tree_of(state).unsaved == (3, 4)
    state = fold(state, saved(4, "one", since="base", patch=P))
    assert tree_of(state) == TreeLog(patches=(P,), commit="one")


def test_saves_are_a_chain_that_begins_anew_at_the_base(state):
    chain = [saved(3, "one", since="base", patch=P), saved(4, "one", since="one", patch=None)]
    state = fold_all([*chain, saved(5, "two", since="one", patch=Q)], state)
    assert tree_of(state) == TreeLog(patches=(P, Q), commit="two")
    assert tree_of(fold(state, saved(6, "three", since="base", patch=Q))).patches == (Q,)
    assert tree_of(fold(state, saved(6, "none", since="base", patch=None))).patches == ()


def test_the_patch_that_is_to_be_merged_holds_the_whole_tree(state):
    state = fold_all([saved(3, "one", since="base", patch=P), began("c1")], state)
    state = fold(state, ev.PatchTaken(run=R1, patch=Q, commit="two", changed_files=("x",)))
    assert tree_of(state) == TreeLog(patches=(Q,), commit="two")


def test_what_is_lost_is_told_once_also_if_it_is_restored_twice_before(state):
    state = fold_all([saved(3, "one", since="base", patch=P), began("c1")], state)
    state = fold(state, RunTreeRestored(run=R1, commit="one", lost=(3,)))
    assert (tree_of(state).patches, tree_of(state).unsaved) == ((P,), ())
    state = fold(state, RunTreeRestored(run=R1, commit="base", lost=(1, 2)))
    made_again = RunTreeRestored(run=R1, commit="base", lost=(1, 2, 3))
    assert tree_of(state) == TreeLog(times_restored=2, restored=made_again)
    told = SpineExtended(agent=A1, kind="message", items=(UserText(text="x", origin="harness"),))
    assert tree_of(fold(state, told)) == TreeLog(times_restored=2)


@pytest.mark.parametrize(
    "event",
    [
        saved(1, "one", since="base", patch=P),
        RunTreeRestored(run=R1, commit="one"),
        ev.PatchMerged(run=R1, commit="one"),
    ],
)
def test_an_event_about_an_unknown_run_changes_no_tree(event):
    state = fold(SessionState(), event)
    assert (state.work, state.merges) == ({}, ())


def test_a_planner_has_no_tree(state):
    assert work_of(fold(state, began("c1", PLANNER)), PLANNER).tree == TreeLog()


@pytest.mark.parametrize("message", ["", "as it was made"])
def test_merges_are_what_the_integration_branch_is_made_from_also_in_old_logs(state, message):
    events = [
        ev.PatchTaken(run=R1, patch=P, commit="c", changed_files=("x",)),
        ev.PatchMerged(run=R1, commit="m", message=message),
    ]
    title = state.board.tasks[TaskId("a")].title
    made = message or merge_message(TaskId("a"), title, run=R1)
    assert fold_all(events, state).merges == (Merge(run=R1, base="base", patch=P, message=made, commit="m"),)
