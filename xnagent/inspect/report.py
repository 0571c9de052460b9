"""What `xnagent inspect` prints: an overview, the parts as tables, or all of it as one JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, cast

from xnagent.core.evolve import evolve
from xnagent.core.hook_events import HookRan
from xnagent.core.masking import Mask
from xnagent.core.record import final_record
from xnagent.core.state import SessionState
from xnagent.core.text import Json, canonical
from xnagent.inspect.blocks import Block, Heading, Lines, Pairs, Table, plain
from xnagent.inspect.columns import COLUMNS, COSTS, TEXT_WIDTH, table_of, text
from xnagent.inspect.filters import Found, Wanted, find_events
from xnagent.inspect.foreseen import outcome_line
from xnagent.inspect.parts import OF_LEDGER, PARTS, Rows, known_parts, window_warnings
from xnagent.inspect.plain import UNKNOWN, count, line, money, seconds, share
from xnagent.inspect.reading import Reading, final_of, ledger_of, status_of
from xnagent.inspect.requests import shares_of
from xnagent.inspect.trees import delta_tree, fact_tree, run_tree

ENVELOPE: Final = frozenset({"type", "session", "seq", "at"})
NAMED_AGENTS: Final = 3
GLANCED: Final = ("cost", "rebases")
"""The parts that the overview tells of."""
NO_MASK: Final = Mask()
ANY_EVENT: Final = Wanted()


def part_text(reading: Reading, part: str) -> str:
    """One part as plain text under its title."""
    return plain(part_blocks(reading, part))


def part_blocks(reading: Reading, part: str, *, mask: Mask = NO_MASK, wanted: Wanted = ANY_EVENT) -> Sequence[Block]:
    """One part for people; secrets are masked before anything is cut or broken into lines."""
    if part == "events":
        return [_events_table(find_events(reading, wanted), mask)]
    rows = cast("Any", mask.value(PARTS[part](reading)))
    match part:
        case "cost":
            return _cost_blocks(rows, outcome_line(reading.state))
        case "runs":
            return [_table(part, rows), run_tree(rows, cast("Any", mask.value(PARTS["tasks"](reading))))]
        case "deltas":
            return [_table(part, rows), delta_tree(rows)]
        case "facts":
            return [_table(part, rows), fact_tree(rows)]
        case _:
            return [_table(part, rows)]


def _table(part: str, rows: Rows) -> Table:
    return table_of(f"{part} ({len(rows)})", COLUMNS[part], rows=rows)


def _events_table(found: Found, mask: Mask) -> Table:
    rows = cast("Any", mask.value(found.rows))
    told = [(count(row["seq"]), str(row["at"]), str(row["type"]), _rest(row)) for row in rows]
    number = f"{len(told):,}" if len(told) == found.whole else f"{len(told):,} of {found.whole:,}"
    cut = f"; {found.matching:,} match" if found.matching > len(told) else ""
    headings = [Heading(title=title, rank=rank) for title, rank in (("seq", 0), ("at", 2), ("type", 0), ("what", 1))]
    return Table(title=f"events ({number}{cut})", headings=headings, rows=told)


def _rest(record: Mapping[str, Json]) -> str:
    return line(canonical({key: value for key, value in record.items() if key not in ENVELOPE}), TEXT_WIDTH)


def _cost_blocks(data: Mapping[str, Any], outcome: str) -> Sequence[Block]:
    by_role, by_model, by_task = (
        table_of(title, COSTS[of], rows=[{"name": name, **part} for name, part in data[f"by_{of}"].items()])
        for of, title in (("role", "cost"), ("model", ""), ("task", ""))
    )
    told = "\n".join([f"total {money(data['total_usd'])}{_partial(data)}", outcome]).rstrip()
    more = [table for table, least in ((by_model, 2), (by_task, 1)) if len(table.rows) >= least]
    return [by_role, Lines(text=told), *more]


def _partial(data: Mapping[str, Any]) -> str:
    unpriced = data["unpriced_requests"]
    return f": {money(data['known_usd'])} and {count(unpriced)} requests of unknown price" if unpriced else ""


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
    """The session at a glance, as plain text."""
    return plain(overview_blocks(reading))


def overview_blocks(reading: Reading, *, mask: Mask = NO_MASK) -> Sequence[Block]:
    """The session at a glance, for people."""
    state, record = reading.state, cast("dict[str, Any]", final_record(reading.state))
    settled = state.settled
    status = status_of(reading) + (f" (exit code {settled.exit_code})" if settled else "")
    spine, shares = record["spine"], shares_of(reading.events)
    rows = [
        ("session", str(reading.session)),
        ("status", status),
        ("objective", line(state.started.objective, TEXT_WIDTH) if state.started else ""),
        ("summary", line(str(record["summary"]), TEXT_WIDTH)),
        ("error", line(settled.error or "", TEXT_WIDTH) if settled else ""),
        ("question", text(record["question"])),
        ("tasks", _counts(record["tasks"])),
        ("runs", _counts(record["runs"])),
        ("steps", _counts(record["steps"])),
        ("spine", f"{count(spine['items'])} items, {count(spine['tokens'])} tokens, {count(spine['deltas'])} deltas"),
        ("window", _fullest(reading)),
        ("breaks", _breaks(state)),
        ("denied", f"{count(state.denials)} calls" if state.denials else ""),
        ("hooks", _hooks(reading)),
        ("cached", ", ".join(f"{part.role} {share(part.cached_tokens, part.input_tokens)}" for part in shares)),
        ("cost", money(record["usage"]["cost_usd"])),
        ("time", seconds(settled.duration_seconds) if settled else UNKNOWN),
    ]
    told = [(name, mask.text(value)) for name, value in rows]
    return [Pairs(rows=told), *part_blocks(reading, "tasks", mask=mask), *part_blocks(reading, "rebases", mask=mask)]


def _hooks(reading: Reading) -> str:
    """How many of the user's commands ran, and what came of them; empty: none."""
    verdicts = Counter(one.event.verdict for one in reading.events if isinstance(one.event, HookRan))
    bad = [f"{count(verdicts[name])} {name}" for name in ("denied", "failed") if verdicts[name]]
    return ", ".join([f"{count(verdicts.total())} run", *bad]) if verdicts else ""


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


def document(reading: Reading, parts: Iterable[str], *, wanted: Wanted = ANY_EVENT) -> dict[str, Json]:
    """The asked parts, or the overview and all parts, with the final record."""
    chosen = known_parts(parts)
    if len(OF_LEDGER.intersection(chosen or PARTS)) > 1:
        reading = evolve(reading, ledger=ledger_of(reading))
    shown = {name: PARTS[name](reading) for name in chosen or PARTS}
    if wanted != ANY_EVENT:
        shown["events"] = find_events(reading, wanted).rows
    glance: dict[str, Json] = {} if chosen else {"overview": overview(reading, shown)}
    return {"session": reading.session, **glance, **shown, "final": final_of(reading)}
