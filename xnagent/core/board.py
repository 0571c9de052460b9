"""The board: the part of a session's state that its Planner may see. Values only; `fold.py` changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from xnagent.core.forecast import Forecast
from xnagent.core.ids import FactId, RunId, TaskId, Ticket
from xnagent.core.values import dataclass

TaskStatus = Literal["pending", "active", "completed", "failed", "dropped"]
RunStatus = Literal["queued", "working", "submitted", "completed", "failed", "cancelled", "interrupted"]
SubmitStatus = Literal["completed", "failed", "blocked"]

OPEN_TASK: frozenset[TaskStatus] = frozenset({"pending", "active", "failed"})
ACTIVE_RUN: frozenset[RunStatus] = frozenset({"queued", "working", "submitted", "interrupted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One node of the plan."""

    task: TaskId
    title: str
    objective: str
    checks: tuple[str, ...] = ()
    """Shell commands that must exit with 0 before the task counts as completed."""
    depends_on: tuple[TaskId, ...] = ()
    scope: tuple[str, ...] = ()
    """Globs of paths that a run may change; empty: all."""
    status: TaskStatus = "pending"
    runs: tuple[RunId, ...] = ()
    is_archived: bool = False
    """Shown in short; only in what a spine was told, see `archive.py`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one acceptance check printed and returned."""

    command: str
    exit_code: int | None
    """None: it did not end by itself (time limit, signal)."""
    duration_seconds: float
    output: Ticket
    """The whole output."""
    tail: str
    """The end of the output, clipped."""
    failed_output: Ticket | None = None
    """Of a flaky check: what it printed when it failed, before it passed on its second try."""

    @property
    def is_flaky(self) -> bool:
        """Whether it failed and then passed on the same tree; it counts as passed."""
        return self.failed_output is not None

    @property
    def has_passed(self) -> bool:
        """Whether the check ended with exit code 0."""
        return self.exit_code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt of a Worker at a Task."""

    run: RunId
    task: TaskId
    status: RunStatus = "queued"
    brief: str = ""
    model: str | None = None
    checks: tuple[str, ...] = ()
    """The task's checks when the run was delegated: later revisions do not change what judges it."""
    scope: tuple[str, ...] = ()
    base: str | None = None
    """The commit that its workspace began from."""
    progress: str = ""
    """The Worker's newest note on where it is."""
    claim: SubmitStatus | None = None
    """As what the Worker handed in; what it claims is not believed before it was judged."""
    summary: str = ""
    """What the Worker handed in."""
    reason: str = ""
    """Why it ended as it did, when it did not complete."""
    changed_files: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    patch: Ticket | None = None
    evidence: tuple[Evidence, ...] = ()
    merged: str | None = None
    """The commit on the integration branch that holds its patch."""
    flags: tuple[str, ...] = ()
    """What the Planner should know about this result, such as a changed file that a check names."""
    forecast: Forecast | None = None
    """What it was expected to use when it was delegated; None: an older log."""
    is_archived: bool = False
    """Shown in short; only in what a spine was told, see `archive.py`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A confirmed statement."""

    fact: FactId
    text: str
    value: str | None = None
    """The exact value: a number, id, path, version."""
    source: str
    """Who recorded it: `planner`, a run, or `user`."""
    revision: int = 1
    is_pinned: bool = False
    retracted: str | None = None
    """Why it no longer holds; a retracted fact is never shown as true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One line of what happened, for the Planner's next delta."""

    number: int
    """1, 2, 3… over the session."""
    text: str
    is_operation: bool
    """The Planner did it itself; it is in its spine already as a call, and in a checkpoint as a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What the Planner may see. Parts that did not change are the same objects, so that a delta costs what changed."""

    tasks: Mapping[TaskId, Task] = field(default_factory=dict)
    runs: Mapping[RunId, Run] = field(default_factory=dict)
    facts: Mapping[FactId, Fact] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)
    """Later messages of the user by id (`m1`…); the objective is not among them."""
    skills: Mapping[str, str] = field(default_factory=dict)
    """Description by name."""
    session: Mapping[str, str] = field(default_factory=dict)
    """Single values: the integration head, results of the final checks."""
