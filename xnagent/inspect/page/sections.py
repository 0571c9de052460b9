"""The sections that are text: what the session was, its runs, facts, checks, spine and log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from xnagent.inspect.page.changes import patch_section
from xnagent.inspect.page.markup import Markup, joined, tag
from xnagent.inspect.page.pieces import badge, block, chunked, fields, fold, listed, quiet
from xnagent.inspect.page.scale import duration
from xnagent.inspect.page.story import Story
from xnagent.inspect.page.timeline import rebase_text
from xnagent.inspect.plain import count, line, money, seconds
from xnagent.inspect.plain import share as share_text

Row = Mapping[str, Any]
Rows = Sequence[Row]

SHOWN: Final = 160
"""Characters of a text in its folded line."""
HEADING: Final = 140
"""Characters of the objective's first line that are its heading."""
LONG_OBJECTIVE: Final = 900
SECOND: Final = len("2026-01-01T00:00:00")


def glance(shown: Row, story: Story) -> Markup:
    """The session in a few words and numbers."""
    overview, final = shown["overview"], shown["final"]
    code = "" if final["exit_code"] is None else f"exit code {final['exit_code']}"
    verified = {True: "verified by its checks", False: "not verified", None: ""}[final["verified"]]
    told = " · ".join(part for part in (code, verified) if part)
    length = final["duration_seconds"] or round(story.length, 1)
    facts = [
        ("session", tag("code", overview["session"])),
        ("began", str(overview["begun"] or "")[:SECOND].replace("T", " ") + " UTC"),
        ("took", duration(round(length, 1))),
        ("repository", tag("code", overview["repository"]) if overview["repository"] else ""),
        ("branch", tag("code", final["workspace"]["branch"]) if final["workspace"]["branch"] else ""),
        ("result", _result(final)),
    ]
    return tag(
        "header",
        tag("p", badge(overview["status"]), " ", tag("span", told, class_="quiet"), class_="status"),
        *_objective(str(overview["objective"])),
        *_endings(final),
        fields(facts),
        _cards(shown),
        class_="glance",
        id="overview",
    )


def _objective(objective: str) -> list[Markup]:
    """Its first line as the heading, the rest below; a long rest is folded."""
    first, _, rest = objective.strip().partition("\n")
    if len(first) > HEADING:
        first, rest = first[:HEADING] + "…", objective
    heading = tag("h1", first or "no objective")
    if not rest.strip():
        return [heading]
    if len(rest) > LONG_OBJECTIVE:
        return [heading, fold("the whole objective", block(objective))]
    return [heading, tag("p", rest.strip(), class_="objective")]


def _result(final: Row) -> str:
    workspace = final["workspace"]
    if not workspace["changed_files"]:
        return "no changes" if final["exit_code"] is not None else ""
    where = "applied to the checkout" if workspace["applied"] else "not applied"
    number = len(workspace["changed_files"])
    return f"{count(number)} {'file' if number == 1 else 'files'} changed, {where}"


def _endings(final: Row) -> list[Markup]:
    error = final["error"]
    told = [
        ("summary", final["summary"]),
        ("question", final["question"]),
        ("error", error["message"] if error else ""),
    ]
    return [tag("p", tag("strong", f"{name}: "), text, class_=f"said {name}") for name, text in told if text]


def _cards(shown: Row) -> Markup:
    overview, final = shown["overview"], shown["final"]
    usage, spine = final["usage"], overview["spine"]
    shares = [
        f"{role} {'?' if value is None else f'{100 * value:.1f} %'}" for role, value in overview["cached_share"].items()
    ]
    tasks, runs, steps = overview["tasks"], overview["runs"], overview["steps"]
    cards = [
        (
            "tasks",
            f"{count(tasks['completed'])}/{count(tasks['total'])}",
            f"{count(tasks['failed'])} failed, {count(tasks['dropped'])} dropped",
        ),
        ("runs", count(runs["total"]), f"{count(runs['completed'])} completed, {count(runs['failed'])} failed"),
        ("requests", count(usage["requests"]), f"{count(steps['planner'])} Planner, {count(steps['worker'])} Worker"),
        ("input tokens", count(usage["input_tokens"]), f"{count(usage['output_tokens'])} out"),
        ("from the cache", share_text(usage["cached_tokens"], usage["input_tokens"]), ", ".join(shares)),
        ("cost", money(overview["cost_usd"]), _forecast(shown["cost"]["forecast"])),
        ("spine", count(spine["tokens"]), f"tokens, {count(spine['items'])} items"),
        ("deltas", count(spine["deltas"]), f"{count(spine['rebases'])} rebases, {count(spine['breaks'])} breaks"),
    ]
    made = [
        tag("div", tag("dt", name), tag("dd", value), tag("dd", more, class_="quiet")) for name, value, more in cards
    ]
    return tag("dl", *made, class_="cards")


def _forecast(outcome: Row) -> str:
    error = outcome.get("error_share")
    return "" if error is None else f"{abs(error):.0%} {'more' if error >= 0 else 'less'} than likely"


def run_list(shown: Row, story: Story, *, texts: Mapping[str, str]) -> Markup:
    """Each run with its hand-in, its checks' evidence, its steps and its patch."""
    runs = [_run(row, shown, story=story, texts=texts) for row in shown["runs"]]
    return joined(runs or [quiet("nothing was delegated")])


def _run(row: Row, shown: Row, *, story: Story, texts: Mapping[str, str]) -> Markup:
    passed = sum(bool(check["has_passed"]) for check in row["checks"])
    head = tag(
        "summary",
        badge(row["status"]),
        tag("b", row["run"]),
        tag("span", row["task"], class_="path"),
        tag("span", f"{count(row['steps'])} steps", class_="quiet"),
        tag("span", f"{passed}/{len(row['checks'])} checks" if row["checks"] else "no checks", class_="quiet"),
        tag("span", money(row["cost_usd"]), class_="n"),
    )
    steps = story.steps_of(row["run"])
    links = joined(Markup(f'<a href="#request-{step.request:d}">{step.request:d}</a>') for step in steps)
    course = story.courses.get(row["run"])
    brief = shown["events"][course.delegated - 1].get("brief") if course else ""
    told = fields(
        [
            ("reason", row["reason"]),
            ("summary", row["summary"]),
            ("brief", brief),
            ("flags", "; ".join(row["flags"])),
            ("conflicts", listed(row["conflicts"])),
            ("changed", listed(row["changed_files"])),
            ("merged as", tag("code", row["merged"]) if row["merged"] else ""),
            ("forecast", "" if row["likely_usd"] is None else f"{money(row['likely_usd'])} likely"),
            ("requests", tag("span", links, class_="links") if steps else ""),
        ]
    )
    patch = [fold("patch", patch_section(row["patch"], texts, what="patch"))] if row["patch"] else []
    return tag("details", head, told, *map(evidence, row["checks"]), *patch, class_="run", id=f"run-{row['run']}")


def evidence(check: Row) -> Markup:
    """A check: the command, what became of it, and the end of what it printed."""
    passed = check["exit_code"] == 0
    code = "did not end by itself" if check["exit_code"] is None else f"exit code {check['exit_code']}"
    flaky = " · flaky: passed on its second try" if check["failed_output"] else ""
    head = tag(
        "summary",
        badge("completed" if passed else "failed"),
        tag("code", line(check["command"], SHOWN)),
        tag("span", f"{code}, {seconds(check['duration_seconds'])}{flaky}", class_="quiet"),
    )
    tail = block(check["tail"]) if check["tail"] else quiet("it printed nothing")
    return tag("details", head, tail, fields([("whole output", tag("code", check["output"]))]), class_="evidence")


def session_checks(shown: Row, story: Story) -> Markup:
    """The newest evidence of each check of the whole."""
    found = [shown["events"][seq - 1]["evidence"] for seq in story.checks.values()]
    return joined([evidence(check) for check in found] or [quiet("no check judged the whole")])


def fact_list(shown: Row, story: Story) -> Markup:
    """The facts as they are now, each with what it was before."""
    made = []
    for row in shown["facts"]:
        places = story.facts.get(row["fact"], [])
        history = [_change(shown["events"][seq - 1], story.at(seq)) for seq in places]
        value = [" ", tag("code", row["value"])] if row["value"] else []
        state = [tag("span", "retracted", class_="badge s-failed")] if row["retracted"] else []
        pinned = [tag("span", "pinned", class_="badge")] if row["is_pinned"] else []
        revision = tag("span", f"{row['source']}, revision {row['revision']}", class_="quiet")
        text = tag("s" if row["retracted"] else "span", row["text"], class_="text")
        head = tag("summary", tag("b", row["fact"]), text, *value, *state, *pinned, revision)
        made.append(tag("details", head, tag("ol", *history), class_="fact"))
    return joined(made or [quiet("no facts were recorded")])


def _change(record: Row, when: float) -> Markup:
    did = str(record["type"]).removeprefix("fact_")
    by = f" by {record['source']}" if record.get("source") else ""
    value = [" ", tag("code", record["value"])] if record.get("value") else []
    text = record.get("text") or record.get("reason") or ""
    return tag(
        "li", tag("b", f"{did}{by}"), tag("span", f" at {duration(round(when, 1))}: ", class_="quiet"), text, *value
    )


def spine_parts(shown: Row) -> Markup:
    """Rebases with receipts, the deltas, and the spine as it is now."""
    rebases = [_rebase(row) for row in shown["rebases"]]
    deltas = [_text_fold(f"{row['kind']} · {count(row['tokens'])} tokens", row) for row in shown["deltas"]]
    items = [
        _text_fold(f"{row['item']} · {row['kind']} · {count(row['tokens'])} tokens", row) for row in shown["spine"]
    ]
    return joined(
        [
            tag("h3", f"Rebases ({len(rebases)})"),
            *(rebases or [quiet("none: the spine only grew")]),
            tag("h3", f"Baseline and deltas ({len(deltas)})"),
            chunked(deltas),
            tag("h3", f"The spine as it is now ({len(items)} items)"),
            chunked(items),
        ]
    )


def _rebase(row: Row) -> Markup:
    counts = ("items_dropped", "unreferenced", "checkpoint_tokens")
    told: list[tuple[str, object]] = [(name.replace("_", " "), count(row[name])) for name in counts if row[name]]
    told += [(name, money(row[f"{name}_usd"])) for name in ("rent", "saved") if row[f"{name}_usd"] is not None]
    steps = "" if row["break_even_steps"] is None else f"{row['break_even_steps']:.1f} steps"
    told += [("pays after", steps), ("detail", row["detail"])]
    head = tag("span", tag("b", row["agent"]), " ", rebase_text(row))
    return fold(head, fields([("event", row["seq"]), *told]))


def _text_fold(title: str, row: Row) -> Markup:
    head = joined([tag("b", title), tag("span", f" {line(row['text'], SHOWN)}", class_="quiet")])
    return fold(head, block(row["text"]))


def log_section(found: Counter[str]) -> Markup:
    """The log's place: the page's script fills it."""
    kinds = sorted(found.items())
    options = [tag("option", f"{kind} ({count(number)})", value=kind) for kind, number in kinds]
    every = tag("option", f"all ({count(found.total())})", value="")
    choice = tag("label", "show ", tag("select", every, *options, id="log-type"))
    return joined(
        [
            tag("p", choice, class_="controls"),
            tag("div", id="log-rows"),
            tag("button", "more", id="log-more", type="button", hidden=True),
        ]
    )
