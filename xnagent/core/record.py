"""The final record (CONTRACT): one object that tells how a session ended. A projection of its state."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from xnagent.core.board import Run, Task
from xnagent.core.decide import is_verified, outcome_of
from xnagent.core.events import Outcome
from xnagent.core.ids import PLANNER
from xnagent.core.limits import spent_usd
from xnagent.core.spine import estimate
from xnagent.core.state import SUMMARY_ROLE, RoleTotals, SessionState, spine_of, steps_of
from xnagent.core.text import Json
from xnagent.core.tokens import Usage, add_usage

SIGNAL_EXIT_CODE: Final = {"SIGINT": 130, "SIGTERM": 143}

EXIT_CODE: Final[dict[Outcome, int]] = {
    "completed": 0,
    "error": 1,
    "failed": 3,
    "partial": 4,
    "blocked": 5,
    "limit": 6,
    "deadline": 7,
    "provider_error": 8,
    "prefix_broken": 10,
    "interrupted": 130,
}
"""By outcome; a provider fault for good is 9 and SIGTERM is 143 (`exit_code`)."""

LEDGER_ONLY: Final = frozenset({"is_estimated", "cache_write_short_tokens", "cache_write_long_tokens"})
"""Of the usage: what `inspect` tells request by request."""

RETRY_WORTHY: Final = 8
FOR_GOOD: Final = 9


def exit_code(state: SessionState, *, is_retryable: bool) -> int:
    """The process's exit code for a session that ends now; `is_retryable` tells the provider's faults apart."""
    outcome = outcome_of(state)
    if outcome == "interrupted" and state.interrupted is not None:
        return SIGNAL_EXIT_CODE[state.interrupted.signal]
    if outcome == "provider_error":
        return RETRY_WORTHY if is_retryable else FOR_GOOD
    return EXIT_CODE[outcome]


def final_record(state: SessionState) -> dict[str, Json]:
    """The record of a settled session; of one that is not settled, how it would end now."""
    settled = state.settled
    finish = state.finish
    return {
        "type": "final",
        "session": state.session,
        "outcome": outcome_of(state) if settled is None else settled.outcome,
        "exit_code": None if settled is None else settled.exit_code,
        "verified": is_verified(state),
        "summary": finish.summary if finish else (settled.summary if settled else ""),
        "question": finish.question if finish else None,
        "error": None
        if settled is None or settled.error is None
        else {"class": settled.error_class, "message": settled.error},
        "tasks": _task_counts(tuple(state.board.tasks.values())),
        "runs": _run_counts(tuple(state.board.runs.values())),
        "steps": dict(zip(("planner", "worker"), steps_of(state), strict=True)),
        "spine": _spine(state),
        "usage": _usage(state),
        "workspace": _workspace(state),
        "duration_seconds": 0.0 if settled is None else round(settled.duration_seconds, 3),
    }


def _task_counts(tasks: tuple[Task, ...]) -> dict[str, Json]:
    statuses = [task.status for task in tasks]
    return {"total": len(tasks), **{name: statuses.count(name) for name in ("completed", "failed", "dropped")}}


def _run_counts(runs: tuple[Run, ...]) -> dict[str, Json]:
    statuses = [run.status for run in runs]
    return {"total": len(runs), **{name: statuses.count(name) for name in ("completed", "failed", "cancelled")}}


def _spine(state: SessionState) -> dict[str, Json]:
    spine = spine_of(state, PLANNER)
    return {
        "items": len(spine.items),
        "tokens": estimate(spine, _head_tokens(state)),
        "deltas": state.deltas,
        "rebases": sum(rebase.agent == PLANNER for rebase in state.rebases),
        "breaks": len(state.breaks),
    }


def _head_tokens(state: SessionState) -> int:
    manifest = state.manifests.get(state.role_manifest.get("planner", ""))
    return 0 if manifest is None else manifest.head_tokens


def _usage(state: SessionState) -> dict[str, Json]:
    total = Usage()
    for role in state.totals.values():
        total = add_usage(total, role.usage)
    roles = ("planner", "worker", *([SUMMARY_ROLE] if SUMMARY_ROLE in state.totals else []))
    return {
        "requests": sum(role.requests for role in state.totals.values()),
        **_tokens_of(total),
        "cost_usd": _rounded(spent_usd(state)),
        "by_role": {role: _role(state.totals.get(role, RoleTotals())) for role in roles},
        "by_model": {model: _role(totals) for model, totals in sorted(state.model_totals.items())},
    }


def _role(totals: RoleTotals) -> dict[str, Json]:
    return {"requests": totals.requests, **_tokens_of(totals.usage), "cost_usd": _rounded(totals.cost_usd)}


def _tokens_of(usage: Usage) -> dict[str, Json]:
    return {name: value for name, value in asdict(usage).items() if name not in LEDGER_ONLY}


def _rounded(cost: float | None) -> float | None:
    return None if cost is None else round(cost, 8)


def _workspace(state: SessionState) -> dict[str, Json]:
    applied = state.applied
    return {
        "base": state.started.base if state.started else None,
        "branch": applied.branch if applied else None,
        "patch": applied.patch if applied else None,
        "applied": bool(applied and applied.is_applied),
        "changed_files": list(applied.changed_files) if applied else [],
        "detail": applied.detail if applied else "",
    }
