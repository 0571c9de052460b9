"""The page of a session: its sections, its data, its style and its script in one file that asks nobody for anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from xnagent.core.evolve import evolve
from xnagent.core.masking import Mask
from xnagent.inspect.page.changes import patch_section, patch_tickets
from xnagent.inspect.page.frame import Frame, bar, resource
from xnagent.inspect.page.hiding import HiddenRecords, hidden, hidden_lines
from xnagent.inspect.page.ledger import request_list
from xnagent.inspect.page.markup import Markup, island, island_of, safe, tag, written
from xnagent.inspect.page.pieces import section
from xnagent.inspect.page.plan import plan_picture
from xnagent.inspect.page.sections import fact_list, glance, log_section, run_list, session_checks, spine_parts
from xnagent.inspect.page.story import Story, story_of
from xnagent.inspect.page.timeline import spine_picture, timeline
from xnagent.inspect.page.usage import cost_section, token_picture
from xnagent.inspect.parts import PARTS, run_rows
from xnagent.inspect.plain import line
from xnagent.inspect.reading import Reading, final_of, ledger_of
from xnagent.inspect.report import overview

LINKS: Final = (
    ("time", "Time line"),
    ("tokens", "Tokens"),
    ("cost", "Cost"),
    ("plan", "Plan"),
    ("changes", "Changes"),
    ("runs", "Runs"),
    ("requests", "Requests"),
    ("spine", "Spine"),
    ("facts", "Facts"),
    ("log", "Log"),
)
TITLE: Final = 80
SEARCH: Final = "Search everything"
REQUESTS: Final = "Unfold one to see its row of the ledger, what was new in it, the reply, and what its calls came to."
NO_SCRIPT: Final = (
    "Scripts are off: what requests held and the log can't be unfolded here; `xnagent inspect` shows them."
)


OTHERWISE: Final = frozenset({"events", "requests", "runs"})
"""Parts of inspect that a page does not need, or gets otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What the sections are made from."""

    shown: dict[str, Any]
    """As `document` makes it, without secrets."""
    story: Story
    texts: Mapping[str, str]
    """Patches by ticket."""
    kinds: Counter[str] = field(default_factory=Counter)
    """How many events there are of each type, for the log's section."""


def tickets_of(reading: Reading) -> list[str]:
    """The artifacts that `page` wants to show: patches."""
    return patch_tickets(cast("dict[str, Any]", final_of(reading)), run_rows(reading))


def told_of(reading: Reading) -> dict[str, Any]:
    """What sections are made from, but for the ledger and the log: as `document` tells it, without the runs' steps."""
    told: dict[str, Any] = {name: make(reading) for name, make in PARTS.items() if name not in OTHERWISE}
    told["runs"] = run_rows(reading)
    return {**told, "session": reading.session, "overview": overview(reading, told), "final": final_of(reading)}


def page(reading: Reading, *, texts: Mapping[str, str], mask: Mask) -> Iterator[str]:
    """The whole file in pieces. `texts` holds the patches by ticket; `mask` takes secrets out of all that is shown."""
    reading = evolve(reading, ledger=ledger_of(reading))
    told = {**told_of(reading), "requests": PARTS["requests"](reading)}
    shown = {name: cast("Any", hidden(value, mask)) for name, value in told.items()}
    shown["events"] = HiddenRecords(reading.records, mask)
    masked = {ticket: mask.text(text) for ticket, text in texts.items()}
    kinds = Counter(str(stored.event.type) for stored in reading.events)
    sheet = Sheet(shown=shown, story=story_of(reading), kinds=kinds, texts=masked)
    frame = Frame(style=resource("page.css"), scripts=[resource("page.js")])
    title = f"{shown['session']}: {line(str(shown['overview']['objective']), TITLE)}"
    yield f'<!doctype html>\n<html lang="en">{frame.head(title)}<body>{session_bar()}<main id="main">'
    yield from (make(sheet) for make in SECTIONS.values())
    yield "</main>"
    lines = map(written, reading.records) if reading.lines is None else map(safe, reading.lines())
    yield from island_of("events", hidden_lines(lines, reading.records, mask=mask))
    yield from island("ledger", shown["requests"])
    yield f"{frame.tail()}</body></html>\n"


def session_bar(*, home: str = "#overview") -> Markup:
    """The bar of a session's page; `home` is where its brand leads."""
    return bar(tag("a", "xnagent", href=home, class_="brand"), LINKS, search=SEARCH)


def _found(_sheet: Sheet) -> Markup:
    rows = tag("div", id="found-rows")
    return tag("section", tag("h2", "Found"), rows, id="found", hidden=True, aria_live="polite")


def _time(sheet: Sheet) -> Markup:
    shown, story = sheet.shown, sheet.story
    rebases, deltas = shown["rebases"], shown["deltas"]
    return section(
        "time",
        "Time line",
        timeline(story, shown["runs"], rebases=rebases, deltas=deltas),
        tag("h3", "Length of the Planner's spine"),
        spine_picture(story, shown["requests"], rebases=rebases, deltas=deltas),
    )


def _changes(sheet: Sheet) -> Markup:
    ticket = sheet.shown["final"]["workspace"]["patch"]
    return section("changes", "Changes", patch_section(ticket, sheet.texts, what="patch of the whole"))


def _runs(sheet: Sheet) -> Markup:
    checks = [tag("h3", "Checks of the whole"), session_checks(sheet.shown, sheet.story)]
    return section("runs", "Runs and checks", run_list(sheet.shown, sheet.story, texts=sheet.texts), *checks)


def requests_section(table: Markup) -> Markup:
    """The ledger in its section."""
    return section("requests", "Requests", table, note=REQUESTS)


SECTIONS: Final[Mapping[str, Callable[[Sheet], Markup]]] = {
    "overview": lambda sheet: glance(sheet.shown, sheet.story),
    "found": _found,
    "time": _time,
    "tokens": lambda sheet: section("tokens", "Tokens of each request", token_picture(sheet.shown["requests"])),
    "cost": lambda sheet: section("cost", "Cost", cost_section(sheet.shown["cost"])),
    "plan": lambda sheet: section("plan", "Plan", plan_picture(sheet.shown["tasks"], sheet.shown["runs"])),
    "changes": _changes,
    "runs": _runs,
    "requests": lambda sheet: requests_section(request_list(sheet.shown["requests"], sheet.story)),
    "spine": lambda sheet: section("spine", "Spine", spine_parts(sheet.shown)),
    "facts": lambda sheet: section("facts", "Facts", fact_list(sheet.shown, sheet.story)),
    "log": lambda sheet: section("log", "Log", log_section(sheet.kinds)),
    "noscript": lambda _sheet: tag("noscript", tag("p", NO_SCRIPT, class_="note")),
}
"""The sections in their order, by the id of their element."""
