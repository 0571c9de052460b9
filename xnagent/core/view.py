"""What the Planner sees of the board: a JSON document keyed by id, each entry bounded.

The document has the sections of `SECTIONS`. An entry is rendered from one record of the board, so a record that is the
same object renders to the same entry, and a delta need not look at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from xnagent.core.board import Board, Evidence, Fact, Run, Task
from xnagent.core.text import Json, clip, first_line

Entry: TypeAlias = Json
"""One rendered record."""
Document: TypeAlias = dict[str, dict[str, Entry]]
"""Entries by id, by section."""

OBJECTIVE_CHARACTERS: Final = 1_500
SUMMARY_CHARACTERS: Final = 2_000
FACT_CHARACTERS: Final = 2_000
"""No fact is longer: the tools refuse it, so that none is ever shown in part (I8)."""
ARCHIVED_CHARACTERS: Final = 160
TAIL_CHARACTERS: Final = 1_600
LISTED_FILES: Final = 40

SECTIONS: Final = ("session", "messages", "tasks", "runs", "facts", "skills")
"""The sections in the order in which they are rendered: from stable to volatile is not possible here, so by weight."""


def view(board: Board) -> Document:
    """The whole document."""
    return {
        name: {key: render_entry(name, record) for key, record in section(board, name).items() if is_shown(record)}
        for name in SECTIONS
    }


def section(board: Board, name: str) -> Mapping[str, object]:
    """The records of one section by id."""
    return cast("Mapping[str, object]", getattr(board, name))


def is_shown(record: object) -> bool:
    """Whether the record is in the view at all: what was retracted or dropped is not."""
    return not (isinstance(record, Fact) and record.retracted is not None)


def render_entry(name: str, record: object) -> Entry:
    """One record as the Planner sees it; fields without content are left out."""
    match record:
        case Task():
            return _task(record)
        case Run():
            return _run(record)
        case Fact():
            return _fact(record)
        case _:
            return str(record) if name == "messages" else clip(str(record), FACT_CHARACTERS)


def _task(task: Task) -> Entry:
    if task.is_archived:
        return _filled(title=task.title, status=task.status, runs=list(task.runs))
    return _filled(
        title=task.title,
        objective=clip(task.objective, OBJECTIVE_CHARACTERS),
        status=task.status,
        checks=list(task.checks),
        depends_on=list(task.depends_on),
        scope=list(task.scope),
        runs=list(task.runs),
    )


def _run(run: Run) -> Entry:
    if run.is_archived:
        summary = first_line(run.reason or run.summary, ARCHIVED_CHARACTERS)
        evidence: list[Entry] = [one.output for one in run.evidence]
        return _filled(task=run.task, status=run.status, summary=summary, patch=run.patch, evidence=evidence)
    return _filled(
        task=run.task,
        status=run.status,
        progress=clip(run.progress, FACT_CHARACTERS),
        summary=clip(run.summary, SUMMARY_CHARACTERS),
        reason=clip(run.reason, SUMMARY_CHARACTERS),
        changed_files=_listed(run.changed_files),
        conflicts=_listed(run.conflicts),
        patch=run.patch,
        evidence=[_evidence(evidence) for evidence in run.evidence],
        flags=list(run.flags),
    )


def _evidence(evidence: Evidence) -> Entry:
    return _filled(
        check=evidence.command,
        exit_code="none: it did not end by itself" if evidence.exit_code is None else evidence.exit_code,
        output=evidence.output,
        flaky=f"it failed at first ({evidence.failed_output}) and passed when run again" if evidence.is_flaky else "",
        tail="" if evidence.has_passed else clip(evidence.tail, TAIL_CHARACTERS, head_share=0.2),
    )


def _fact(fact: Fact) -> Entry:
    return _filled(
        text=clip(fact.text, FACT_CHARACTERS),
        value=fact.value,
        source=fact.source,
        revision=fact.revision if fact.revision > 1 else None,
        pinned=fact.is_pinned or None,
    )


def _listed(paths: tuple[str, ...]) -> list[Entry]:
    shown: list[Entry] = list(paths[:LISTED_FILES])
    return shown if len(paths) <= LISTED_FILES else [*shown, f"… and {len(paths) - LISTED_FILES} more"]


def _filled(**fields: Entry) -> dict[str, Entry]:
    return {name: value for name, value in fields.items() if value not in (None, "", [])}
