"""Which events of a log are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, get_args

from xnagent.core.events import Event
from xnagent.core.ids import owner_of
from xnagent.core.text import Json
from xnagent.inspect.reading import Reading

Row = dict[str, Json]


def event_kinds() -> tuple[str, ...]:
    """The kinds of events that there are, by name."""
    found = (field.default for kind in get_args(Event) for field in fields(kind) if field.name == "type")
    return tuple(sorted(str(name) for name in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an event has to be; empty and None: anything."""

    kinds: frozenset[str] = frozenset()
    agent: str | None = None
    """`planner`, or a run: what the agent did and what became of the run."""
    task: str | None = None
    """The task itself and all that is about its runs."""
    first_seq: int | None = None
    last_seq: int | None = None
    since: datetime | None = None
    """Not before it."""
    until: datetime | None = None
    """Not after it."""
    limit: int | None = None
    """The first so many of what is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The wanted events."""

    rows: list[Row]
    matching: int
    """How many there are without the limit."""
    whole: int
    """How many the log has."""


def find_events(reading: Reading, wanted: Wanted) -> Found:
    """The events that are wanted, in the order of the log."""
    runs = _runs_of(reading, wanted.task)
    rows = [dict(record) for record in reading.records if _is_wanted(record, wanted, runs=runs)]
    shown = rows if wanted.limit is None else rows[: wanted.limit]
    return Found(rows=shown, matching=len(rows), whole=len(reading.records))


def _runs_of(reading: Reading, task: str | None) -> frozenset[str]:
    return frozenset(run.run for run in reading.state.board.runs.values() if run.task == task)


def agents_of(record: Mapping[str, Any]) -> frozenset[str]:
    """Whom an event is about: the agent whose history it is about, and the run."""
    agent, run = record.get("agent"), record.get("run")
    return frozenset(str(name) for name in (agent and owner_of(agent), run) if name)


def _is_wanted(record: Mapping[str, Any], wanted: Wanted, *, runs: frozenset[str]) -> bool:
    about = agents_of(record)
    return (
        (not wanted.kinds or record["type"] in wanted.kinds)
        and (wanted.agent is None or wanted.agent in about)
        and (wanted.task is None or record.get("task") == wanted.task or bool(about & runs))
        and _is_within(record, wanted)
    )


def _is_within(record: Mapping[str, Any], wanted: Wanted) -> bool:
    seq = record["seq"]
    if not (wanted.first_seq or 0) <= seq <= (wanted.last_seq or seq):
        return False
    if wanted.since is None and wanted.until is None:
        return True
    at = datetime.fromisoformat(record["at"])
    return (wanted.since is None or at >= wanted.since) and (wanted.until is None or at <= wanted.until)
