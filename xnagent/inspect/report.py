"""What `xnagent inspect` prints: an overview, the parts as tables, or all of it as one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from xnagent.core.record import final_record
from xnagent.core.state import SessionState
from xnagent.core.text import Json, canonical
from xnagent.inspect.foreseen import outcome_line
from xnagent.inspect.parts import PARTS, Rows, known_parts, window_warnings
from xnagent.inspect.plain import UNKNOWN, count, line, money, seconds, share, table, visible
from xnagent.inspect.reading import Reading, final_of, status_of
from xnagent.inspect.requests import cache_shares, request_rows

ENVELOPE: Final = frozenset({"type", "session", "seq", "at"})
TEXT_WIDTH: Final = 80
NAMED_AGENTS: Final = 3
GLANCED: Final = ("cost", "rebases")
"""The parts that the overview tells of."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a part's table."""

    title: str
    key: str
    show: Callable[[Any], str] = str


def _text(value: object) -> str:
    return "" if value is None else line(str(value), TEXT_WIDTH)


def _list(value: Sequence[object]) -> str:
    return line(", ".join(map(str, value)), TEXT_WIDTH)


def _break_even(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _share_of(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def _level(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _off_by(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.0%}"


def _replaced(value: Mapping[str, Any] | None) -> str:
    return "" if value is None else line(f"{value['replaced']} ({value['cause']}), {money(value['price_usd'])}")


def _checks(value: Sequence[Mapping[str, object]]) -> str:
    return f"{sum(bool(check['has_passed']) for check in value)}/{len(value)}" if value else "-"


COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "spine": (
        Column("item", "item", count),
        Column("kind", "kind"),
        Column("from", "from", _text),
        Column("tokens", "tokens", count),
        Column("text", "text", _text),
    ),
    "deltas": (
        Column("seq", "seq", count),
        Column("at", "at"),
        Column("kind", "kind"),
        Column("up to cause", "cursor", count),
        Column("tokens", "tokens", count),
        Column("text", "text", _text),
    ),
    "rebases": (
        Column("seq", "seq", count),
        Column("agent", "agent"),
        Column("cause", "cause"),
        Column("before", "tokens_before", count),
        Column("after", "tokens_after", count),
        Column("items dropped", "items_dropped", count),
        Column("checkpoint", "checkpoint_tokens", count),
        Column("tickets", "ticketed", lambda value: count(len(value)) if value else ""),
        Column("price", "price_usd", money),
        Column("saves a request", "saved_usd", money),
        Column("pays after steps", "break_even_steps", _break_even),
        Column("where to read it, or why", "detail", _text),
    ),
    "requests": (
        Column("n", "request", count),
        Column("agent", "agent"),
        Column("for", "purpose"),
        Column("model", "model", _text),
        Column("gen", "generation", count),
        Column("items", "items", count),
        Column("estimate", "estimate_tokens", count),
        Column("of window", "window_share", _share_of),
        Column("warned at", "warned_share", _level),
        Column("predicted cached", "predicted_cached_tokens", count),
        Column("input", "input_tokens", count),
        Column("off by", "estimate_error_share", _off_by),
        Column("cached", "cached_tokens", count),
        Column("written", "cache_write_tokens", count),
        Column("for long", "cache_write_long_tokens", count),
        Column("miss", "cache_miss", _text),
        Column("output", "output_tokens", count),
        Column("cost", "cost_usd", money),
        Column("time", "duration_seconds", seconds),
        Column("finish", "finish", _text),
        Column("retries", "retries", count),
        Column("fault", "fault", _text),
        Column("in place of", "replaced", _replaced),
    ),
    "runs": (
        Column("run", "run"),
        Column("task", "task", _text),
        Column("status", "status"),
        Column("steps", "steps", count),
        Column("checks", "checks", _checks),
        Column("cost", "cost_usd", money),
        Column("forecast", "likely_usd", money),
        Column("off by", "error_share", _off_by),
        Column("changed", "changed_files", _list),
        Column("reason", "reason", _text),
        Column("summary", "summary", _text),
    ),
    "tasks": (
        Column("task", "task", _text),
        Column("status", "status"),
        Column("runs", "runs", _list),
        Column("after", "depends_on", _list),
        Column("checks", "checks", _list),
        Column("title", "title", _text),
    ),
    "facts": (
        Column("fact", "fact"),
        Column("rev", "revision", count),
        Column("source", "source", _text),
        Column("pinned", "is_pinned", lambda value: "yes" if value else ""),
        Column("value", "value", _text),
        Column("text", "text", _text),
        Column("retracted", "retracted", _text),
    ),
}


def part_text(reading: Reading, part: str) -> str:
    """One part as a table under its title."""
    rows = PARTS[part](reading)
    match part:
        case "cost":
            told = "\n".join([_cost_table(cast("Mapping[str, Any]", rows)), outcome_line(reading.state)])
            return f"cost\n{told}".rstrip()
        case "events":
            shown = [(count(row["seq"]), str(row["at"]), str(row["type"]), _rest(row)) for row in cast("Any", rows)]
            return f"events ({len(shown)})\n{table(('seq', 'at', 'type', 'what'), shown)}"
        case _:
            return _part_table(part, cast("Rows", rows))


def _part_table(part: str, rows: Rows) -> str:
    columns = COLUMNS[part]
    cells = [[column.show(row[column.key]) for column in columns] for row in rows]
    return f"{part} ({len(rows)})\n{table([column.title for column in columns], cells)}"


def _rest(record: Mapping[str, Json]) -> str:
    return line(canonical({key: value for key, value in record.items() if key not in ENVELOPE}), TEXT_WIDTH)


def _cost_table(data: Mapping[str, Any]) -> str:
    rows = [
        (
            role,
            count(part["requests"]),
            count(part["input_tokens"]),
            count(part["cached_tokens"]),
            _share_of(part["cached_share"]),
            count(part["cache_write_tokens"]),
            count(part["cache_write_long_tokens"]),
            count(part["output_tokens"]),
            count(part["reasoning_tokens"]),
            money(part["cost_usd"]),
        )
        for role, part in data["by_role"].items()
    ]
    titles = (
        "role",
        "requests",
        "input",
        "cached",
        "cached share",
        "written",
        "for long",
        "output",
        "reasoning",
        "cost",
    )
    by_model = f"\n\n{_model_table(data['by_model'])}" if len(data["by_model"]) > 1 else ""
    return f"{table(titles, rows)}\ntotal {money(data['total_usd'])}{by_model}"


def _model_table(parts: Mapping[str, Any]) -> str:
    keys = ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
    rows = [
        (line(model), *(count(part[key]) for key in keys), money(part["cost_usd"])) for model, part in parts.items()
    ]
    return table(("model", "requests", "input", "cached", "output", "reasoning", "cost"), rows)


def overview(reading: Reading, parts: Mapping[str, Any] | None = None) -> dict[str, Json]:
    """The session at a glance; `parts` are those that were made already."""
    state, record = reading.state, final_record(reading.state)
    shown: Mapping[str, Any] = {name: PARTS[name](reading) for name in GLANCED} if parts is None else parts
    by_role = shown["cost"]["by_role"]
    return {
        "session": reading.session,
        "status": status_of(reading),
        "objective": state.started.objective if state.started else "",
        "repository": state.started.repository if state.started else "",
        "begun": reading.events[0].at if reading.events else None,
        "events": len(reading.events),
        "tasks": record["tasks"],
        "runs": record["runs"],
        "steps": record["steps"],
        "spine": record["spine"],
        "window_warnings": window_warnings(reading),
        "denials": reading.state.denials,
        "rebases": shown["rebases"],
        "models_replaced": [cast("dict[str, Json]", asdict(one)) for one in state.replaced],
        "cached_share": {role: part["cached_share"] for role, part in by_role.items()},
        "cost_usd": shown["cost"]["total_usd"],
    }


def overview_text(reading: Reading) -> str:
    """The session at a glance, for people."""
    state, record = reading.state, cast("dict[str, Any]", final_record(reading.state))
    settled = state.settled
    status = status_of(reading) + (f" (exit code {settled.exit_code})" if settled else "")
    spine, shares = record["spine"], cache_shares(request_rows(reading.events))
    rows = [
        ("session", str(reading.session)),
        ("status", status),
        ("objective", line(state.started.objective, TEXT_WIDTH) if state.started else ""),
        ("summary", line(str(record["summary"]), TEXT_WIDTH)),
        ("error", line(settled.error or "", TEXT_WIDTH) if settled else ""),
        ("question", _text(record["question"])),
        ("tasks", _counts(record["tasks"])),
        ("runs", _counts(record["runs"])),
        ("steps", _counts(record["steps"])),
        ("spine", f"{count(spine['items'])} items, {count(spine['tokens'])} tokens, {count(spine['deltas'])} deltas"),
        ("window", _fullest(reading)),
        ("breaks", _breaks(state)),
        ("denied", f"{count(state.denials)} calls" if state.denials else ""),
        ("cached", ", ".join(f"{part.role} {share(part.cached_tokens, part.input_tokens)}" for part in shares)),
        ("cost", money(record["usage"]["cost_usd"])),
        ("time", seconds(settled.duration_seconds) if settled else UNKNOWN),
    ]
    lines = [f"{name:<10}{visible(value)}" for name, value in rows if value]
    return "\n".join([*lines, "", part_text(reading, "tasks"), "", part_text(reading, "rebases")])


def _breaks(state: SessionState) -> str:
    """Each with its cause and price."""
    declared = [
        f"{one.lineage} ended: {one.model} in place of {one.replaced} ({one.cause}), "
        f"{count(one.lost_tokens)} tokens lost, {money(one.price_usd)}"
        for one in state.replaced
    ]
    declared += [
        f"{one.lineage} ended: other tools, {count(one.lost_tokens)} tokens lost, {money(one.lost_usd)}"
        for one in state.retooled
    ]
    undeclared = [
        f"request {one.request} at {one.segment} ({one.declared or 'undeclared'}), "
        f"{count(one.lost_tokens)} tokens lost, {money(one.lost_usd)}"
        for one in state.breaks
    ]
    return "; ".join([count(len(undeclared) + len(declared)), *declared, *undeclared])


def _fullest(reading: Reading) -> str:
    """The highest level that each agent's requests reached, the fullest first."""
    highest: dict[str, Mapping[str, Any]] = {}
    for row in cast("Any", sorted(window_warnings(reading), key=lambda row: -cast("float", row["level"]))):
        highest.setdefault(row["agent"], row)
    told = [
        f"{agent} reached {row['level']:.0%} at request {count(row['request'])} "
        f"({count(row['tokens'])} of {count(row['usable_tokens'])} tokens)"
        for agent, row in highest.items()
    ]
    more = len(told) - NAMED_AGENTS
    return "; ".join([*told[:NAMED_AGENTS], *([f"{count(more)} more agents"] if more > 0 else [])])


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())


def document(reading: Reading, parts: Iterable[str]) -> dict[str, Json]:
    """The asked parts, or the overview and all parts, with the final record."""
    chosen = known_parts(parts)
    shown = {name: PARTS[name](reading) for name in chosen or PARTS}
    glance: dict[str, Json] = {} if chosen else {"overview": overview(reading, shown)}
    return {"session": reading.session, **glance, **shown, "final": final_of(reading)}
