"""What `run` and `resume` share: a session that is watched, stopped by signals, and told at its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Final, Literal, NoReturn, Protocol, cast

import anyio
import anyio.abc

from xnagent.app.running import Stop
from xnagent.batch.failure import exit_code_of, failure_record
from xnagent.cli.actions import Actions, within_actions
from xnagent.cli.console import Console
from xnagent.cli.follow import Follower
from xnagent.cli.signals import SIGNAL_NAMES, heeded_signals
from xnagent.cli.tracing import traced
from xnagent.core.record import final_record
from xnagent.core.state import SessionState
from xnagent.core.text import Json
from xnagent.errors import Caught
from xnagent.export import github
from xnagent.inspect.foreseen import outcome_line
from xnagent.inspect.plain import count, line, money, seconds, share
from xnagent.store.place import state_or_none

LISTED_FILES: Final = 8


class Stoppable(Protocol):
    """What signals are handed on to."""

    def request(self, signal: Literal["SIGINT", "SIGTERM"]) -> None:
        """Ask to stop."""


class Work(Protocol):
    """A session to be driven to its end."""

    def __call__(self, *, stop: Stop) -> Awaitable[SessionState]:
        """Begin it."""


def drive(work: Work, follower: Follower, *, console: Console) -> int:
    """Run the session to its end, whatever the end is; returns the exit code, after one final record."""
    with _observed(follower, console=console) as actions:
        with Caught(BaseException) as caught:
            state = anyio.run(partial(_watched, work, follower))
            follower.finish()
            _tell(state, console)
            _tell_runner(actions, final_record(state), state=state)
            return _exit_code(state)
        return _fail(cast("BaseException", caught.error), follower, console=console, actions=actions)


@contextmanager
def _observed(follower: Follower, *, console: Console) -> Iterator[Actions | None]:
    """Who else is told: a collector of spans, and the runner of a step."""
    environ = dict(os.environ)
    with within_actions(environ, console) as actions, traced(environ, console) as trace:
        if trace is not None:
            earlier = follower.place.events() if follower.seen else ()
            trace.seen(stored for stored in earlier if stored.seq <= follower.seen)
            follower.watch = trace.watch
        yield actions


def _tell_runner(actions: Actions | None, record: dict[str, Json], *, state: SessionState | None) -> None:
    if actions is not None:
        actions.summarize(github.summary(record, state))
        actions.output(github.outputs(record))
        actions.note = github.annotation(record)


async def _watched(work: Work, follower: Follower) -> SessionState:
    stop = Stop()
    async with anyio.create_task_group() as group:
        await group.start(hand_on_signals, stop)
        group.start_soon(follower.follow)
        state = await work(stop=stop)
        group.cancel_scope.cancel()
    outlast_signals(_exit_code(state))
    return state


def outlast_signals(code: int) -> None:
    """The end only has to be told now: one more signal is ignored, a second one ends the process with `code`."""
    left = iter((1,))

    def ignore_once(_number: int, _frame: FrameType | None) -> None:
        if next(left, None) is None:
            os._exit(code)

    for number in heeded_signals():
        signal.signal(number, ignore_once)


async def hand_on_signals(
    stop: Stoppable, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into requests to stop, until cancelled."""
    with anyio.open_signal_receiver(*heeded_signals()) as signals:
        task_status.started()
        async for number in signals:
            stop.request(SIGNAL_NAMES[number])


def _exit_code(state: SessionState) -> int:
    return 1 if state.settled is None else state.settled.exit_code


def _tell(state: SessionState, console: Console) -> None:
    record = final_record(state)
    if console.output != "text":
        console.record(record)
    elif record["outcome"] == "completed" and record["summary"]:
        console.answer(str(record["summary"]))
    for text in ending(record, repeats_summary=console.output == "text"):
        (console.warn if record["exit_code"] else console.say)(text)
    if console.verbosity > 0 and (text := outcome_line(state)):
        console.say(text)


def _fail(error: BaseException, follower: Follower, *, console: Console, actions: Actions | None) -> NoReturn:
    outlast_signals(exit_code_of(error))
    follower.finish()
    state = state_or_none(follower.place)
    record = failure_record(error, state=state)
    if console.output != "text" and not console.has_final:
        console.record(record)
    _tell_runner(actions, record, state=state)
    raise error


def ending(record: dict[str, Json], *, repeats_summary: bool = False) -> list[str]:
    """The end of a session in a few lines for people."""
    verified = {True: " and verified", False: ", not verified", None: ""}[cast("bool | None", record["verified"])]
    outcome = f"{record['outcome']}{verified if record['outcome'] == 'completed' else ''}"
    lines = [f"{outcome} (exit code {record['exit_code']})", _totals(record)]
    if repeats_summary and record["outcome"] != "completed" and record["summary"]:
        lines.append(f"said: {line(str(record['summary']), 500)}")
    return [*lines, *_notes(record)]


def _totals(record: dict[str, Json]) -> str:
    tasks, runs = cast("dict[str, int]", record["tasks"]), cast("dict[str, int]", record["runs"])
    usage = cast("dict[str, int | None]", record["usage"])
    cost = cast("float | None", usage["cost_usd"])
    whole, cached = usage["input_tokens"], usage["cached_tokens"]
    return (
        f"{tasks['completed']} of {tasks['total']} tasks, {runs['total']} runs, {usage['requests']} requests, "
        f"in {count(whole)} ({share(cached, whole)} cached), out {count(usage['output_tokens'])}, "
        f"{money(cost)}, {seconds(cast('float', record['duration_seconds']))}"
    )


def _notes(record: dict[str, Json]) -> list[str]:
    notes: list[str] = []
    error = cast("dict[str, str] | None", record["error"])
    workspace = cast("dict[str, object]", record["workspace"])
    if error is not None:
        notes.append(f"error: {line(error['message'], 500)}")
    if record["question"]:
        notes.append(f"question: {line(str(record['question']), 500)}")
        notes.append(f"answer with: xnagent resume {record['session']} --message TEXT")
    if workspace["changed_files"] or workspace.get("detail"):
        notes.append(_result(workspace))
    if record["exit_code"]:
        notes.append(f"more: xnagent inspect {record['session']}")
    return notes


def _result(workspace: dict[str, object]) -> str:
    files = cast("list[str]", workspace["changed_files"])
    shown = ", ".join(files[:LISTED_FILES]) + (
        f" and {len(files) - LISTED_FILES} more" if len(files) > LISTED_FILES else ""
    )
    if not files:
        return "result: no changes"
    branch = f"it is on branch {workspace['branch']}" if workspace["branch"] else "its patch is in the session"
    where = "applied to the checkout" if workspace["applied"] else f"not applied, {branch}"
    detail = f" ({workspace['detail']})" if workspace.get("detail") else ""
    return line(f"result {where}{detail}: {shown}", 500)
