"""Parts as trees: tasks with runs, steps, calls and evidence; deltas with their operations; facts with history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from xnagent.core.text import canonical, first_line
from xnagent.inspect.blocks import Branch, Tree
from xnagent.inspect.plain import count, line, money, seconds

SHOWN_STEPS: Final = 20
"""Of each run at its beginning, and as many at its end."""
LINE: Final = 120
TOLD_SECONDS: Final = 0.1

Rows = Sequence[Mapping[str, Any]]


def run_tree(runs: Rows, tasks: Rows) -> Tree:
    """Task, run, step, call; and the evidence of each run's checks."""
    return Tree(title="tasks and their runs", branches=[_task(task, runs) for task in tasks])


def _task(task: Mapping[str, Any], runs: Rows) -> Branch:
    own = [_run(run) for run in runs if run["task"] == task["task"]]
    return Branch(text=f"{task['task']}: {line(task['title'])}", status=task["status"], branches=own)


def _run(run: Mapping[str, Any]) -> Branch:
    told = [f"{count(run['steps'])} steps", money(run["cost_usd"])]
    told += [f"merged as {run['merged'][:12]}"] if run["merged"] else []
    told += [line(run["reason"], LINE)] if run["reason"] else []
    branches = [*_steps(run["course"]), *(_check(check) for check in run["checks"])]
    return Branch(text=f"{run['run']}: {', '.join(told)}", status=run["status"], branches=branches)


def _steps(course: Rows) -> Iterable[Branch]:
    left_out = len(course) - 2 * SHOWN_STEPS
    if left_out <= 0:
        return map(_step, course)
    more = Branch(text=f"{count(left_out)} more steps; --json has them all")
    return [*map(_step, course[:SHOWN_STEPS]), more, *map(_step, course[-SHOWN_STEPS:])]


def _step(step: Mapping[str, Any]) -> Branch:
    name = "summary" if step["step"] is None else f"step {count(step['step'])}"
    sent = f"{count(step['input_tokens'])} in ({count(step['cached_tokens'])} cached)"
    used = f"{sent}, {count(step['output_tokens'])} out, {money(step['cost_usd'])}"
    text = f"{name}: request {count(step['request'])}, {used}"
    status = "" if step["fault"] is None else str(step["fault"])
    return Branch(text=text, status=status, branches=[_call(call) for call in step["calls"]])


def _call(call: Mapping[str, Any]) -> Branch:
    what = call["label"] or first_line(str(call["arguments"]), LINE)
    told = [f"{call['tool']}: {line(what, LINE)}"]
    told += [seconds(call["duration_seconds"])] if (call["duration_seconds"] or 0) >= TOLD_SECONDS else []
    told += [str(call["artifact"])] if call["artifact"] else []
    status = "no result" if call["code"] is None else str(call["code"])
    return Branch(text=", ".join(told), status=status)


def _check(check: Mapping[str, Any]) -> Branch:
    code = "did not end by itself" if check["exit_code"] is None else f"exit code {check['exit_code']}"
    told = [f"check {line(check['command'], LINE)}", code, seconds(check["duration_seconds"]), str(check["output"])]
    told += [f"failed first: {check['failed_output']}"] if check["failed_output"] else []
    return Branch(text=", ".join(told), status="passed" if check["has_passed"] else "failed")


def delta_tree(deltas: Rows) -> Tree:
    """What each delta told: its causes, then its operations."""
    return Tree(title="what they told", branches=[_delta(row) for row in deltas if row["patch"] or row["causes"]])


def _delta(row: Mapping[str, Any]) -> Branch:
    causes = [Branch(text=f"because {line(cause, LINE)}") for cause in row["causes"]]
    return Branch(text=f"{row['kind']} at {count(row['seq'])}", branches=[*causes, *map(_operation, row["patch"])])


def _operation(operation: Mapping[str, Any]) -> Branch:
    origin = f" from {operation['from']}" if "from" in operation else ""
    value = f" {canonical(operation['value'])}" if "value" in operation else ""
    return Branch(text=line(f"{operation['op']} {operation['path']}{origin}{value}", LINE))


def fact_tree(facts: Rows) -> Tree:
    """Each fact with what became of it."""
    return Tree(title="their history", branches=[_fact(fact) for fact in facts])


def _fact(fact: Mapping[str, Any]) -> Branch:
    status = "holds" if fact["retracted"] is None else "retracted"
    return Branch(text=fact["fact"], status=status, branches=[_change(change) for change in fact["history"]])


def _change(change: Mapping[str, Any]) -> Branch:
    value = "" if change["value"] is None else f" = {change['value']}"
    who = f" by {change['by']}" if change["by"] else ""
    told = line(f"{change['text']}{value}", LINE)
    return Branch(text=f"{count(change['seq'])} {change['at']} {change['change']}{who}: {told}")
