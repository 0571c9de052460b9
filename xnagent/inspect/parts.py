"""The parts of `xnagent inspect`, each as a list of flat objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Final

from xnagent.core.board import Run
from xnagent.core.forecast import AgentUse
from xnagent.core.ids import PLANNER, AgentId, agent_of
from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.spine import Spine
from xnagent.core.spine_events import SpineExtended, WindowFilled
from xnagent.core.state import spine_of, work_of
from xnagent.core.text import Json
from xnagent.core.tokens import Usage, estimate_item, estimate_items
from xnagent.inspect.costs import cost
from xnagent.inspect.course import courses_of
from xnagent.inspect.foreseen import outcome_fields
from xnagent.inspect.history import fact_histories, told_by
from xnagent.inspect.reading import Reading, ledger_of, run_status
from xnagent.inspect.receipts import rebase_rows
from xnagent.inspect.requests import RequestRow
from xnagent.inspect.segments import CacheState, names_of_calls, served, what_of

Rows = list[dict[str, Json]]

LEDGER_FIELDS: Final = tuple(field.name for field in fields(RequestRow) if field.name != "usage")
USAGE_FIELDS: Final = tuple(field.name for field in fields(Usage))


def spine(reading: Reading) -> Rows:
    """The Planner's spine as it is now, item by item, with what a cache served of it in the newest answered request."""
    spine, tools = spine_of(reading.state, PLANNER), names_of_calls(spine_of(reading.state, PLANNER).items)
    return [
        {
            "item": n + 1,
            **_item(item),
            "tokens": estimate_item(item),
            "what": what_of(item, n, head=spine.head, tools=tools),
            "cache": cache,
        }
        for n, (item, cache) in enumerate(zip(spine.items, _cache_states(reading, spine), strict=True))
    ]


def _cache_states(reading: Reading, spine: Spine) -> list[CacheState]:
    """Of each item, as the provider reported of the newest answered request of this lineage."""
    answered = [row for row in ledger_of(reading) if row.agent == PLANNER and row.finish is not None]
    manifest = reading.state.manifests.get(spine.sent_manifest)
    if not answered or answered[-1].generation != spine.generation or manifest is None:
        return ["not sent"] * len(spine.items)
    usage, sent = answered[-1].usage, spine.items[: answered[-1].items]
    known = not usage.is_estimated and usage.input_tokens is not None
    estimates = [manifest.head_tokens, *map(estimate_item, sent)]
    parts = served(estimates, reported=usage.input_tokens, cached=usage.cached_tokens if known else None)
    unsent: list[CacheState] = ["not sent"] * (len(spine.items) - len(sent))
    return [*(part.cache for part in parts[1:]), *unsent]


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
            **told_by(event),
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
    """The runs, each with its steps and what their calls came to (`course`)."""
    courses = courses_of(reading.events, ledger_of(reading))
    return [{**row, "course": courses.get(AgentId(str(row["run"])), [])} for row in run_rows(reading)]


def run_rows(reading: Reading) -> Rows:
    """The runs, without their steps."""
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
            "claim": run.claim,
            "base": run.base,
            "brief": run.brief,
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
    """The facts, retracted ones too, each with every change that it saw (`history`)."""
    histories = fact_histories(reading.events)
    return [{**asdict(fact), "history": histories.get(fact.fact, [])} for fact in reading.state.board.facts.values()]


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


OF_LEDGER: Final = frozenset({"spine", "requests", "runs", "cost"})
"""The parts that are made of the rows of requests."""


def known_parts(names: Iterable[str]) -> Sequence[str]:
    """Those of the names that are parts, in the order in which they are shown."""
    wanted = set(names)
    return [name for name in PARTS if name in wanted]
