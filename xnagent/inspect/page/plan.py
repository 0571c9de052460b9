"""The plan as a graph: tasks in columns by what they wait for, each with its state and its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from xnagent.inspect.page.drawing import legend, mark, number, picture, rectangle, words
from xnagent.inspect.page.markup import Markup, joined, tag
from xnagent.inspect.plain import line as clipped

Rows = Sequence[Mapping[str, Any]]

NODE: Final = (196.0, 66.0)
GAP: Final = (52.0, 14.0)
EDGE: Final = 8.0
TITLE: Final = 26
NAME: Final = 22
SHOWN_RUNS: Final = 5


def plan_picture(tasks: Rows, runs: Rows) -> Markup:
    """All tasks; arrows lead from a task to those that wait for it."""
    places = _places(tasks)
    if not places:
        return tag("p", "no tasks were planned", class_="quiet")
    statuses = {row["run"]: row["status"] for row in runs}
    edges = [
        _edge(places[name], places[row["task"]])
        for row in tasks
        for name in row["depends_on"]
        if name in places and name != row["task"]
    ]
    nodes = [_node(row, places[row["task"]], statuses=statuses) for row in tasks]
    width = max(x for x, _ in places.values()) + NODE[0] + EDGE
    height = max(y for _, y in places.values()) + NODE[1] + EDGE
    done = sum(row["status"] == "completed" for row in tasks)
    label = f"The plan: {len(tasks)} tasks, {done} completed"
    kinds = list(dict.fromkeys(row["status"] for row in tasks))
    keys = legend([(f"s-{kind}", f"{mark(kind)} {kind}") for kind in kinds])
    return joined([picture(*edges, *nodes, height=height, width=width, label=label), keys])


def _places(tasks: Rows) -> dict[str, tuple[float, float]]:
    depths = _depths(tasks)
    used: dict[int, int] = {}
    places = {}
    for row in tasks:
        column = depths[row["task"]]
        place = used.get(column, 0)
        used[column] = place + 1
        places[row["task"]] = (EDGE + column * (NODE[0] + GAP[0]), EDGE + place * (NODE[1] + GAP[1]))
    return places


def _depths(tasks: Rows) -> dict[str, int]:
    """How many tasks must come before each; a circle, which no plan should have, ends the count."""
    depths = {row["task"]: 0 for row in tasks}
    for _ in tasks:
        before = dict(depths)
        for row in tasks:
            ahead = [before[name] + 1 for name in row["depends_on"] if name in before and name != row["task"]]
            depths[row["task"]] = min(max(ahead, default=0), len(tasks) - 1)
        if depths == before:
            break
    return depths


def _edge(start: tuple[float, float], end: tuple[float, float]) -> Markup:
    x1, y1 = start[0] + NODE[0], start[1] + NODE[1] / 2
    x2, y2 = end[0] - 2, end[1] + NODE[1] / 2
    bend = max((x2 - x1) / 2, GAP[0] / 2)
    points = (x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2)
    a, b, c, d, e, f, g, h = map(number, points)
    return tag("path", d=f"M{a} {b}C{c} {d} {e} {f} {g} {h}m-6-4l6 4l-6 4", class_="edge")


def _node(row: Mapping[str, Any], place: tuple[float, float], *, statuses: Mapping[str, str]) -> Markup:
    x, y = place
    status = row["status"]
    names = [f"{run} {mark(statuses.get(run, ''))}" for run in row["runs"][-SHOWN_RUNS:]]
    more = "… " if len(row["runs"]) > SHOWN_RUNS else ""
    about = f"{row['task']}: {status}\n{row['title']}\n\n{row['objective']}"
    return tag(
        "g",
        tag("title", about),
        rectangle(x, y, size=NODE, kind=f"node s-{status}"),
        rectangle(x, y, size=(4, NODE[1]), kind=f"edge-mark s-{status}"),
        words(x + 14, y + 20, text=clipped(f"{mark(status)} {row['task']}", NAME), kind="node-name"),
        words(x + 14, y + 38, text=clipped(row["title"], TITLE), kind="node-title"),
        words(x + 14, y + 56, text=f"{more}{'  '.join(names) or 'no run yet'}", kind="node-runs"),
    )
