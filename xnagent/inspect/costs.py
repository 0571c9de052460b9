"""Tokens and money by role, by model and by task. An unknown cost is null; beside each sum stands how whole it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from xnagent.core.ids import PLANNER, RunId
from xnagent.core.limits import spent_usd
from xnagent.core.state import RoleTotals
from xnagent.core.text import Json
from xnagent.core.tokens import Usage, add_usage
from xnagent.inspect.foreseen import session_outcome
from xnagent.inspect.reading import Reading, ledger_of
from xnagent.inspect.requests import CacheShare, RequestRow, role_of_row, shares_of

Totals = dict[str, Json]


def cost(reading: Reading) -> dict[str, Json]:
    """Tokens and money by role, model and task; `cached_share` is None where the provider does not say.

    With each sum stand `known_usd`, the money of the requests whose cost is known, and `unpriced_requests`, how many
    others there are. What the Planner used is no task's.
    """
    rows = ledger_of(reading)
    replied = [row for row in rows if row.finish is not None]
    return {
        "by_role": {share.role: _role(reading, share, rows=replied) for share in shares_of(reading.events)},
        "by_model": {model: _model(reading, model, rows=replied) for model in sorted(reading.state.model_totals)},
        "by_task": _by_task(reading, replied),
        "total_usd": spent_usd(reading.state),
        **_wholeness(replied),
        "forecast": session_outcome(reading.state),
    }


def _wholeness(rows: Iterable[RequestRow]) -> Totals:
    costs = [row.cost_usd for row in rows]
    known = [one for one in costs if one is not None]
    return {"known_usd": sum(known), "unpriced_requests": len(costs) - len(known)}


def _role(reading: Reading, share: CacheShare, *, rows: Sequence[RequestRow]) -> Totals:
    cached, whole = share.cached_tokens, share.input_tokens
    totals = reading.state.totals.get(share.role, RoleTotals())
    return {
        "requests": totals.requests,
        **asdict(totals.usage),
        "cached_share": None if cached is None or not whole else round(cached / whole, 4),
        "cached_share_requests": share.reported,
        "cost_usd": totals.cost_usd,
        **_wholeness(row for row in rows if role_of_row(row) == share.role),
    }


def _model(reading: Reading, model: str, *, rows: Sequence[RequestRow]) -> Totals:
    totals = reading.state.model_totals[model]
    return {
        "requests": totals.requests,
        **asdict(totals.usage),
        "cost_usd": totals.cost_usd,
        "estimate_ratio": _ratio(reading, model),
        **_wholeness(row for row in rows if row.model == model),
    }


def _ratio(reading: Reading, model: str) -> float | None:
    """What the model counts for one estimated token; None: it has not said."""
    known = reading.state.calibrations.get(model)
    return None if known is None else round(known.ratio, 4)


def _by_task(reading: Reading, rows: Iterable[RequestRow]) -> dict[str, Json]:
    """What the runs of each task used, those of other tasks that the plan no longer has included."""
    board = reading.state.board
    used: dict[str, list[RequestRow]] = {task: [] for task in board.tasks}
    for row in rows:
        run = board.runs.get(RunId(row.agent))
        if row.agent != PLANNER and run is not None:
            used.setdefault(run.task, []).append(row)
    runs = {task: [run.run for run in board.runs.values() if run.task == task] for task in used}
    return {task: {"runs": runs[task], **_sum(part)} for task, part in used.items()}


def _sum(rows: Sequence[RequestRow]) -> Totals:
    usage = Usage()
    for row in rows:
        usage = add_usage(usage, row.usage)
    costs = [row.cost_usd for row in rows]
    whole = sum(one for one in costs if one is not None)
    return {
        "requests": len(rows),
        **asdict(usage),
        "cost_usd": None if None in costs else whole,
        **_wholeness(rows),
    }
