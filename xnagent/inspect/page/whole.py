"""The page of a session: its sections, its data, its style and its script in one file that asks nobody for anything."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import resources
from typing import Any, Final, cast

from xnagent.core.masking import Mask
from xnagent.inspect.page.changes import patch_section, patch_tickets
from xnagent.inspect.page.ledger import request_list
from xnagent.inspect.page.markup import Markup, island, joined, tag
from xnagent.inspect.page.pieces import section
from xnagent.inspect.page.plan import plan_picture
from xnagent.inspect.page.sections import fact_list, glance, log_section, run_list, session_checks, spine_parts
from xnagent.inspect.page.story import Story, story_of
from xnagent.inspect.page.timeline import spine_picture, timeline
from xnagent.inspect.page.usage import cost_section, token_picture
from xnagent.inspect.plain import line
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document

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
ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath "
    "d='M2 3h12M2 8h8M2 13h10' stroke='%235b5bd6' stroke-width='3'/%3E%3C/svg%3E"
)
TITLE: Final = 80


def tickets_of(reading: Reading) -> list[str]:
    """The artifacts that `page` wants to show: patches."""
    shown = cast("dict[str, Any]", document(reading, ["runs"]))
    return patch_tickets(shown["final"], shown["runs"])


def page(reading: Reading, *, texts: Mapping[str, str], mask: Mask) -> Iterator[str]:
    """The whole file in pieces. `texts` holds the patches by ticket; `mask` takes secrets out of all that is shown."""
    told = document(reading, ())
    shown = cast("dict[str, Any]", mask.value(told) if mask.grams else told)
    masked = {ticket: mask.text(text) for ticket, text in texts.items()}
    style, script = _resource("page.css"), _resource("page.js")
    yield f'<!doctype html>\n<html lang="en">{_head(shown, style=style, script=script)}<body>{_bar()}<main id="main">'
    yield from _sections(shown, story_of(reading), texts=masked)
    yield "</main>"
    yield from island("events", shown["events"])
    yield from island("ledger", shown["requests"])
    yield f"{tag('script', Markup(script))}</body></html>\n"


def _sections(shown: dict[str, Any], story: Story, *, texts: Mapping[str, str]) -> Iterator[Markup]:
    ledger, rebases, deltas = shown["requests"], shown["rebases"], shown["deltas"]
    whole = patch_section(shown["final"]["workspace"]["patch"], texts, what="patch of the whole")
    yield glance(shown, story)
    yield tag("section", tag("h2", "Found"), tag("div", id="found-rows"), id="found", hidden=True, aria_live="polite")
    yield section(
        "time",
        "Time line",
        timeline(story, shown["runs"], rebases=rebases, deltas=deltas),
        tag("h3", "Length of the Planner's spine"),
        spine_picture(story, ledger, rebases=rebases, deltas=deltas),
    )
    yield section("tokens", "Tokens of each request", token_picture(ledger))
    yield section("cost", "Cost", cost_section(shown["cost"]))
    yield section("plan", "Plan", plan_picture(shown["tasks"], shown["runs"]))
    yield section("changes", "Changes", whole)
    checks = [tag("h3", "Checks of the whole"), session_checks(shown, story)]
    yield section("runs", "Runs and checks", run_list(shown, story, texts=texts), *checks)
    yield section("requests", "Requests", request_list(ledger, story), note=REQUESTS)
    yield section("spine", "Spine", spine_parts(shown))
    yield section("facts", "Facts", fact_list(shown, story))
    yield section("log", "Log", log_section(shown["events"]))
    yield tag("noscript", tag("p", NO_SCRIPT, class_="note"))


REQUESTS: Final = "Unfold one to see its row of the ledger, what was new in it, the reply, and what its calls came to."
NO_SCRIPT: Final = (
    "Scripts are off: what requests held and the log can't be unfolded here; `xnagent inspect` shows them."
)


def _head(shown: dict[str, Any], *, style: str, script: str) -> Markup:
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("meta", name_="referrer", content="no-referrer"),
        tag("title", f"{shown['session']}: {line(str(shown['overview']['objective']), TITLE)}"),
        tag("link", rel="icon", href=Markup(ICON)),
        tag("style", Markup(style)),
    )


def _bar() -> Markup:
    links = tag("nav", *(tag("a", title, href=f"#{name}") for name, title in LINKS), aria_label="Sections")
    search = tag(
        "input",
        id="search",
        type="search",
        placeholder="Search everything  ( / )",
        aria_label="Search everything",
        autocomplete="off",
        spellcheck="false",
    )
    theme = tag(
        "button", "◐", id="theme", type="button", title="Light or dark (t)", aria_label="Switch between light and dark"
    )
    skip = tag("a", "Skip to the content", href="#main", class_="skip")
    brand = tag("a", "xnagent", href="#overview", class_="brand")
    return joined([skip, tag("div", brand, links, search, theme, class_="bar")])


def _resource(name: str) -> str:
    return resources.files("xnagent.inspect.page").joinpath(name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"
