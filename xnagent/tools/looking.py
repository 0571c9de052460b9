"""The Planner's tools that look at runs: `worker_status` (as it is now) and `run_inspect` (step by step)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from xnagent.core.board import ACTIVE_RUN, Run
from xnagent.core.events import Stored
from xnagent.core.ids import RunId, agent_of
from xnagent.core.items import AssistantText, ToolCall
from xnagent.core.spine_events import ReplyReceived, ToolFinished, ToolStarted
from xnagent.core.state import run_of, work_of
from xnagent.core.text import Json, clip
from xnagent.core.values import dataclass
from xnagent.ports import Call, Intent, Outcome, ToolSpec
from xnagent.tools.state_tool import STRING, StateTool, answer, describe, object_schema, refuse

SHOWN_STEPS: Final = 10
TEXT_CHARACTERS: Final = 1_000
ARGUMENT_CHARACTERS: Final = 600
RESULT_CHARACTERS: Final = 1_500
TOTAL_CHARACTERS: Final = 16_000
NEWEST_CALLS: Final = 5

WORKER_STATUS = ToolSpec(
    name="worker_status",
    description=(
        "How a run stands right now: status, steps, newest calls, files changed. Without `run`: every active run. "
        "Results that matter come to you as deltas by themselves; do not poll."
    ),
    parameters=object_schema({"run": describe(STRING, "The run's id; leave out for all active runs.")}),
)
RUN_INSPECT = ToolSpec(
    name="run_inspect",
    description=(
        "What a run did, step by step: what the Worker said, its calls and their results, long ones clipped. Steps "
        f"count from 1; without a range the newest {SHOWN_STEPS} are shown."
    ),
    parameters=object_schema(
        {
            "run": describe(STRING, "The run's id, such as r1."),
            "from_step": {"type": "integer", "description": "First step to show."},
            "to_step": {"type": "integer", "description": "Last step to show."},
        },
        required=("run",),
    ),
)


def status_tool() -> StateTool:
    """`worker_status`."""
    return StateTool(spec=WORKER_STATUS, act=_worker_status)


def _worker_status(call: Call) -> Outcome:
    wanted = call.arguments.get("run")
    if wanted is None:
        active = [run for run in call.state.board.runs.values() if run.status in ACTIVE_RUN]
        runs: dict[str, Json] = {run.run: _status(call, run) for run in active}
        return answer(f"{len(runs)} active runs", active_runs=runs)
    run = run_of(call.state, str(wanted))
    if run is None:
        return _no_run(call, str(wanted))
    return answer(f"{run.run}: {run.status}", **{run.run: _status(call, run)})


def _status(call: Call, run: Run) -> dict[str, Json]:
    log, task = work_of(call.state, agent_of(run.run)), call.state.board.tasks.get(run.task)
    return {
        "task": run.task,
        "objective": "" if task is None else task.objective,
        "status": run.status,
        "steps": log.steps,
        "progress": clip(run.progress, TEXT_CHARACTERS),
        "summary": run.summary,
        "reason": run.reason,
        "evidence": [f"{one.command}: exit {one.exit_code}, output {one.output}" for one in run.evidence],
        "patch": run.patch,
        "newest_calls": list(log.calls[-NEWEST_CALLS:]),
        "changed": sorted(log.files_changed),
    }


def _no_run(call: Call, name: str) -> Outcome:
    known = ", ".join(call.state.board.runs) or "none yet"
    return refuse("NOT_FOUND", f"there is no run {name!r} (runs: {known}).")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInspectTool:
    """Reads a run's steps back from the log; what a rebase dropped is still here."""

    @property
    def spec(self) -> ToolSpec:
        """Its definition."""
        return RUN_INSPECT

    async def intend(self, call: Call) -> Intent | Outcome:
        """Looking may be repeated."""
        return Intent(effect="pure")

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """Run it again."""
        return None

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Show the steps in the range."""
        name = str(call.arguments["run"])
        if run_of(call.state, name) is None:
            return _no_run(call, name)
        steps = tuple(_steps(await call.history.history(agent_of(RunId(name)))))
        first, last = _range(call, len(steps))
        shown: list[str] = []
        for number in range(first, last + 1):
            text = f"## Step {number}\n{steps[number - 1]}"
            if shown and sum(map(len, shown)) + len(text) > TOTAL_CHARACTERS:
                last = number - 1
                break
            shown.append(text)
        more = f" Continue with from_step={last + 1}." if last < len(steps) else ""
        footer = f"[{name}: steps {first} to {last} of {len(steps)}.{more}]" if steps else f"[{name} has no steps yet]"
        return Outcome(text="\n\n".join([*shown, footer]), label=f"{name}: steps {first}-{last}")


def _range(call: Call, total: int) -> tuple[int, int]:
    last = min(int(call.arguments.get("to_step") or total), total)
    first = int(call.arguments.get("from_step") or max(1, last - SHOWN_STEPS + 1))
    return max(1, first), last


def _steps(events: Sequence[Stored]) -> Iterator[str]:
    lines: list[str] = []
    for stored in events:
        event = stored.event
        if isinstance(event, ReplyReceived):
            if lines:
                yield "\n".join(lines)
            lines = [*_said(event)]
        elif isinstance(event, ToolFinished):
            lines.append(f"< {event.tool} ({event.code}): {_result(event)}")
    if lines:
        yield "\n".join(lines)


def _result(event: ToolFinished) -> str:
    """The ends of a result, and the ticket of the whole where the cut would hide it."""
    shown = clip(event.text, RESULT_CHARACTERS)
    if event.artifact is None or event.artifact in shown:
        return shown
    return f"{shown}\n[all of it: read {event.artifact}]"


def _said(event: ReplyReceived) -> Iterator[str]:
    for item in event.items:
        if isinstance(item, AssistantText) and item.text:
            yield clip(item.text, TEXT_CHARACTERS)
        elif isinstance(item, ToolCall):
            yield f"> {item.name} {clip(item.arguments, ARGUMENT_CHARACTERS)}"
