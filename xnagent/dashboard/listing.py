"""All sessions of the store as lines of a list, and how far each has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from xnagent.core.board import ACTIVE_RUN
from xnagent.core.limits import spent_usd
from xnagent.core.state import SessionState, steps_of
from xnagent.dashboard.tailing import Tail
from xnagent.inspect.page.markup import Markup, joined, tag
from xnagent.inspect.page.pieces import badge, quiet
from xnagent.inspect.plain import count, line, money
from xnagent.store.sessions import SessionRow, status_of

HEADLINE: Final = 140
SECOND: Final = len("2026-01-01T00:00:00")
BAR: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a session has come, as `inspect` counts it."""

    completed: int
    failed: int
    total: int
    """Tasks."""
    at_work: int
    """Runs."""
    planner_steps: int
    worker_steps: int
    cost_usd: float | None
    question: str | None
    updated: str


def progress_of(tail: Tail) -> Progress:
    """From the folded log."""
    state: SessionState = tail.state
    statuses = [task.status for task in state.board.tasks.values()]
    planner, worker = steps_of(state)
    is_open = state.settled is None and tail.is_live
    return Progress(
        completed=statuses.count("completed"),
        failed=statuses.count("failed"),
        total=len(statuses),
        at_work=sum(run.status in ACTIVE_RUN for run in state.board.runs.values()) if is_open else 0,
        planner_steps=planner,
        worker_steps=worker,
        cost_usd=spent_usd(state),
        question=state.finish.question if state.finish else None,
        updated=tail.updated,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A session in the list."""

    row: SessionRow
    progress: Progress | None
    """None: not counted (yet)."""

    @property
    def cost_usd(self) -> float | None:
        """Money spent."""
        return self.row.cost_usd if self.progress is None else self.progress.cost_usd

    def html(self) -> Markup:
        """Its line."""
        row, status = self.row, status_of(self.row)
        updated = max(row.updated, self.progress.updated if self.progress else "")
        title = line(row.objective or row.problem or "no objective", HEADLINE)
        asked = self.progress.question if self.progress else None
        link = tag("a", title, href=f"/sessions/{row.session}", class_="title")
        about = tag("code", row.session)
        return tag(
            "li",
            tag("span", badge(status), class_="state"),
            tag("div", link, about, *([tag("p", tag("b", "asks: "), line(asked, HEADLINE))] if asked else [])),
            tag("div", *_steps(self.progress), class_="progress"),
            tag("span", money(self.cost_usd), class_="n cost"),
            tag("time", updated[:SECOND].replace("T", " "), datetime=updated, class_="n"),
            id=row.session,
            class_="session",
            data_live=str(row.is_live).lower(),
        )


def _steps(progress: Progress | None) -> list[Markup]:
    if progress is None:
        return [tag("span", "", class_="quiet")]
    steps = progress.planner_steps + progress.worker_steps
    told = f"{count(steps)} {'step' if steps == 1 else 'steps'}"
    if progress.at_work:
        told += f", {count(progress.at_work)} at work"
    if not progress.total:
        return [tag("span", told, class_="quiet")]
    done = f"{count(progress.completed)}/{count(progress.total)} tasks"
    failed = f", {count(progress.failed)} failed" if progress.failed else ""
    return [_bar(progress), tag("span", done, failed), tag("span", told, class_="quiet")]


def _bar(progress: Progress) -> Markup:
    done, failed = (BAR * number / progress.total for number in (progress.completed, progress.failed))
    return tag(
        "svg",
        tag("rect", class_="ground", width=BAR, height=6),
        tag("rect", class_="done", width=f"{done:.1f}", height=6),
        tag("rect", class_="lost", x=f"{done:.1f}", width=f"{failed:.1f}", height=6),
        class_="thin",
        viewBox="0 0 100 6",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def totals(entries: Iterable[Entry]) -> Markup:
    """The list in a few numbers."""
    listed = list(entries)
    states = [status_of(entry.row) for entry in listed]
    costs = [entry.cost_usd for entry in listed]
    known = sum(cost for cost in costs if cost is not None)
    unknown = sum(cost is None for cost in costs)
    cards = [
        ("sessions", count(len(listed)), ""),
        ("running", count(states.count("running")), f"{count(states.count('interrupted'))} interrupted"),
        ("completed", count(states.count("completed")), f"{count(states.count('blocked'))} need an answer"),
        ("spent", money(known), f"{count(unknown)} without a known price" if unknown else ""),
    ]
    made = [
        tag("div", tag("dt", name), tag("dd", value), tag("dd", more, class_="quiet")) for name, value, more in cards
    ]
    return tag("dl", *made, class_="cards", id="totals")


def listed(lines: Mapping[str, Markup]) -> Markup:
    """All lines, or what is said where there are none."""
    none = quiet("no sessions yet; `xnagent run` or `xnagent demo` makes one, and it appears here")
    return joined([tag("ul", *lines.values(), id="sessions"), tag("div", none, id="none", hidden=bool(lines))])
