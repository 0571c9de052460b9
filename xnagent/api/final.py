"""The final record of a session (CONTRACT), typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final as Constant
from typing import cast

from pydantic import TypeAdapter

from xnagent.core.events import Outcome
from xnagent.core.record import final_record
from xnagent.core.state import SessionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What ended a session that did not come to its own end."""

    kind: str
    """Its class: `limit_usd`, `deadline`, `overloaded`…"""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """Tasks of the plan."""

    total: int
    completed: int
    failed: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """Attempts of Workers."""

    total: int
    completed: int
    failed: int
    cancelled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Model calls that were answered."""

    planner: int
    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpineTotals:
    """The Planner's history."""

    items: int
    tokens: int
    """An estimate."""
    deltas: int
    rebases: int
    breaks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Requests and their tokens and price; what is not known is None."""

    requests: int
    input_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals(Totals):
    """The same, by role and by model too."""

    by_role: Mapping[str, Totals]
    by_model: Mapping[str, Totals]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceResult:
    """What became of the files."""

    base: str | None
    """The commit that the session began from."""
    branch: str | None
    patch: str | None
    """The artifact that holds the patch."""
    applied: bool
    """Whether it is in the user's checkout."""
    changed_files: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """How a session ended: the same as the command line's final record."""

    session: str
    outcome: Outcome
    exit_code: int
    """What `xnagent run` would have ended with: 0 is finished and verified, or nothing was asked to be checked."""
    verified: bool | None
    """None: there was nothing to check."""
    summary: str
    question: str | None
    """What the session needs to know; answer with `session.resume(message=…)`."""
    error: Fault | None
    tasks: TaskCounts
    runs: RunCounts
    steps: StepCounts
    spine: SpineTotals
    usage: UsageTotals
    workspace: WorkspaceResult
    duration_seconds: float
    record: Mapping[str, object] = field(repr=False)
    """The object that `--output json` prints."""


_ADAPTER: Constant = TypeAdapter(Final)


def final_of(state: SessionState) -> Final | None:
    """The record of a settled session; None if it is not settled."""
    if state.settled is None:
        return None
    record = final_record(state)
    error = cast("Mapping[str, str] | None", record["error"])
    fault = None if error is None else {"kind": error["class"], "message": error["message"]}
    fields = {name: value for name, value in record.items() if name != "type"}
    return _ADAPTER.validate_python({**fields, "error": fault, "record": record})
