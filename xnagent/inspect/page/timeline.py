"""Two pictures over one axis of time: who worked when, and how long the Planner's spine was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xnagent.core.ids import PLANNER, RunId, agent_of
from xnagent.inspect.page.drawing import (
    GUTTER,
    PLOT,
    at,
    diamond,
    legend,
    line,
    mark,
    number,
    picture,
    rectangle,
    spans,
    words,
)
from xnagent.inspect.page.markup import Markup, joined, tag
from xnagent.inspect.page.scale import TimeScale, duration, round_up, time_scale
from xnagent.inspect.page.story import Step, Story
from xnagent.inspect.plain import count, money
from xnagent.inspect.plain import line as clipped

Rows = Sequence[Mapping[str, Any]]

TOP: Final = 12
LANE: Final = 24
BAR: Final = 14
AXIS: Final = 26
OWN_LANES: Final = 40
"""More runs than these share lanes, as far as they do not overlap."""
LINKED_STEPS: Final = 400
NAME: Final = 18
NAMED: Final = 34
"""Units of width of a bar that has room for a name."""
SPINE_HEIGHT: Final = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """A run on its lane."""

    run: RunId
    task: str
    status: str
    lane: int
    is_alone: bool
    """Its lane is its own: the name stands beside it."""
    begin: float
    """Seconds."""
    end: float


def timeline(story: Story, runs: Rows, *, rebases: Rows, deltas: Rows) -> Markup:
    """The Planner's steps above, the runs below, each as long as it took."""
    scale = time_scale(story.seconds)
    bars = _lanes(story, runs)
    lanes = max((bar.lane for bar in bars), default=-1) + 1
    height = TOP + LANE * (lanes + 1) + AXIS + 6
    drawn = [
        _grid(scale, height),
        *_planner(story, scale),
        *(tick for tick in _deltas(story, scale, deltas=deltas)),
        *(_rebase(row, scale.place(story.at(row["seq"])), y=TOP + LANE / 2) for row in _of_planner(rebases)),
        *(piece for bar in bars for piece in _bar(story, scale, bar=bar)),
    ]
    label = f"Time line: {len(story.steps_of(PLANNER))} Planner steps and {len(runs)} runs in {duration(story.length)}"
    keys = legend(
        [
            ("planner", "Planner's step"),
            ("delta", "baseline or delta"),
            ("rebase", "rebase"),
            ("s-completed", "run completed"),
            ("s-failed", "failed"),
            ("s-working", "at work"),
            ("step", "Worker's step"),
        ]
    )
    return joined([picture(*drawn, height=height, label=label), keys])


def _lanes(story: Story, runs: Rows) -> list[_Bar]:
    ends: list[float] = []
    bars: list[_Bar] = []
    for row in runs:
        course = story.courses.get(row["run"])
        if course is None:
            continue
        end = story.length if course.ended is None else course.ended
        free = next((n for n, busy in enumerate(ends) if busy <= course.queued), len(ends))
        lane = len(bars) if len(runs) <= OWN_LANES else free
        ends[lane : lane + 1] = [end]
        bar = _Bar(
            run=row["run"],
            task=row["task"],
            status=row["status"],
            lane=lane,
            is_alone=len(runs) <= OWN_LANES,
            begin=course.queued,
            end=end,
        )
        bars.append(bar)
    return bars


def _grid(scale: TimeScale, height: float) -> Markup:
    bottom = height - AXIS
    ticks = [
        part
        for seconds in scale.ticks()
        for x in [at(scale.place(seconds))]
        for part in (
            line((x, TOP - 4), (x, bottom), kind="grid"),
            words(x, bottom + 16, text=duration(seconds), kind="tick"),
        )
    ]
    cuts = [
        rectangle(
            at(scale.place(begin)),
            TOP - 4,
            size=(at(scale.place(end)) - at(scale.place(begin)), bottom - TOP + 4),
            kind="cut",
            about=f"nothing happened for {duration(end - begin)}",
        )
        for begin, end in scale.cuts
    ]
    return joined([*cuts, *ticks])


def _planner(story: Story, scale: TimeScale) -> list[Markup]:
    steps, top = story.steps_of(PLANNER), TOP + (LANE - BAR) / 2
    name = words(GUTTER - 10, TOP + LANE / 2 + 4, text="Planner", kind="name strong")
    if len(steps) > LINKED_STEPS:
        return [name, spans(_pieces(steps, story, scale=scale), top, height=BAR, kind="planner")]
    return [name, *(_linked(step, story, scale=scale) for step in steps)]


def _linked(step: Step, story: Story, *, scale: TimeScale) -> Markup:
    ((begin, end),) = _pieces([step], story, scale=scale)
    about = f"request {step.request}: from {duration(round(step.begun, 1))}, {_took(step)}"
    drawn = rectangle(begin, TOP + (LANE - BAR) / 2, size=(max(end - begin, 2.0), BAR), kind="planner", about=about)
    return tag("a", drawn, href=f"#request-{step.request}", aria_label=f"request {step.request}")


def _took(step: Step) -> str:
    return "no reply yet" if step.ended is None else f"{duration(round(step.ended - step.begun, 1))} long"


def _pieces(steps: Sequence[Step], story: Story, *, scale: TimeScale) -> list[tuple[float, float]]:
    ends = [(step.begun, story.length if step.ended is None else step.ended) for step in steps]
    return [(at(scale.place(begin)), at(scale.place(end))) for begin, end in ends]


def _deltas(story: Story, scale: TimeScale, *, deltas: Rows) -> list[Markup]:
    places = [at(scale.place(story.at(row["seq"]))) for row in deltas]
    return [spans([(x - 0.6, x + 0.6) for x in places], TOP + LANE - 4, height=4, kind="delta")]


def _of_planner(rows: Rows) -> Rows:
    return [row for row in rows if row["agent"] == PLANNER]


def rebase_text(row: Mapping[str, Any]) -> str:
    """A rebase, a refusal or a model's replacement in one line."""
    change = f"{count(row['tokens_before'])} → {count(row['tokens_after'])} tokens"
    if str(row["cause"]).startswith(("model:", "summary:")):
        return f"{row['cause']}: {clipped(str(row['detail']))}"
    if row["is_refused"]:
        return f"rebase refused ({row['cause']}): {change}; {clipped(str(row['detail']))}"
    return f"rebase ({row['cause']}): {change}, {money(row['price_usd'])}"


def _rebase(row: Mapping[str, Any], share: float, *, y: float) -> Markup:
    return diamond(at(share), y, kind="refused" if row["is_refused"] else "rebase", about=rebase_text(row))


def _bar(story: Story, scale: TimeScale, *, bar: _Bar) -> list[Markup]:
    course = story.courses[bar.run]
    y = TOP + LANE * (bar.lane + 1)
    middle, top = y + LANE / 2, y + (LANE - BAR) / 2
    left, right = at(scale.place(bar.begin)), at(scale.place(bar.end))
    begin = right if course.launched is None else at(scale.place(course.launched))
    about = f"{bar.run} ({bar.task}): {bar.status}, {duration(round(bar.end - bar.begin, 1))}"
    steps = _pieces(story.steps_of(agent_of(bar.run)), story, scale=scale)
    size = (max(right - begin, 2.0), float(BAR))
    name = clipped(f"{mark(bar.status)} {bar.run} {bar.task}", NAME)
    return [
        *([words(GUTTER - 10, middle + 4, text=name, kind="name")] if bar.is_alone else []),
        line((left, middle), (begin, middle), kind="queued", about=f"{bar.run} waits"),
        tag(
            "a",
            rectangle(begin, top, size=size, kind=f"run s-{bar.status}", about=about),
            href=f"#run-{bar.run}",
            aria_label=about,
        ),
        spans(steps, top + BAR / 2 - 2, height=4, kind="step"),
        *([] if bar.is_alone or right - begin < NAMED else [words(begin + 5, middle + 4, text=bar.run, kind="inside")]),
        *(_check(at(scale.place(when)), middle, passed=passed) for when, passed in course.checks),
    ]


def _check(x: float, y: float, *, passed: bool) -> Markup:
    about = "a check passed" if passed else "a check failed"
    kind = f"check {'s-completed' if passed else 's-failed'}"
    return tag("circle", tag("title", about), cx=number(x), cy=number(y), r=3.5, class_=kind)


def spine_picture(story: Story, requests: Rows, *, rebases: Rows, deltas: Rows) -> Markup:
    """The Planner's estimate of each request, what each rebase took away, and where deltas came."""
    scale = time_scale(story.seconds)
    steps = {step.request: step.begun for step in story.steps_of(PLANNER)}
    points = [
        (steps[row["request"]], row["request"], float(row["estimate_tokens"]))
        for row in requests
        if row["agent"] == PLANNER and row["request"] in steps
    ]
    own = _of_planner(rebases)
    top = round_up(max([tokens for *_, tokens in points] + [float(row["tokens_before"]) for row in own] + [1.0]))
    height = TOP + SPINE_HEIGHT + AXIS + 6

    def y(tokens: float) -> float:
        return TOP + SPINE_HEIGHT * (1 - tokens / top)

    drawn = [
        _grid(scale, height),
        *(piece for share in (0.5, 1.0) for piece in _level(top * share, y(top * share))),
        words(GUTTER - 10, TOP + SPINE_HEIGHT, text="0", kind="name"),
        *_curve([(at(scale.place(when)), y(tokens)) for when, _, tokens in points], floor=y(0)),
        *(
            _drop(row, at(scale.place(story.at(row["seq"]))), y=(y(row["tokens_before"]), y(row["tokens_after"])))
            for row in own
        ),
        spans(
            [(x - 0.6, x + 0.6) for row in deltas for x in [at(scale.place(story.at(row["seq"])))]],
            TOP + SPINE_HEIGHT - 5,
            height=5,
            kind="delta",
        ),
    ]
    told = sum(not row["is_refused"] for row in own)
    label = f"Length of the Planner's spine over time: {len(points)} requests, {len(deltas)} deltas, {told} rebases"
    keys = legend([("curve", "tokens of each request"), ("delta", "baseline or delta"), ("rebase", "rebase")])
    return joined([picture(*drawn, height=height, label=label), keys])


def _level(tokens: float, y: float) -> list[Markup]:
    return [
        line((GUTTER, y), (GUTTER + PLOT, y), kind="grid"),
        words(GUTTER - 10, y + 4, text=count(round(tokens)), kind="name"),
    ]


def _curve(points: Sequence[tuple[float, float]], *, floor: float) -> list[Markup]:
    if not points:
        return []
    first, last = points[0], points[-1]
    path = "".join(f"H{number(x)}V{number(y)}" for x, y in points[1:])
    start = f"M{number(first[0])} {number(first[1])}"
    area = f"{start}{path}V{number(floor)}H{number(first[0])}z"
    dot = tag("circle", cx=number(last[0]), cy=number(last[1]), r=3, class_="curve-end")
    return [tag("path", d=area, class_="area"), tag("path", d=start + path, class_="curve"), dot]


def _drop(row: Mapping[str, Any], x: float, *, y: tuple[float, float]) -> Markup:
    kind = "refused" if row["is_refused"] else "rebase"
    return joined(
        [line((x, y[0]), (x, y[1]), kind=f"drop {kind}"), diamond(x, y[0], kind=kind, about=rebase_text(row))]
    )
