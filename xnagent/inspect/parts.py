"""The parts of `xnagent inspect`, each as a list of flat objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Final

from xnagent.core.board import Run
from xnagent.core.forecast import AgentUse
from xnagent.core.ids import PLANNER, agent_of
from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.limits import spent_usd
from xnagent.core.spine_events import SpineExtended, WindowFilled
from xnagent.core.state import RoleTotals, spine_of, work_of
from xnagent.core.text import Json
from xnagent.core.tokens import Usage, estimate_item, estimate_items
from xnagent.inspect.foreseen import outcome_fields, session_outcome
from xnagent.inspect.reading import Reading, ledger_of, run_status
from xnagent.inspect.receipts import rebase_rows
from xnagent.inspect.requests import CacheShare, RequestRow, cache_shares

Rows = list[dict[str, Json]]

LEDGER_FIELDS: Final = tuple(field.name for field in fields(RequestRow) if field.name != "usage")
USAGE_FIELDS: Final = tuple(field.name for field in fields(Usage))


def spine(reading: Reading) -> Rows:
    """The Planner's spine as it is now, item by item."""
    items = spine_of(reading.state, PLANNER).items
    return [{"item": n, **_item(item), "tokens": estimate_item(item)} for n, item in enumerate(items, 1)]


def _item(item: Item) -> dict[str, Json]:
    match item:
        case UserText():
            return {"kind": item.kind, "from": item.origin, "text": item.text}
        case AssistantText():
            return {"kind": item.kind, "from": "model", "text": item.text}
        case Reasoning():
            return {"kind": item.kind, "from": "model", "text": item.payload}
        case ToolCall():
            return {"kind": item.kind, "from": item.call_id, "text": f"{item.name} {item.arguments}"}
        case ToolResult():
            return {"kind": item.kind, "from": item.call_id, "text": item.text}


def deltas(reading: Reading) -> Rows:
    """The baseline and the deltas that told the Planner what changed, over the whole session."""
    return [
        {
            "seq": stored.seq,
            "at": stored.at,
            "kind": event.kind,
            "cursor": event.cursor,
            "tokens": estimate_items(event.items),
            "text": "\n".join(item.text for item in event.items if isinstance(item, UserText)),
        }
        for stored in reading.events
        if isinstance(event := stored.event, SpineExtended) and event.kind in {"baseline", "delta"}
    ]


def rebases(reading: Reading) -> Rows:
    """What ended a lineage: rebases with their receipts, models that took over; and rebases that were refused."""
    return rebase_rows(reading.events)


def requests(reading: Reading) -> Rows:
    """What each request was expected to cost in tokens and what the provider reported."""
    return [request_record(row) for row in ledger_of(reading)]


def request_record(row: RequestRow) -> dict[str, Json]:
    """A request as one flat object."""
    told: dict[str, Json] = {name: getattr(row, name) for name in LEDGER_FIELDS}
    told["replaced"] = None if row.replaced is None else asdict(row.replaced)
    usage: dict[str, Json] = {name: getattr(row.usage, name) for name in USAGE_FIELDS}
    return {**told, **usage, "estimate_error_share": _error(row)}


def _error(row: RequestRow) -> float | None:
    """By what share more was reported than estimated, of this same request (M63)."""
    reported = None if row.usage.is_estimated else row.usage.input_tokens
    return None if reported is None or not row.estimate_tokens else round(reported / row.estimate_tokens - 1, 4)


def window_warnings(reading: Reading) -> Rows:
    """When requests reached the levels of their window that are to be told, in the order of the log."""
    return [
        {"seq": stored.seq, "at": stored.at, **{name: value for name, value in asdict(event).items() if name != "type"}}
        for stored in reading.events
        if isinstance(event := stored.event, WindowFilled)
    ]


def runs(reading: Reading) -> Rows:
    """The runs."""
    return [
        {
            "run": run.run,
            "task": run.task,
            "status": run_status(reading, run),
            "steps": work_of(reading.state, agent_of(run.run)).steps,
            "changed_files": list(run.changed_files),
            "conflicts": list(run.conflicts),
            "checks": [{**asdict(evidence), "has_passed": evidence.has_passed} for evidence in run.evidence],
            "merged": run.merged,
            "patch": run.patch,
            "flags": list(run.flags),
            "reason": run.reason,
            "summary": run.summary or run.progress,
            **_foreseen(reading, run),
        }
        for run in reading.state.board.runs.values()
    ]


def _foreseen(reading: Reading, run: Run) -> dict[str, Json]:
    """What the run has used, beside what it was expected to."""
    use = reading.state.uses.get(agent_of(run.run)) or AgentUse()
    likely = None if run.forecast is None else run.forecast.likely.cost_usd
    used = {"cost_usd": use.cost_usd, "likely_usd": likely, "tokens": use.input_tokens + use.output_tokens}
    return {**used, **outcome_fields(run.forecast, use)}


def tasks(reading: Reading) -> Rows:
    """The plan."""
    return [
        {
            "task": task.task,
            "status": task.status,
            "title": task.title,
            "runs": list(task.runs),
            "depends_on": list(task.depends_on),
            "checks": list(task.checks),
            "scope": list(task.scope),
            "objective": task.objective,
        }
        for task in reading.state.board.tasks.values()
    ]


def facts(reading: Reading) -> Rows:
    """The facts, retracted ones too."""
    return [asdict(fact) for fact in reading.state.board.facts.values()]


def cost(reading: Reading) -> dict[str, Json]:
    """Tokens and money by role; `cached_share` is None where the provider does not say."""
    shares = cache_shares(ledger_of(reading))
    by_role = {share.role: _role(reading.state.totals.get(share.role, RoleTotals()), share) for share in shares}
    totals = sorted(reading.state.model_totals.items())
    by_model: dict[str, Json] = {
        model: {
            "requests": part.requests,
            **asdict(part.usage),
            "cost_usd": part.cost_usd,
            "estimate_ratio": _ratio(reading, model),
        }
        for model, part in totals
    }
    spent, foreseen = spent_usd(reading.state), session_outcome(reading.state)
    return {"by_role": by_role, "by_model": by_model, "total_usd": spent, "forecast": foreseen}


def _ratio(reading: Reading, model: str) -> float | None:
    """What the model counts for one estimated token; None: it has not said."""
    known = reading.state.calibrations.get(model)
    return None if known is None else round(known.ratio, 4)


def _role(totals: RoleTotals, share: CacheShare) -> dict[str, Json]:
    cached, whole = share.cached_tokens, share.input_tokens
    return {
        "requests": totals.requests,
        **asdict(totals.usage),
        "cached_share": None if cached is None or not whole else round(cached / whole, 4),
        "cached_share_requests": share.reported,
        "cost_usd": totals.cost_usd,
    }


def events(reading: Reading) -> Rows:
    """The log itself."""
    return [dict(record) for record in reading.records]


PARTS: Final[Mapping[str, Callable[[Reading], Rows | dict[str, Json]]]] = {
    "spine": spine,
    "deltas": deltas,
    "rebases": rebases,
    "requests": requests,
    "runs": runs,
    "tasks": tasks,
    "facts": facts,
    "cost": cost,
    "events": events,
}
"""By the name of the option."""


def known_parts(names: Iterable[str]) -> Sequence[str]:
    """Those of the names that are parts, in the order in which they are shown."""
    wanted = set(names)
    return [name for name in PARTS if name in wanted]
