#!/usr/bin/env python
"""What the core costs: deltas, rebases, folding, deciding. Run it as a program; it needs nothing but the package."""

from __future__ import annotations

import argparse
import random
import statistics
import string
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jsonpatch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xnagent.core import events as ev
from xnagent.core import permissions
from xnagent.core.board import Board, Fact, Task
from xnagent.core.checkpoint import checkpoint
from xnagent.core.decide import decide
from xnagent.core.delta import delta
from xnagent.core.fold import fold, fold_all, with_entry
from xnagent.core.ids import PLANNER, AgentId, CallId, FactId, RunId, SessionId, TaskId
from xnagent.core.items import AssistantText, ToolCall
from xnagent.core.masking import Secret, mask_of
from xnagent.core.messages import objective_message, state_message
from xnagent.core.permissions import Asked, Rules, parse_rule
from xnagent.core.rebase import RebasePolicy, Room, plan_rebase
from xnagent.core.spine import replace_items
from xnagent.core.spine_events import ReplyReceived, RequestStarted, ToolFinished, ToolStarted
from xnagent.core.state import SessionState, spine_of
from xnagent.core.tokens import Usage
from xnagent.core.view import view

ENTRIES = 10_000
COMPARED_ENTRIES = 1_000
SPINE_TOKENS = 200_000
EVENTS = 20_000
RUNS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: the values of several runs, best first by `is_better_high`."""

    name: str
    unit: str
    values: Sequence[float]
    target: float | None = None
    is_better_high: bool = False

    @property
    def best(self) -> float:
        """The least disturbed run."""
        return max(self.values) if self.is_better_high else min(self.values)

    @property
    def verdict(self) -> str:
        """Whether the best run meets the target."""
        if self.target is None:
            return ""
        met = self.best >= self.target if self.is_better_high else self.best <= self.target
        return "ok" if met else "MISSED"


def timed(work: Callable[[], object], *, runs: int, repeats: int = 1) -> list[float]:
    """Seconds of each run, for one repeat."""
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        for _ in range(repeats):
            work()
        seconds.append((time.perf_counter() - began) / repeats)
    return seconds


def milliseconds(seconds: Sequence[float]) -> list[float]:
    """The same in ms."""
    return [value * 1e3 for value in seconds]


def board_of(size: int) -> Board:
    """A board with so many tasks and as many facts."""
    tasks: Mapping[TaskId, Task] = {
        TaskId(f"t{n}"): Task(task=TaskId(f"t{n}"), title=f"Title {n}", objective="Port the module. " * 6)
        for n in range(size)
    }
    facts: Mapping[FactId, Fact] = {
        FactId(f"f{n}"): Fact(fact=FactId(f"f{n}"), text=f"Fact {n} about the build", value=str(n), source="r1")
        for n in range(size)
    }
    return Board(tasks=tasks, facts=facts)


def changed(board: Board) -> Board:
    """The board with one fact corrected."""
    name = FactId(f"f{len(board.facts) // 2}")
    fact = replace(board.facts[name], text="Corrected", revision=2)
    return replace(board, facts=with_entry(board.facts, name, value=fact))


def delta_rows(runs: int) -> Iterator[Row]:
    """One change among many entries, and the same by comparing whole documents."""
    old = board_of(ENTRIES)
    new = changed(old)
    yield Row(
        name=f"delta, 1 change in {ENTRIES:,} tasks + {ENTRIES:,} facts",
        unit="ms",
        values=milliseconds(timed(lambda: delta(old, new), runs=runs, repeats=5)),
        target=5.0,
    )
    small = board_of(COMPARED_ENTRIES)
    after = changed(small)
    documents = view(small), view(after)
    ours = timed(lambda: delta(small, after), runs=runs, repeats=20)
    whole = timed(lambda: jsonpatch.make_patch(*documents), runs=runs)
    yield Row(
        name=f"jsonpatch.make_patch on whole documents, {COMPARED_ENTRIES:,} + {COMPARED_ENTRIES:,}",
        unit="ms",
        values=milliseconds(whole),
    )
    yield Row(
        name=f"how many times faster the delta is, {COMPARED_ENTRIES:,} + {COMPARED_ENTRIES:,}",
        unit="x",
        values=[slow / fast for slow, fast in zip(sorted(whole), sorted(ours), strict=True)],
        target=50.0,
        is_better_high=True,
    )


def session_start() -> list[ev.Event]:
    """The first events of a session."""
    started = ev.SessionStarted(session=SessionId("s-bench"), objective="Port the package.", base="c0ffee")
    return [started, objective_message(fold(SessionState(), started))]


def step_events(number: int, *, text: str, agent: AgentId = PLANNER) -> list[ev.Event]:
    """One step with one call."""
    call = ToolCall(call_id=CallId(f"c{number}"), name="read", arguments='{"target":"a.py"}')
    return [
        RequestStarted(
            agent=agent,
            request=number,
            manifest="m",
            items=1,
            estimate_tokens=1_000,
            predicted_cached_tokens=None,
            sha256="0" * 64,
            size_bytes=1,
        ),
        ReplyReceived(
            agent=agent,
            request=number,
            items=(AssistantText(text="I look at the next file."), call),
            usage=Usage(input_tokens=1_000, output_tokens=50, cached_tokens=900),
            cost_usd=0.001,
            finish="tool_calls",
            duration_seconds=1.0,
        ),
        ToolStarted(agent=agent, call_id=call.call_id, tool="read", effect="pure"),
        ToolFinished(agent=agent, call_id=call.call_id, tool="read", text=text, paths_read=("a.py",)),
    ]


def long_session(tokens: int) -> SessionState:
    """A Planner's spine of about so many tokens, with a plan of 200 tasks and 200 facts."""
    state = fold_all(session_start())
    state = replace(state, board=board_of(200))
    message = state_message(state)
    state = fold(state, message) if message else state
    number = 0
    while spine_of(state, PLANNER).tokens < tokens:
        number += 1
        state = fold_all(step_events(number, text="output of a command " * 60), state)
        if number % 10 == 0:
            state = fold(state, ev.FactRecorded(fact=FactId(f"f{number}"), text="News", source="r1"))
            message = state_message(state)
            state = fold(state, message) if message else state
    return state


def rebase_rows(runs: int) -> Iterator[Row]:
    """From the stored state to the new spine: checkpoint, plan, replacement."""
    state = long_session(SPINE_TOKENS)
    room = Room(window_tokens=1_000_000, max_output_tokens=8_000, head_tokens=3_000)
    spine = spine_of(state, PLANNER)

    def rebase() -> None:
        plan = plan_rebase(spine, checkpoint(state, PLANNER), room=room, policy=RebasePolicy())
        replace_items(spine, plan.items, board=state.board, cursor=state.cause_count)

    yield Row(
        name=f"rebase of {spine.tokens:,} tokens in {len(spine.items):,} items",
        unit="ms",
        values=milliseconds(timed(rebase, runs=runs, repeats=3)),
        target=20.0,
    )


def fold_log(count: int) -> list[ev.Event]:
    """A log as a large session has it: eight Workers, facts and progress, a rebase-sized spine each."""
    events = session_start()
    agents = [AgentId(f"r{n + 1}") for n in range(8)]
    for agent in agents:
        events.append(ev.TaskAdded(task=TaskId(f"t-{agent}"), title="T", objective="Do it."))
        events.append(ev.RunStarted(run=RunId(agent), task=TaskId(f"t-{agent}")))
    number = 0
    while len(events) < count:
        number += 1
        events += step_events(number, text="short output", agent=agents[number % len(agents)])
        if number % 10 == 0:
            events.append(ev.FactRecorded(fact=FactId(f"f{number}"), text="News", source="r1"))
    return events[:count]


def fold_rows(runs: int) -> Iterator[Row]:
    """Replaying a log."""
    events = fold_log(EVENTS)
    seconds = timed(lambda: fold_all(events), runs=max(3, runs // 2))
    yield Row(
        name=f"fold of {EVENTS:,} events",
        unit="events/s",
        values=[EVENTS / value for value in seconds],
        target=20_000.0,
        is_better_high=True,
    )


def decide_rows(runs: int) -> Iterator[Row]:
    """What the orchestrator asks at each turn."""
    state = fold_all(fold_log(2_000))
    yield Row(
        name="decide, 8 runs",
        unit="ms",
        values=milliseconds(timed(lambda: decide(state, frozenset(), parallel=4), runs=runs, repeats=50)),
        target=0.5,
    )
    board = board_of(1_000)
    yield Row(
        name="view of 1,000 tasks + 1,000 facts",
        unit="ms",
        values=milliseconds(timed(lambda: view(board), runs=runs, repeats=3)),
        target=20.0,
    )


def guard_rows(runs: int) -> Iterator[Row]:
    """What each result and each command costs before anybody sees it."""
    for count in (1, 20):
        letters = random.Random(count)
        values = ["".join(letters.choices(string.ascii_letters + string.digits, k=48)) for _ in range(count)]
        mask = mask_of([Secret(name=f"KEY_{number}", value=value) for number, value in enumerate(values)])
        text = "An ordinary line of a result, with words, 1,234 numbers and /paths/of/files.py:12\n" * 150
        size = len(text) / 1024
        yield Row(
            name=f"mask a result, {count} secrets, each KB",
            unit="us",
            values=[1e6 * seconds / size for seconds in timed(partial(mask.text, text), runs=runs, repeats=20)],
            target=40.0,
        )
    rules = Rules(
        allow=(parse_rule("Bash(npm run *)"),), deny=(parse_rule("Bash(git push *)"), parse_rule("Read(.env)"))
    )
    asked = Asked(tool="bash", command="CI=1 timeout 60 npm run test -- --filter 'a b' > out.txt 2>&1 && npm run lint")
    yield Row(
        name="decide on a command line",
        unit="ms",
        values=milliseconds(timed(lambda: permissions.decide(rules, asked), runs=runs, repeats=50)),
        target=2.0,
    )


PARTS: Mapping[str, Callable[[int], Iterator[Row]]] = {
    "delta": delta_rows,
    "rebase": rebase_rows,
    "fold": fold_rows,
    "decide": decide_rows,
    "guard": guard_rows,
}


def table(rows: Sequence[Row]) -> str:
    """The rows as text; the best run is what the target is compared with."""
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}}  {'best':>12}  {'median':>12}  {'target':>12}  unit"]
    for row in rows:
        target = "" if row.target is None else f"{'>=' if row.is_better_high else '<='} {row.target:,.6g}"
        lines.append(
            f"{row.name:{width}}  {row.best:>12,.3f}  {statistics.median(row.values):>12,.3f}  {target:>12}  "
            f"{row.unit:8} {row.verdict}".rstrip()
        )
    return "\n".join(lines)


def main() -> int:
    """Print the table; with `--strict` end with 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="only these (default: all)")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each measurement")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target was missed")
    options = parser.parse_args()
    rows = [row for name in options.parts or PARTS for row in PARTS[name](options.runs)]
    sys.stdout.write(table(rows) + "\n")
    return int(options.strict and any(row.verdict == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
