"""The Planner's tools that shape the plan: `plan`, `delegate`, `message_run`, `cancel_run`, `finish`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from xnagent.core.board import ACTIVE_RUN, Run, Task
from xnagent.core.events import (
    Event,
    FinishRequested,
    LimitReached,
    RunCancelRequested,
    RunMessageSent,
    RunStarted,
    TaskAdded,
    TaskDropped,
    TaskRevised,
)
from xnagent.core.fold import fold
from xnagent.core.ids import TASK_ID, RunId, TaskId
from xnagent.core.limits import Limits
from xnagent.core.reserving import Prospect, shortage, unpayable
from xnagent.core.state import SessionState, active_runs, run_of, waits_for
from xnagent.ports import Call, Outcome, ToolSpec
from xnagent.tools.state_tool import STRING, STRINGS, StateTool, answer, describe, object_schema, refuse

_TASK_SCHEMA = object_schema(
    {
        "id": describe(STRING, "Short name: a lower-case letter, then letters, digits, _ or -; at most 32."),
        "title": describe(STRING, "One line."),
        "objective": describe(STRING, "What must be true afterwards, for a reader who knows only the repository."),
        "checks": describe(STRINGS, "Shell commands, run from the root, that exit with 0 exactly when it is done."),
        "depends_on": describe(STRINGS, "Ids of tasks that must be completed before."),
        "scope": describe(STRINGS, "Globs of the paths that it may change; leave out for all."),
    },
    required=("id",),
)

PLAN = ToolSpec(
    name="plan",
    description=(
        "Add tasks, or revise tasks by id (fields that you leave out stay as they are), and drop tasks that are no "
        "longer wanted. All or nothing: if one entry is wrong, nothing is changed. A new task needs title and "
        "objective. Runs under way keep the checks that they began with; dropping a task cancels its runs."
    ),
    parameters=object_schema(
        {
            "tasks": {"type": "array", "items": _TASK_SCHEMA, "description": "Tasks to add or to revise."},
            "drop": describe(STRINGS, "Ids of tasks to give up."),
        }
    ),
)
DELEGATE = ToolSpec(
    name="delegate",
    description=(
        "Give a task to a Worker. Returns at once with the run's id; what becomes of it comes as a state delta. The "
        "run begins when the task's dependencies are completed; under a limit of money or tokens it may also have to "
        "wait until others end, and then the result says so. Delegate independent tasks in one answer: they run in "
        "parallel."
    ),
    parameters=object_schema(
        {
            "task": describe(STRING, "The task's id."),
            "brief": describe(STRING, "What this attempt should know beyond the task: what failed before, which way."),
            "model": describe(STRING, "Another model for this run; leave out for the usual one."),
        },
        required=("task",),
    ),
)
MESSAGE_RUN = ToolSpec(
    name="message_run",
    description="Tell the Worker of an active run something; it reads it before its next step.",
    parameters=object_schema(
        {"run": describe(STRING, "The run's id, such as r1."), "text": describe(STRING, "The message.")},
        required=("run", "text"),
    ),
)
CANCEL_RUN = ToolSpec(
    name="cancel_run",
    description="End an active run; nothing of it is merged. Its task is pending again.",
    parameters=object_schema(
        {"run": describe(STRING, "The run's id, such as r1."), "reason": describe(STRING, "Why, for the record.")},
        required=("run", "reason"),
    ),
)
FINISH = ToolSpec(
    name="finish",
    description=(
        "End the session. `completed`: the objective is met; refused while runs are active. `failed`: it cannot be "
        "met. `blocked`: only the user can decide; ask in `question`. Active runs are cancelled. The final checks are "
        "run after this and have the last word."
    ),
    parameters=object_schema(
        {
            "outcome": {
                "type": "string",
                "enum": ["completed", "failed", "blocked"],
                "description": "How it ends.",
            },
            "summary": describe(STRING, "What the user reads: what was done, what was not, what to know."),
            "question": describe(STRING, "With `blocked`: what the user must decide."),
        },
        required=("outcome", "summary"),
    ),
)


class Prospects(Protocol):
    """Foresees what runs will use."""

    def of(self, state: SessionState, started: RunStarted) -> Prospect | None:
        """What the run would use that begins with this event; None: nobody can tell."""


def planning_tools(*, limits: Limits, prospects: Prospects | None = None) -> tuple[StateTool, ...]:
    """The tools, under the session's limits; without prospects nothing is reserved for runs."""
    return (
        StateTool(spec=PLAN, act=_plan),
        StateTool(spec=DELEGATE, act=partial(_delegate, limits=limits, prospects=prospects)),
        StateTool(spec=MESSAGE_RUN, act=_message_run),
        StateTool(spec=CANCEL_RUN, act=_cancel_run),
        StateTool(spec=FINISH, act=_finish),
    )


def _plan(call: Call) -> Outcome:
    wanted: Sequence[Mapping[str, Any]] = call.arguments.get("tasks") or []
    drop: Sequence[str] = call.arguments.get("drop") or []
    tasks = dict(call.state.board.tasks)
    problems = [*_name_problems(wanted, drop, known=tasks)]
    revised = [] if problems else [_revised(tasks.get(TaskId(entry["id"])), entry) for entry in wanted]
    tasks.update({task.task: task for task in revised})
    problems += [
        f"task {task.task} needs a title and an objective" for task in revised if not task.title or not task.objective
    ]
    problems += _dependency_problems(tasks, revised)
    if not problems and not wanted and not drop:
        problems = ["give `tasks`, `drop`, or both"]
    if problems:
        return refuse("BAD_PLAN", f"{'; '.join(problems)}. Nothing was changed.")
    events = [*(_task_event(task, call.state) for task in revised), *_drops(call.state, drop)]
    statuses = {str(task.task): task.status for task in tasks.values()}
    statuses.update(dict.fromkeys(drop, "dropped"))
    statuses.update({str(task.task): "pending" for task in revised if task.status in {"completed", "dropped"}})
    label = ", ".join([*(str(task.task) for task in revised), *(f"-{name}" for name in drop)])
    notes: list[Any] = [*_kept(call.state, revised)]
    more = {"notes": notes} if notes else {}
    return replace(answer(f"plan: {label}", tasks=statuses, **more), events=tuple(events))


def _kept(state: SessionState, revised: Sequence[Task]) -> Iterable[str]:
    """What is said of runs under way whose task is judged in another way now."""
    tasks = {task.task: task for task in revised}
    for run in active_runs(state):
        task = tasks.get(run.task)
        if task is not None and (task.checks, task.scope) != (run.checks, run.scope):
            yield f"{run.run} keeps the checks and the scope that it began with; cancel and delegate again for the new"


def _name_problems(
    wanted: Sequence[Mapping[str, Any]], drop: Sequence[str], *, known: Mapping[TaskId, Task]
) -> Iterable[str]:
    names = [str(entry["id"]) for entry in wanted]
    for name in names:
        if not TASK_ID.fullmatch(name):
            yield f"{name!r} is no task id: a lower-case letter, then letters, digits, _ or -, at most 32"
    yield from (f"{name} is given twice" for name in sorted({name for name in names if names.count(name) > 1}))
    yield from (f"cannot drop {name}: there is no such task" for name in drop if name not in known)
    yield from (f"{name} is both in tasks and in drop" for name in drop if name in names)


def _revised(old: Task | None, entry: Mapping[str, Any]) -> Task:
    task = old or Task(task=TaskId(entry["id"]), title="", objective="")
    return replace(
        task,
        title=str(entry.get("title", task.title)).strip(),
        objective=str(entry.get("objective", task.objective)).strip(),
        checks=tuple(entry.get("checks", task.checks)),
        depends_on=tuple(entry.get("depends_on", task.depends_on)),
        scope=tuple(entry.get("scope", task.scope)),
    )


def _dependency_problems(tasks: Mapping[TaskId, Task], revised: Sequence[Task]) -> list[str]:
    unknown = [
        f"task {task.task} depends on {name}, which is no task"
        for task in revised
        for name in task.depends_on
        if name not in tasks
    ]
    return unknown or [f"task {task.task} depends on itself" for task in revised if _is_in_circle(task.task, tasks)]


def _is_in_circle(name: TaskId, tasks: Mapping[TaskId, Task]) -> bool:
    seen: set[TaskId] = set()
    waiting = list(tasks[name].depends_on)
    while waiting:
        current = waiting.pop()
        if current == name:
            return True
        if current not in seen and current in tasks:
            seen.add(current)
            waiting.extend(tasks[current].depends_on)
    return False


def _task_event(task: Task, state: SessionState) -> Event:
    kind = TaskRevised if task.task in state.board.tasks else TaskAdded
    return kind(
        task=task.task,
        title=task.title,
        objective=task.objective,
        checks=task.checks,
        depends_on=task.depends_on,
        scope=task.scope,
    )


def _drops(state: SessionState, drop: Sequence[str]) -> Iterable[Event]:
    for name in drop:
        yield TaskDropped(task=TaskId(name))
        for run in active_runs(state):
            if run.task == name:
                yield RunCancelRequested(run=run.run, reason=f"task {name} was dropped")


def _delegate(call: Call, *, limits: Limits, prospects: Prospects | None) -> Outcome:
    state, name = call.state, TaskId(call.arguments["task"])
    task = state.board.tasks.get(name)
    if task is None:
        known = ", ".join(state.board.tasks) or "none yet"
        return refuse("NOT_FOUND", f"there is no task {name!r} (tasks: {known}). Make it with `plan` first.")
    if task.status in {"completed", "dropped"}:
        return refuse("CLOSED", f"task {name} is {task.status}. Revise it with `plan` to open it again.")
    active = [run.run for run in active_runs(state) if run.task == name]
    if active:
        return refuse("ACTIVE", f"{active[0]} works on {name} already. Wait for it, or cancel it first.")
    if limits.runs is not None and len(state.board.runs) >= limits.runs:
        detail = f"run limit reached: {limits.runs}"
        return replace(refuse("LIMIT", f"not executed: {detail}"), events=(LimitReached(limit="runs", detail=detail),))
    started = _run_started(call, task)
    prospect = None if prospects is None else prospects.of(state, started)
    problem = None if prospect is None else unpayable(state, limits, prospect=prospect)
    if problem is not None:
        return refuse("UNPAID", f"not started: {problem}. Wait for active runs, if any, and finish with what is done.")
    if prospect is not None:
        started = replace(started, forecast=prospect.forecast)
    return _started(call, started, limits=limits)


def _run_started(call: Call, task: Task) -> RunStarted:
    return RunStarted(
        run=RunId(f"r{len(call.state.board.runs) + 1}"),
        task=task.task,
        brief=str(call.arguments.get("brief", "")),
        model=call.arguments.get("model"),
        checks=task.checks,
        scope=task.scope,
    )


def _started(call: Call, event: RunStarted, *, limits: Limits) -> Outcome:
    waits: list[Any] = list(waits_for(call.state, event.task))
    more: dict[str, Any] = {"waits_for": waits} if waits else {}
    state = fold(call.state, event)
    holders = [run for run in active_runs(state) if not (run.status == "queued" and waits_for(state, run.task))]
    short = shortage(state, limits, run=state.board.runs[event.run], holders=holders)
    if short is not None:
        more["waits_because"] = f"{short}. It begins by itself when enough is free, or when it is the only one."
    result = answer(f"{event.task} as {event.run}", run=event.run, task=event.task, status="queued", **more)
    return replace(result, events=(event,))


def _active(call: Call) -> Run | Outcome:
    name = str(call.arguments["run"])
    run = run_of(call.state, name)
    if run is None:
        known = ", ".join(call.state.board.runs) or "none yet"
        return refuse("NOT_FOUND", f"there is no run {name!r} (runs: {known}).")
    if run.status not in ACTIVE_RUN:
        return refuse("CLOSED", f"run {name} is {run.status} already.")
    return run


def _message_run(call: Call) -> Outcome:
    run = _active(call)
    if isinstance(run, Outcome):
        return run
    if run.claim is not None:
        return refuse("CLOSED", f"run {run.run} has handed in and takes no more steps. Wait for what its checks say.")
    event = RunMessageSent(run=run.run, text=str(call.arguments["text"]))
    return replace(answer(f"to {run.run}", run=run.run, delivered="before its next step"), events=(event,))


def _cancel_run(call: Call) -> Outcome:
    run = _active(call)
    if isinstance(run, Outcome):
        return run
    event = RunCancelRequested(run=run.run, reason=str(call.arguments["reason"]))
    return replace(answer(f"cancel {run.run}", run=run.run, status="cancelling"), events=(event,))


def _finish(call: Call) -> Outcome:
    outcome = call.arguments["outcome"]
    active = [run.run for run in active_runs(call.state)]
    if outcome == "completed" and active:
        return refuse("ACTIVE", f"{', '.join(active)} still active. Wait (answer without a tool call) or cancel_run.")
    event = FinishRequested(
        outcome=outcome, summary=str(call.arguments["summary"]), question=call.arguments.get("question")
    )
    return replace(answer(f"finish: {outcome}", outcome=outcome), events=(event,))
