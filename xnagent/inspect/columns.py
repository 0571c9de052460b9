"""The columns of the parts that are tables, and how their values are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xnagent.inspect.blocks import Heading, Table
from xnagent.inspect.plain import UNKNOWN, count, line, money, seconds

TEXT_WIDTH: Final = 80


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a part's table."""

    title: str
    key: str
    show: Callable[[Any], str] = str
    rank: int = 0
    """Where there is no room for all, those of the highest rank are left out first."""


def text(value: object) -> str:
    """On one line; nothing for nothing."""
    return "" if value is None else line(str(value), TEXT_WIDTH)


def listed(value: Sequence[object]) -> str:
    """All of them on one line."""
    return line(", ".join(map(str, value)), TEXT_WIDTH)


def counted(value: Sequence[object]) -> str:
    """How many there are; nothing for none."""
    return count(len(value)) if value else ""


def share_of(value: float | None) -> str:
    """A share as a percentage."""
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def off_by(value: float | None) -> str:
    """By what share something was missed."""
    return UNKNOWN if value is None else f"{value:+.0%}"


def _break_even(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _level(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _replaced(value: Mapping[str, Any] | None) -> str:
    return "" if value is None else line(f"{value['replaced']} ({value['cause']}), {money(value['price_usd'])}")


def _checks(value: Sequence[Mapping[str, object]]) -> str:
    return f"{sum(bool(check['has_passed']) for check in value)}/{len(value)}" if value else "-"


COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "spine": (
        Column("item", "item", count),
        Column("kind", "kind", str, 2),
        Column("from", "from", text, 3),
        Column("tokens", "tokens", count),
        Column("cache", "cache"),
        Column("what", "what", text),
        Column("text", "text", text, 1),
    ),
    "deltas": (
        Column("seq", "seq", count),
        Column("at", "at", str, 2),
        Column("kind", "kind"),
        Column("up to cause", "cursor", count, 1),
        Column("tokens", "tokens", count),
        Column("causes", "causes", counted),
        Column("operations", "patch", counted),
        Column("text", "text", text, 1),
    ),
    "rebases": (
        Column("seq", "seq", count),
        Column("agent", "agent"),
        Column("cause", "cause"),
        Column("before", "tokens_before", count),
        Column("after", "tokens_after", count),
        Column("items dropped", "items_dropped", count, 3),
        Column("checkpoint", "checkpoint_tokens", count, 3),
        Column("tickets", "ticketed", counted, 4),
        Column("price", "price_usd", money),
        Column("saves a request", "saved_usd", money, 2),
        Column("pays after steps", "break_even_steps", _break_even, 2),
        Column("where to read it, or why", "detail", text, 1),
    ),
    "requests": (
        Column("n", "request", count),
        Column("agent", "agent"),
        Column("for", "purpose", str, 6),
        Column("model", "model", text, 4),
        Column("gen", "generation", count, 5),
        Column("items", "items", count, 5),
        Column("estimate", "estimate_tokens", count, 3),
        Column("of window", "window_share", share_of, 4),
        Column("warned at", "warned_share", _level, 6),
        Column("predicted cached", "predicted_cached_tokens", count),
        Column("input", "input_tokens", count),
        Column("off by", "estimate_error_share", off_by, 5),
        Column("cached", "cached_tokens", count),
        Column("written", "cache_write_tokens", count, 4),
        Column("for long", "cache_write_long_tokens", count, 6),
        Column("miss", "cache_miss", text, 1),
        Column("output", "output_tokens", count, 2),
        Column("cost", "cost_usd", money),
        Column("time", "duration_seconds", seconds, 3),
        Column("finish", "finish", text, 4),
        Column("retries", "retries", count, 5),
        Column("fault", "fault", text, 2),
        Column("in place of", "replaced", _replaced, 5),
    ),
    "runs": (
        Column("run", "run"),
        Column("task", "task", text),
        Column("status", "status"),
        Column("steps", "steps", count),
        Column("checks", "checks", _checks),
        Column("cost", "cost_usd", money),
        Column("forecast", "likely_usd", money, 3),
        Column("off by", "error_share", off_by, 3),
        Column("changed", "changed_files", listed, 2),
        Column("reason", "reason", text, 1),
        Column("summary", "summary", text, 1),
    ),
    "tasks": (
        Column("task", "task", text),
        Column("status", "status"),
        Column("runs", "runs", listed),
        Column("after", "depends_on", listed, 2),
        Column("checks", "checks", listed, 2),
        Column("title", "title", text),
    ),
    "facts": (
        Column("fact", "fact"),
        Column("rev", "revision", count),
        Column("source", "source", text),
        Column("pinned", "is_pinned", lambda value: "yes" if value else "", 2),
        Column("value", "value", text),
        Column("text", "text", text),
        Column("retracted", "retracted", text, 1),
    ),
}


def table_of(title: str, columns: Sequence[Column], *, rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows as a table."""
    return Table(
        title=title,
        headings=[Heading(title=column.title, rank=column.rank) for column in columns],
        rows=[[column.show(row[column.key]) for column in columns] for row in rows],
    )


USED: Final = (
    Column("requests", "requests", count),
    Column("input", "input_tokens", count),
    Column("cached", "cached_tokens", count),
)
WRITTEN: Final = (
    Column("written", "cache_write_tokens", count, 2),
    Column("for long", "cache_write_long_tokens", count, 3),
)
PRICED: Final = (
    Column("output", "output_tokens", count),
    Column("reasoning", "reasoning_tokens", count, 2),
    Column("cost", "cost_usd", money),
)
COSTS: Final[Mapping[str, Sequence[Column]]] = {
    "role": (
        Column("role", "name", text),
        *USED,
        Column("cached share", "cached_share", share_of),
        *WRITTEN,
        *PRICED,
    ),
    "model": (Column("model", "name", text), *USED, *PRICED),
    "task": (Column("task", "name", text), Column("runs", "runs", listed), *USED, *PRICED),
}
"""By what the sums are of."""
