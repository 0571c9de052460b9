"""Every request with its row of the ledger; what it held and what came of it is unfolded from the log on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from xnagent.inspect.page.markup import Markup, joined, shown, tag
from xnagent.inspect.page.pieces import chunked
from xnagent.inspect.page.scale import duration
from xnagent.inspect.page.story import Contents, Step, Story
from xnagent.inspect.page.usage import cached_bar
from xnagent.inspect.plain import count, line, money, seconds, share

Row = Mapping[str, Any]

TITLES: Final = (
    ("n", "n"),
    ("agent", "agent"),
    ("at", "at"),
    ("n", "input"),
    ("n cache", "cached"),
    ("n out", "output"),
    ("n", "cost"),
    ("n took", "time"),
    ("what", "finish"),
)


def request_list(requests: Sequence[Row], story: Story) -> Markup:
    """A line for each request, in groups."""
    begun = {step.request: step for steps in story.steps.values() for step in steps.values()}
    rows = [
        request_line(row, begun.get(row["request"]), contents=story.contents.get(row["request"], Contents()))
        for row in requests
    ]
    return request_table(rows)


def request_table(rows: Sequence[Markup]) -> Markup:
    """The lines of `request_line` under their titles."""
    head = tag(
        "div", *(tag("span", title, class_=kind) for kind, title in TITLES), class_="req head", aria_hidden="true"
    )
    return tag("div", head, chunked(rows), class_="ledger")


def request_line(row: Row, step: Step | None, *, contents: Contents) -> Markup:
    """One request, folded."""
    when = "" if step is None else duration(round(step.begun, 1))
    cached, whole = row["cached_tokens"], row["input_tokens"]
    number = int(row["request"])
    kinds = "req bad" if row["finish"] is None and row["fault"] else "req"
    return Markup(
        f'<details class="{kinds}" id="request-{number}" data-new="{_seqs(contents.new)}"'
        f' data-replies="{_seqs(contents.replies)}" data-results="{_seqs(contents.results)}"><summary>'
        f'<span class="n">{number}</span><span class="agent a-{_role(row)}">{shown(row["agent"])}</span>'
        f'<span class="at">{when}</span><span class="n">{count(whole)}</span>'
        f'<span class="n cache">{share(cached, whole)}{cached_bar(cached, whole)}</span>'
        f'<span class="n out">{count(row["output_tokens"])}</span><span class="n">{money(row["cost_usd"])}</span>'
        f'<span class="n took">{seconds(row["duration_seconds"])}</span><span class="what">{_what(row)}</span>'
        f"</summary></details>"
    )


def _role(row: Row) -> str:
    return "planner" if row["agent"] == "planner" else "worker"


def _seqs(places: Sequence[int]) -> str:
    return " ".join(map(str, places))


def _what(row: Row) -> Markup:
    """How it finished, and what was not as it should be."""
    notes = [tag("b", f"↻ {row['retries']}", class_="warn", title="tried again")] if row["retries"] else []
    if row["fault"]:
        notes.append(tag("b", line(str(row["fault"])), class_="bad"))
    if row["purpose"] != "step":
        notes.append(tag("b", row["purpose"], class_="warn"))
    if row["cache_miss"]:
        notes.append(tag("b", f"miss: {line(str(row['cache_miss']))}", class_="warn"))
    if row["warned_share"]:
        notes.append(tag("b", f"window {row['warned_share']:.0%}", class_="warn"))
    if row["replaced"]:
        notes.append(tag("b", f"in place of {line(str(row['replaced']['replaced']))}", class_="warn"))
    return joined([shown(row["finish"] or "no reply"), *(part for note in notes for part in (" ", note))])
