"""Pictures and tables of tokens and money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xnagent.core.ids import PLANNER
from xnagent.inspect.page.drawing import GUTTER, PLOT, legend, line, number, picture, rectangle, words
from xnagent.inspect.page.markup import Markup, joined, tag
from xnagent.inspect.page.scale import round_up
from xnagent.inspect.plain import UNKNOWN, count, money

Rows = Sequence[Mapping[str, Any]]

MOST_BARS: Final = 240
TOP: Final = 14
HEIGHT: Final = 170
AXIS: Final = 30
WIDEST: Final = 26.0
THIN: Final = 4.0
"""Bars that are not wider stand close."""
TICKS: Final = 10
ROLE_TITLES: Final = ("requests", "input", "cached", "cached share", "written", "output", "reasoning", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bin:
    """Requests that share a bar, usually one."""

    rows: Rows

    def total(self, name: str) -> int:
        """The sum over those that tell it."""
        return sum(row[name] or 0 for row in self.rows)

    @property
    def parts(self) -> tuple[int, int, int]:
        """Cached, fresh, and input of which the provider does not say how much was cached."""
        told = [row for row in self.rows if row["cached_tokens"] is not None]
        cached = sum(row["cached_tokens"] for row in told)
        fresh = sum((row["input_tokens"] or 0) - row["cached_tokens"] for row in told)
        return cached, max(fresh, 0), self.total("input_tokens") - cached - max(fresh, 0)

    @property
    def about(self) -> str:
        """For those who point at it."""
        first, last = self.rows[0], self.rows[-1]
        name = f"request {first['request']} ({first['agent']})"
        if first is not last:
            name = f"requests {first['request']} to {last['request']}"
        cached, fresh, unknown = self.parts
        unsaid = f", {count(unknown)} unreported" if unknown else ""
        output = count(self.total("output_tokens"))
        return f"{name}: {count(cached)} cached, {count(fresh)} fresh{unsaid}; {output} out"


def token_picture(requests: Rows) -> Markup:
    """A bar for each request: what came from the cache below, what was fresh above."""
    size = max(1, -(-len(requests) // MOST_BARS))
    bins = [_Bin(rows=requests[n : n + size]) for n in range(0, len(requests), size)]
    top = round_up(max((sum(each.parts) for each in bins), default=0))
    pitch = min(WIDEST, PLOT / max(len(bins), 1))
    height = TOP + HEIGHT + AXIS
    drawn = [
        *(piece for share in (0.5, 1.0) for piece in _level(top, share)),
        words(GUTTER - 10, TOP + HEIGHT, text="0", kind="name"),
        *(piece for n, each in enumerate(bins) for piece in _bar(each, GUTTER + n * pitch, pitch=pitch, top=top)),
        *_numbers(bins, pitch),
        *_generations(bins, pitch),
    ]
    each = "each bar is one request" if size == 1 else f"each bar is {size} requests"
    label = f"Cached and fresh input tokens of {len(requests)} requests; {each}"
    keys = [
        ("cached", "from the cache"),
        ("fresh", "fresh"),
        ("unsaid", "not reported"),
        ("planner", "Planner's request"),
    ]
    return joined([picture(*drawn, height=height, label=label), legend([*keys, ("rebase", f"after a rebase; {each}")])])


def _level(top: float, share: float) -> list[Markup]:
    y = TOP + HEIGHT * (1 - share)
    return [
        line((GUTTER, y), (GUTTER + PLOT, y), kind="grid"),
        words(GUTTER - 10, y + 4, text=count(round(top * share)), kind="name"),
    ]


def _bar(each: _Bin, x: float, *, pitch: float, top: float) -> list[Markup]:
    width, floor = max(pitch - (1.5 if pitch > THIN else 0.3), 0.6), float(TOP + HEIGHT)
    pieces = []
    for kind, tokens in zip(("cached", "fresh", "unsaid"), each.parts, strict=True):
        size = HEIGHT * tokens / top
        floor -= size
        if tokens:
            pieces.append(rectangle(x, floor, size=(width, size), kind=kind))
    if any(row["agent"] == PLANNER for row in each.rows):
        pieces.append(rectangle(x, TOP + HEIGHT + 3, size=(width, 3), kind="planner"))
    whole = rectangle(x, TOP, size=(width, HEIGHT), kind="hit", about=each.about)
    return [*pieces, tag("a", whole, href=f"#request-{each.rows[0]['request']}", tabindex=-1)]


def _numbers(bins: Sequence[_Bin], pitch: float) -> list[Markup]:
    step = max(1, round(round_up(len(bins) / TICKS)))
    return [
        words(GUTTER + (n + 0.5) * pitch, TOP + HEIGHT + 22, text=bins[n].rows[0]["request"], kind="tick")
        for n in range(0, len(bins), step)
    ]


def _generations(bins: Sequence[_Bin], pitch: float) -> list[Markup]:
    lines, known = [], 0
    for n, each in enumerate(bins):
        newest = max((row["generation"] for row in each.rows if row["agent"] == PLANNER), default=known)
        if newest > known:
            x = GUTTER + n * pitch - 0.7
            lines.append(line((x, TOP - 6), (x, TOP + HEIGHT), kind="drop rebase", about="after a rebase"))
        known = max(known, newest)
    return lines


def cost_section(cost: Mapping[str, Any]) -> Markup:
    """What each role and each model used and cost."""
    by_role, by_model = cost["by_role"], cost["by_model"]
    tables = [_table("role", by_role)]
    if by_model:
        tables.append(_table("model", by_model))
    return joined(
        [_shares(by_role), *tables, tag("p", "total ", tag("strong", money(cost["total_usd"])), class_="total")]
    )


def _shares(by_role: Mapping[str, Any]) -> Markup:
    costs = {role: part["cost_usd"] for role, part in by_role.items()}
    is_priced = all(value is not None for value in costs.values()) and any(costs.values())
    weights = costs if is_priced else {role: _tokens(part) for role, part in by_role.items()}
    whole = sum(weights.values())
    if not whole:
        return tag("p", "nothing was used yet", class_="quiet")
    x, drawn = 0.0, []
    for role, weight in weights.items():
        width = 1000 * weight / whole
        told = money(weight) if is_priced else f"{count(weight)} tokens"
        about = f"{role}: {told}, {weight / whole:.0%}"
        drawn.append(rectangle(x, 0, size=(width, 26), kind=role, about=about))
        x += width
    unit = "Cost" if is_priced else "Tokens (no price is known)"
    label = f"{unit} by role: " + ", ".join(f"{role} {weight / whole:.0%}" for role, weight in weights.items())
    bar = tag(
        "svg",
        tag("title", label),
        *drawn,
        viewBox="0 0 1000 26",
        preserveAspectRatio="none",
        role="img",
        class_="share",
    )
    entries = [(role, f"{role} {weight / whole:.0%}") for role, weight in weights.items()]
    return joined(
        [bar, legend(entries), tag("p", "" if is_priced else "no price is known: shares of tokens", class_="quiet")]
    )


def _tokens(part: Mapping[str, Any]) -> int:
    return (part["input_tokens"] or 0) + (part["output_tokens"] or 0)


def _table(title: str, parts: Mapping[str, Any]) -> Markup:
    head = tag("tr", tag("th", title, scope="col"), *(tag("th", name, scope="col", class_="n") for name in ROLE_TITLES))
    rows = [tag("tr", tag("th", name, scope="row"), *map(_cell, _cells(part))) for name, part in parts.items()]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll", tabindex=0)


def _cell(text: str) -> Markup:
    return tag("td", text, class_="n")


def _cells(part: Mapping[str, Any]) -> list[str]:
    share = part.get("cached_share")
    if "cached_share" not in part and part["cached_tokens"] is not None and part["input_tokens"]:
        share = part["cached_tokens"] / part["input_tokens"]
    return [
        count(part["requests"]),
        count(part["input_tokens"]),
        count(part["cached_tokens"]),
        UNKNOWN if share is None else f"{100 * share:.1f} %",
        count(part["cache_write_tokens"]),
        count(part["output_tokens"]),
        count(part["reasoning_tokens"]),
        money(part["cost_usd"]),
    ]


def cached_bar(cached: int | None, whole: int | None) -> Markup:
    """The share of one request's input that came from the cache, as a small bar."""
    if cached is None or not whole:
        return Markup("")
    width = number(100 * min(cached / whole, 1.0))
    return Markup(
        f'<svg class="thin" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="fresh" width="100" height="6"/><rect class="cached" width="{width}" height="6"/></svg>'
    )
