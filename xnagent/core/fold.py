"""`fold(state, event)`: the only way in which state comes about. Pure, total, deterministic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

from xnagent.core import events as ev
from xnagent.core import fold_given, fold_mcp, fold_project, fold_spine, fold_steps, fold_summary, fold_trees
from xnagent.core.board import Board, Cause, Fact, Run, RunStatus, Task, TaskStatus
from xnagent.core.evolve import evolve
from xnagent.core.fallback import forgive
from xnagent.core.fork_events import SessionForked
from xnagent.core.ids import PLANNER, RunId, agent_of, role_of
from xnagent.core.state import SessionState, work_of
from xnagent.core.text import first_line
from xnagent.core.trees import Merge, merge_message

Key = TypeVar("Key")
Value = TypeVar("Value")

KEPT_CAUSES: Final = 400


def fold(state: SessionState, event: ev.Event) -> SessionState:
    """The state after the event.

    Events about what is not known leave it as it is. What would unbalance a spine (a result for no open call, a message
    between a call and its result) raises ValueError: the store refuses such an event before it is written.
    """
    step = fold_steps.STEPS.get(type(event))
    if step is None:
        return _HANDLERS[type(event)](state, event)
    draft = fold_steps.StateDraft(state)
    step(draft, event)
    return draft.whole()


class Folding:
    """Many events folded one after the other: the same state as `fold` makes, without a copy for each event."""

    def __init__(self, state: SessionState | None = None) -> None:
        self._state = SessionState() if state is None else state
        self._draft: fold_steps.StateDraft | None = None

    def take(self, event: ev.Event) -> None:
        """One more. After an event that raised, as `fold` does, this is of no use."""
        step = fold_steps.STEPS.get(type(event))
        if step is None:
            self._state = _HANDLERS[type(event)](self.state, event)
            return
        if self._draft is None:
            self._draft = fold_steps.StateDraft(self._state)
        step(self._draft, event)

    @property
    def state(self) -> SessionState:
        """The state after all of them."""
        if self._draft is not None:
            self._state, self._draft = self._draft.whole(), None
        return self._state


def fold_all(events: Iterable[ev.Event], state: SessionState | None = None) -> SessionState:
    """The state after all the events, in order."""
    folding = Folding(state)
    for event in events:
        folding.take(event)
    return folding.state


def with_entry(mapping: Mapping[Key, Value], key: Key, *, value: Value) -> dict[Key, Value]:
    """A copy of the mapping with one entry set."""
    copy = dict(mapping)
    copy[key] = value
    return copy


def _board(state: SessionState, **parts: object) -> SessionState:
    board: Board = evolve(cast("Any", state.board), **parts)
    return evolve(state, board=board)


def _cause(state: SessionState, text: str, *, is_operation: bool = False, wakes: bool = False) -> SessionState:
    number = state.cause_count + 1
    cause = Cause(number=number, text=text, is_operation=is_operation)
    state = evolve(state, causes=(*state.causes[-KEPT_CAUSES + 1 :], cause), cause_count=number)
    return _woken(state) if wakes else state


def _woken(state: SessionState) -> SessionState:
    """The Planner has something new to think about; a call that failed before may work now."""
    log = evolve(work_of(state, PLANNER), failures=("", 0))
    work = with_entry(state.work, PLANNER, value=log)
    return evolve(state, planner="ready", last_wake=state.cause_count, work=work)


def _operation(state: SessionState, text: str) -> SessionState:
    return _cause(state, text, is_operation=True)


def _with_run(state: SessionState, run: RunId, **fields: object) -> SessionState:
    old = state.board.runs.get(run)
    if old is None:
        return state
    new: Run = evolve(cast("Any", old), **fields)
    return _board(state, runs=with_entry(state.board.runs, run, value=new))


def _with_task_status(state: SessionState, run: RunId, *, status: TaskStatus) -> SessionState:
    task = state.board.tasks.get(state.board.runs[run].task)
    if task is None or task.status == "dropped":
        return state
    return _board(state, tasks=with_entry(state.board.tasks, task.task, value=evolve(task, status=status)))


def _session_value(state: SessionState, name: str, *, value: str) -> SessionState:
    return _board(state, session=with_entry(state.board.session, name, value=value))


def _session_started(state: SessionState, event: ev.SessionStarted) -> SessionState:
    state = evolve(state, session=event.session, started=event)
    return _session_value(state, "integration_head", value=event.base) if event.base else state


def _session_resumed(state: SessionState, event: ev.SessionResumed) -> SessionState:
    return evolve(
        forgive(state, event.chosen),
        spines={name: evolve(spine, refusals=0, is_suspended=False) for name, spine in state.spines.items()},
        epoch=event.epoch,
        spent_seconds=state.spent_seconds + event.lost_seconds,
        idle_seconds=event.idle_seconds,
        settled=None,
        finish=state.finish if _is_unfinished_end(state) else None,
        limit=None,
        fault=None,
        interrupted=None,
        applied=None,
        checks={},
    )


def _is_unfinished_end(state: SessionState) -> bool:
    """Whether the session was cut short in its last part, so that what the Planner said at the end still stands."""
    return state.settled is None or state.settled.outcome in {"interrupted", "deadline", "error"}


def _session_forked(state: SessionState, event: SessionForked) -> SessionState:
    return evolve(state, forked=event)


def _user_message_added(state: SessionState, event: ev.UserMessageAdded) -> SessionState:
    state = _board(state, messages=with_entry(state.board.messages, event.message, value=event.text))
    letters = state.letters | {event.letter} if event.letter else state.letters
    state = evolve(state, finish=None, letters=letters)
    return _cause(state, f"the user wrote {event.message}", wakes=True)


def _task_added(state: SessionState, event: ev.TaskAdded) -> SessionState:
    task = Task(
        task=event.task,
        title=event.title,
        objective=event.objective,
        checks=event.checks,
        depends_on=event.depends_on,
        scope=event.scope,
    )
    state = _board(state, tasks=with_entry(state.board.tasks, event.task, value=task))
    return _operation(state, f"planned task {event.task}")


def _task_revised(state: SessionState, event: ev.TaskRevised) -> SessionState:
    old = state.board.tasks.get(event.task)
    if old is None:
        return state
    reopened: TaskStatus = "pending" if old.status in {"completed", "dropped"} else old.status
    task = evolve(
        old,
        title=event.title,
        objective=event.objective,
        checks=event.checks,
        depends_on=event.depends_on,
        scope=event.scope,
        status=reopened,
    )
    state = _board(state, tasks=with_entry(state.board.tasks, event.task, value=task))
    return _operation(state, f"revised task {event.task}")


def _task_dropped(state: SessionState, event: ev.TaskDropped) -> SessionState:
    old = state.board.tasks.get(event.task)
    if old is None:
        return state
    state = _board(state, tasks=with_entry(state.board.tasks, event.task, value=evolve(old, status="dropped")))
    return _operation(state, f"dropped task {event.task}")


def _run_started(state: SessionState, event: ev.RunStarted) -> SessionState:
    run = Run(
        run=event.run,
        task=event.task,
        brief=event.brief,
        model=event.model,
        checks=event.checks,
        scope=event.scope,
        forecast=event.forecast,
    )
    task = state.board.tasks.get(event.task)
    state = _board(state, runs=with_entry(state.board.runs, event.run, value=run))
    if task is not None:
        task = evolve(task, runs=(*task.runs, event.run), status="active")
        state = _board(state, tasks=with_entry(state.board.tasks, event.task, value=task))
    return _operation(state, f"delegated task {event.task} as {event.run}")


def _run_launched(state: SessionState, event: ev.RunLaunched) -> SessionState:
    """A run that begins does not try the models that others of its role gave up."""
    agent = agent_of(event.run)
    gone = state.given_up.get(role_of(agent))
    if gone and agent not in state.spines and event.run in state.board.runs:
        state = evolve(state, given_up=with_entry(state.given_up, agent, value=gone))
    return _with_run(state, event.run, status="working", base=event.base, reason="")


def _run_message_sent(state: SessionState, event: ev.RunMessageSent) -> SessionState:
    log = work_of(state, agent_of(event.run))
    log = evolve(log, inbox=(*log.inbox, event.text), letters=(*log.letters, event.text))
    state = evolve(state, work=with_entry(state.work, agent_of(event.run), value=log))
    return _operation(state, f"wrote to {event.run}")


def _run_cancel_requested(state: SessionState, event: ev.RunCancelRequested) -> SessionState:
    log = evolve(work_of(state, agent_of(event.run)), cancel_reason=event.reason)
    state = evolve(state, work=with_entry(state.work, agent_of(event.run), value=log))
    return _operation(state, f"asked to cancel {event.run}")


def _progress_noted(state: SessionState, event: ev.ProgressNoted) -> SessionState:
    log = work_of(state, agent_of(event.run))
    log = evolve(log, notes=(*log.notes, event.text))
    state = evolve(state, work=with_entry(state.work, agent_of(event.run), value=log))
    return _with_run(state, event.run, progress=event.text)


def _run_submitted(state: SessionState, event: ev.RunSubmitted) -> SessionState:
    return _with_run(state, event.run, status="submitted", claim=event.status, summary=event.summary)


def _patch_taken(state: SessionState, event: ev.PatchTaken) -> SessionState:
    state = _with_run(state, event.run, patch=event.patch, changed_files=event.changed_files, flags=event.flags)
    return fold_trees.taken(state, event.run, commit=event.commit, patch=event.patch)


def _check_finished(state: SessionState, event: ev.CheckFinished) -> SessionState:
    if event.run is None:
        state = evolve(state, checks=with_entry(state.checks, event.evidence.command, value=event.evidence))
        verdict = "passed" if event.evidence.has_passed else "failed"
        verdict = f"{verdict} on its second try (flaky)" if event.evidence.is_flaky else verdict
        return _cause(state, f"final check {verdict}: {first_line(event.evidence.command)}")
    run = state.board.runs.get(event.run)
    if run is None:
        return state
    others = tuple(known for known in run.evidence if known.command != event.evidence.command)
    return _with_run(state, event.run, evidence=(*others, event.evidence))


def _patch_merged(state: SessionState, event: ev.PatchMerged) -> SessionState:
    state = _with_merge(_with_run(state, event.run, merged=event.commit), event)
    return _session_value(state, "integration_head", value=event.commit)


def _with_merge(state: SessionState, event: ev.PatchMerged) -> SessionState:
    run = state.board.runs.get(event.run)
    task = None if run is None else state.board.tasks.get(run.task)
    if run is None or run.base is None or run.patch is None:
        return state
    message = event.message or merge_message(run.task, "" if task is None else task.title, run=run.run)
    merge = Merge(run=run.run, base=run.base, patch=run.patch, message=message, commit=event.commit)
    return evolve(state, merges=(*state.merges, merge))


def _run_settled(state: SessionState, event: ev.RunSettled) -> SessionState:
    if event.run not in state.board.runs:
        return state
    statuses: Mapping[str, TaskStatus] = {"completed": "completed", "failed": "failed", "cancelled": "pending"}
    state = _with_run(state, event.run, status=event.status, reason=event.reason, conflicts=event.conflicts)
    state = _with_task_status(state, event.run, status=statuses[event.status])
    task = state.board.runs[event.run].task
    what = "merge conflict" if event.conflicts else event.status
    under_way = {agent: request for agent, request in state.in_flight.items() if agent != agent_of(event.run)}
    state = fold_summary.without_summarizer(evolve(state, in_flight=under_way), agent_of(event.run))
    return _cause(state, f"run {event.run} settled: {what} (task {task})", wakes=True)


def _run_interrupted(state: SessionState, event: ev.RunInterrupted) -> SessionState:
    status: RunStatus = "interrupted"
    state = fold_summary.without_summarizer(state, agent_of(event.run))
    return _with_run(state, event.run, status=status, reason=event.reason)


def _fact_recorded(state: SessionState, event: ev.FactRecorded) -> SessionState:
    fact = Fact(fact=event.fact, text=event.text, value=event.value, source=event.source, is_pinned=event.is_pinned)
    state = _board(state, facts=with_entry(state.board.facts, event.fact, value=fact))
    own = event.source == "planner"
    return _cause(state, f"{event.source} recorded fact {event.fact}", is_operation=own)


def _fact_corrected(state: SessionState, event: ev.FactCorrected) -> SessionState:
    old = state.board.facts.get(event.fact)
    if old is None:
        return state
    fact = evolve(
        old,
        text=event.text,
        value=event.value,
        source=event.source,
        revision=old.revision + 1,
        retracted=None,
    )
    state = _board(state, facts=with_entry(state.board.facts, event.fact, value=fact))
    own = event.source == "planner"
    return _cause(state, f"{event.source} corrected fact {event.fact}", is_operation=own)


def _fact_retracted(state: SessionState, event: ev.FactRetracted) -> SessionState:
    old = state.board.facts.get(event.fact)
    if old is None:
        return state
    fact = evolve(old, retracted=event.reason or "retracted", is_pinned=False)
    state = _board(state, facts=with_entry(state.board.facts, event.fact, value=fact))
    return _operation(state, f"retracted fact {event.fact}")


def _finish_requested(state: SessionState, event: ev.FinishRequested) -> SessionState:
    return _operation(evolve(state, finish=event, checks={}), f"finished: {event.outcome}")


def _limit_reached(state: SessionState, event: ev.LimitReached) -> SessionState:
    is_first = state.limit is None or event.limit == "deadline"
    return evolve(state, limit=event if is_first else state.limit)


def _session_interrupted(state: SessionState, event: ev.SessionInterrupted) -> SessionState:
    return evolve(state, interrupted=event)


def _result_applied(state: SessionState, event: ev.ResultApplied) -> SessionState:
    head = state.board.session.get("integration_head")
    return evolve(state, applied=event, landed=head if event.is_applied else state.landed)


def _session_settled(state: SessionState, event: ev.SessionSettled) -> SessionState:
    return evolve(state, settled=event, spent_seconds=event.duration_seconds)


_HANDLERS: Final[Mapping[type[Any], Callable[[SessionState, Any], SessionState]]] = {
    ev.SessionStarted: _session_started,
    ev.SessionResumed: _session_resumed,
    SessionForked: _session_forked,
    ev.UserMessageAdded: _user_message_added,
    ev.TaskAdded: _task_added,
    ev.TaskRevised: _task_revised,
    ev.TaskDropped: _task_dropped,
    ev.RunStarted: _run_started,
    ev.RunLaunched: _run_launched,
    ev.RunMessageSent: _run_message_sent,
    ev.RunCancelRequested: _run_cancel_requested,
    ev.ProgressNoted: _progress_noted,
    ev.RunSubmitted: _run_submitted,
    ev.PatchTaken: _patch_taken,
    ev.CheckFinished: _check_finished,
    ev.PatchMerged: _patch_merged,
    ev.RunSettled: _run_settled,
    ev.RunInterrupted: _run_interrupted,
    ev.FactRecorded: _fact_recorded,
    ev.FactCorrected: _fact_corrected,
    ev.FactRetracted: _fact_retracted,
    ev.FinishRequested: _finish_requested,
    ev.LimitReached: _limit_reached,
    ev.SessionInterrupted: _session_interrupted,
    ev.ResultApplied: _result_applied,
    ev.SessionSettled: _session_settled,
    **fold_spine.HANDLERS,
    **fold_summary.HANDLERS,
    **fold_trees.HANDLERS,
    **fold_project.HANDLERS,
    **fold_mcp.HANDLERS,
    **fold_given.HANDLERS,
}
