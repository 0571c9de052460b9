"""`decide(state)`: what to do next, in a fixed order. The next move is a value; the orchestrator makes it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TypeAlias

from xnagent.core.board import Run
from xnagent.core.events import Outcome
from xnagent.core.ids import PLANNER, RunId, agent_of
from xnagent.core.limits import Limits
from xnagent.core.reserving import shortage
from xnagent.core.state import SessionState, active_runs, spine_of, waits_for, work_of
from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True)
class StepPlanner:
    """Ask the Planner for its next step."""


@dataclass(frozen=True, slots=True)
class DriveRun:
    """Take a run from where it is to its end."""

    run: RunId


@dataclass(frozen=True, slots=True)
class SettleQueued:
    """End a run that has not begun."""

    run: RunId


@dataclass(frozen=True, slots=True)
class CheckWhole:
    """Run the session's own checks on the integrated result."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """Nothing is left to do: bring the result home and settle."""


Work: TypeAlias = StepPlanner | DriveRun | SettleQueued | CheckWhole | Conclude


@dataclass(frozen=True, slots=True)
class Stop:
    """Break off what is under way."""

    target: Work


Action: TypeAlias = Work | Stop


def is_halting(state: SessionState) -> bool:
    """Whether nothing new may begin: the Planner finished, a limit was met, its provider failed, or a signal came."""
    return any((state.finish, state.limit, state.fault, state.interrupted))


def decide(
    state: SessionState, in_flight: AbstractSet[Action], *, parallel: int, limits: Limits | None = None
) -> tuple[Action, ...]:
    """The actions to begin now, given those under way: stops first, then runs in order, then the Planner.

    A run that the limits likely can't pay to its end beside those at work waits until one of them ends.
    """
    if state.settled is not None or Conclude() in in_flight:
        return ()
    if is_halting(state):
        return _halt(state, in_flight)
    planner = () if CheckWhole() in in_flight else _planner(state)
    runs = _drives(state, in_flight, parallel=parallel, limits=limits or Limits())
    wanted = (*_stops(state, in_flight), *runs, *planner)
    return tuple(action for action in wanted if action not in in_flight)


def is_urgent(state: SessionState) -> bool:
    """Whether even the step under way must be broken off: a signal, or the deadline."""
    return state.interrupted is not None or (state.limit is not None and state.limit.limit == "deadline")


def needs_check(state: SessionState) -> bool:
    """Whether the session's own checks have to run before it can be settled."""
    if state.finish is None or state.finish.outcome != "completed" or state.started is None:
        return False
    if state.limit or state.fault or state.interrupted:
        return False
    return any(check not in state.checks for check in state.started.checks)


def _halt(state: SessionState, in_flight: AbstractSet[Action]) -> tuple[Action, ...]:
    urgent = is_urgent(state)
    targets = [
        action
        for action in in_flight
        if isinstance(action, DriveRun) or (urgent and isinstance(action, StepPlanner | CheckWhole))
    ]
    stops = sorted((Stop(target) for target in targets if Stop(target) not in in_flight), key=repr)
    if stops or in_flight:
        return tuple(stops)
    if state.finish is not None and spine_of(state, PLANNER).is_open:
        return (StepPlanner(),)
    if abandoned := _abandoned(state):
        return abandoned
    return (CheckWhole(),) if needs_check(state) else (Conclude(),)


def _abandoned(state: SessionState) -> tuple[SettleQueued, ...]:
    """What the Planner's end leaves behind; after a limit, a fault or a signal runs wait for a resumption instead."""
    if state.limit or state.fault or state.interrupted:
        return ()
    return tuple(SettleQueued(run.run) for run in active_runs(state))


def _stops(state: SessionState, in_flight: AbstractSet[Action]) -> tuple[Action, ...]:
    """What the Planner cancelled; and the last checks, where a message of the user took the end back."""
    cancelled = [run.run for run in active_runs(state) if work_of(state, agent_of(run.run)).cancel_reason is not None]
    runs = (Stop(DriveRun(run)) if DriveRun(run) in in_flight else SettleQueued(run) for run in cancelled)
    return (*runs, *(Stop(action) for action in in_flight if isinstance(action, CheckWhole)))


def _drives(
    state: SessionState, in_flight: AbstractSet[Action], *, parallel: int, limits: Limits
) -> tuple[Action, ...]:
    driven = sum(isinstance(action, DriveRun) for action in in_flight)
    holders = [run for run in active_runs(state) if run.status != "queued" or DriveRun(run.run) in in_flight]
    begun: list[DriveRun] = []
    for run in active_runs(state):
        if driven + len(begun) >= parallel:
            break
        if _is_ready(state, run, in_flight=in_flight) and not _must_wait(state, run, limits=limits, holders=holders):
            begun.append(DriveRun(run.run))
            holders += [run] if run.status == "queued" else []
    return tuple(begun)


def _is_ready(state: SessionState, run: Run, *, in_flight: AbstractSet[Action]) -> bool:
    if DriveRun(run.run) in in_flight or work_of(state, agent_of(run.run)).cancel_reason is not None:
        return False
    return run.status != "queued" or not waits_for(state, run.task)


def _must_wait(state: SessionState, run: Run, *, limits: Limits, holders: list[Run]) -> bool:
    """Only a run that has not begun waits for money: one that was interrupted goes on."""
    return run.status == "queued" and shortage(state, limits, run=run, holders=holders) is not None


def _planner(state: SessionState) -> tuple[Action, ...]:
    return () if state.planner == "waiting" else (StepPlanner(),)


def outcome_of(state: SessionState) -> Outcome:
    """How the session ends, from state alone: what the Planner claims counts only where checks agree."""
    if state.interrupted is not None:
        return "interrupted"
    if state.limit is not None:
        return "deadline" if state.limit.limit == "deadline" else "limit"
    if state.fault is not None:
        return "prefix_broken" if state.fault.fault == "prefix" else "provider_error"
    if state.finish is not None and state.finish.outcome == "blocked":
        return "blocked"
    return _judged(state)


def _judged(state: SessionState) -> Outcome:
    tasks = [task for task in state.board.tasks.values() if task.status != "dropped"]
    done = sum(task.status == "completed" for task in tasks)
    claimed = state.finish is not None and state.finish.outcome == "completed"
    if claimed and done == len(tasks) and _have_passed(state):
        return "completed"
    return "partial" if done else "failed"


def _have_passed(state: SessionState) -> bool:
    """Whether every check of the session has run, and none failed."""
    wanted = () if state.started is None else state.started.checks
    return all(check in state.checks for check in wanted) and all(one.has_passed for one in state.checks.values())


def is_verified(state: SessionState) -> bool | None:
    """Whether every check passed; None if there was nothing to check."""
    tasks = [task for task in state.board.tasks.values() if task.status != "dropped"]
    wanted = [bool(state.started and state.started.checks), *(bool(task.checks) for task in tasks)]
    if not any(wanted):
        return None
    return _have_passed(state) and all(task.status == "completed" for task in tasks)
