"""What `inspect --sql` can ask: each view with its columns, and its rows from the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from xnagent.core.ids import PLANNER
from xnagent.core.text import Json, canonical
from xnagent.inspect.course import courses_of
from xnagent.inspect.filters import agents_of
from xnagent.inspect.parts import PARTS
from xnagent.inspect.reading import Reading, ledger_of
from xnagent.inspect.report import overview

Row = Mapping[str, Any]
Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class View:
    """A view: where its rows come from, and the fields of theirs that are its columns."""

    rows: Callable[[Reading], Iterable[Row]]
    columns: tuple[str, ...]


def cells_of(view: View, reading: Reading) -> Iterator[list[Cell]]:
    """The rows of a view, as SQLite takes them: true is 1, lists and objects are JSON text."""
    return ([_cell(row.get(name)) for name in view.columns] for row in view.rows(reading))


def _cell(value: Json) -> Cell:
    match value:
        case None | str() | float():
            return value
        case int():
            return int(value) if abs(value) < 1 << 63 else float(value)
        case _:
            return canonical(value)


def _part(name: str) -> Callable[[Reading], Iterable[Row]]:
    def rows(reading: Reading) -> Iterable[Row]:
        return cast("Iterable[Row]", PARTS[name](reading))

    return rows


def _within(part: str, field: str, *keys: str) -> Callable[[Reading], Iterator[Row]]:
    """The objects of a list in each row of a part, numbered from 1, with the fields that say whose they are."""

    def rows(reading: Reading) -> Iterator[Row]:
        made: Any = PARTS[part](reading)
        for row in made:
            for number, inner in enumerate(row[field], 1):
                yield {"n": number, **{key: row[key] for key in keys}, **inner}

    return rows


def _session(reading: Reading) -> Iterator[Row]:
    glance: Any = overview(reading)
    settled = reading.state.settled
    yield {
        **{name: glance[name] for name in ("session", "status", "objective", "repository", "begun", "events")},
        "exit_code": None if settled is None else settled.exit_code,
        "duration_seconds": None if settled is None else settled.duration_seconds,
        "cost_usd": glance["cost_usd"],
    }


def _spine(reading: Reading) -> Iterator[Row]:
    made: Any = PARTS["spine"](reading)
    return ({**row, "sender": row["from"]} for row in made)


def _steps(reading: Reading) -> Iterator[Row]:
    tasks = {run.run: run.task for run in reading.state.board.runs.values()}
    for agent, steps in courses_of(reading.events, ledger_of(reading)).items():
        run: Any = None if agent == PLANNER else agent
        for step in steps:
            yield {**step, "agent": agent, "run": run, "task": tasks.get(run)}


def _calls(reading: Reading) -> Iterator[Row]:
    for step in _steps(reading):
        for call in step["calls"]:
            yield {**{name: step[name] for name in ("agent", "run", "task", "step", "request")}, **call}


def _costs(reading: Reading) -> Iterator[Row]:
    cost: Any = PARTS["cost"](reading)
    for of in ("role", "model", "task"):
        for name, part in cost[f"by_{of}"].items():
            yield {"of": of, "name": name, **part}


def _events(reading: Reading) -> Iterator[Row]:
    for record in reading.records:
        about = agents_of(record)
        run = record.get("run") or next((name for name in about if name != PLANNER), None)
        yield {**record, "agent": record.get("agent") or run, "run": run, "record": record}


USED: Final = ("requests", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")

VIEWS: Final[Mapping[str, View]] = {
    "sessions": View(
        _session,
        (
            "session",
            "status",
            "objective",
            "repository",
            "begun",
            "events",
            "exit_code",
            "duration_seconds",
            "cost_usd",
        ),
    ),
    "tasks": View(_part("tasks"), ("task", "status", "title", "objective", "runs", "depends_on", "checks", "scope")),
    "runs": View(
        _part("runs"),
        (
            "run",
            "task",
            "status",
            "steps",
            "claim",
            "reason",
            "summary",
            "brief",
            "base",
            "merged",
            "patch",
            "changed_files",
            "conflicts",
            "flags",
            "tokens",
            "cost_usd",
            "likely_usd",
        ),
    ),
    "evidence": View(
        _within("runs", "checks", "run", "task"),
        (
            "run",
            "task",
            "n",
            "command",
            "has_passed",
            "exit_code",
            "duration_seconds",
            "output",
            "failed_output",
            "tail",
        ),
    ),
    "steps": View(
        _steps,
        (
            "agent",
            "run",
            "task",
            "step",
            "purpose",
            "request",
            "seq",
            "at",
            "model",
            "input_tokens",
            "cached_tokens",
            "output_tokens",
            "cost_usd",
            "duration_seconds",
            "finish",
            "fault",
        ),
    ),
    "calls": View(
        _calls,
        (
            "agent",
            "run",
            "task",
            "step",
            "request",
            "call_id",
            "tool",
            "arguments",
            "code",
            "label",
            "exit_code",
            "duration_seconds",
            "artifact",
            "seq",
        ),
    ),
    "requests": View(
        _part("requests"),
        (
            "request",
            "agent",
            "purpose",
            "generation",
            "at",
            "model",
            "items",
            "estimate_tokens",
            "predicted_cached_tokens",
            "window_share",
            "input_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "output_tokens",
            "reasoning_tokens",
            "cost_usd",
            "cache_miss",
            "duration_seconds",
            "first_token_seconds",
            "finish",
            "retries",
            "fault",
            "size_bytes",
            "sha256",
        ),
    ),
    "spine": View(_spine, ("item", "what", "kind", "sender", "tokens", "cache", "text")),
    "deltas": View(_part("deltas"), ("seq", "at", "kind", "cursor", "tokens", "causes", "patch", "text")),
    "operations": View(_within("deltas", "patch", "seq"), ("seq", "n", "op", "path", "from", "value")),
    "rebases": View(
        _part("rebases"),
        (
            "seq",
            "at",
            "agent",
            "cause",
            "is_refused",
            "tokens_before",
            "tokens_after",
            "items_dropped",
            "checkpoint_tokens",
            "price_usd",
            "rent_usd",
            "saved_usd",
            "break_even_steps",
            "first_seq",
            "last_seq",
            "detail",
        ),
    ),
    "facts": View(_part("facts"), ("fact", "text", "value", "source", "revision", "is_pinned", "retracted")),
    "fact_history": View(
        _within("facts", "history", "fact"), ("fact", "n", "change", "by", "text", "value", "seq", "at")
    ),
    "costs": View(_costs, ("of", "name", *USED, "cost_usd", "known_usd", "unpriced_requests")),
    "events": View(_events, ("seq", "at", "type", "agent", "run", "task", "request", "record")),
}
"""By name."""
