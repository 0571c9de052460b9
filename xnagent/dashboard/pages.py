"""The pages that are served: the list, a session, and what is said to those who are not let in."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from xnagent.core.text import clean
from xnagent.dashboard.directory import Directory
from xnagent.dashboard.frames import Cursor
from xnagent.dashboard.listing import listed
from xnagent.dashboard.parts import ledger_section
from xnagent.dashboard.watch import READ_FAULTS, Watch, in_thread
from xnagent.inspect.page.frame import Frame, bar, resource
from xnagent.inspect.page.markup import Markup, island_of, joined, tag, written
from xnagent.inspect.page.pieces import quiet, section
from xnagent.inspect.page.sections import log_section
from xnagent.inspect.page.story import Story
from xnagent.inspect.page.whole import SECTIONS, Sheet, session_bar

LONGEST_CHARACTERS: Final = 60_000
"""Of what is told at once: a letter holds 262,144 bytes."""
PACKAGE: Final = "xnagent.dashboard"
BEGINNING: Final = '<!doctype html>\n<html lang="en">'


@cache
def frame_of(*scripts: str) -> Frame:
    """Style and scripts of a page; each script's name tells where it is."""
    style = f"{resource('page.css')}\n{resource('live.css', PACKAGE)}"
    found = [resource(name) if name == "page.js" else resource(name, PACKAGE) for name in scripts]
    return Frame(style=style, scripts=found, connects=True)


def session_frame() -> Frame:
    """Of a session's page."""
    return frame_of("page.js", "live.js")


def list_frame() -> Frame:
    """Of the list."""
    return frame_of("list.js")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What the pages offer to do."""

    can_act: bool
    """Sessions can be told something and cancelled."""
    words: Sequence[str] = field(default_factory=list)
    """Options that a command needs to find the same store."""

    def resume(self, session: str) -> str:
        """The command that goes on with a session."""
        return shlex.join(["xnagent", "resume", session, *self.words])


async def session_page(
    session: str, watching: AbstractAsyncContextManager[Watch], *, offers: Offers
) -> AsyncIterator[bytes]:
    """A session's page in pieces: head and bar at once, the rest when the log is read."""
    frame = session_frame()
    yield _bytes(f'{BEGINNING}{frame.head(session)}<body class="live">{session_bar(home="/")}<main id="main">')
    try:
        async with watching as watch:
            content = await _session(watch, offers)
    except READ_FAULTS as error:
        yield _bytes(f"{section('problem', 'It cannot be read', quiet(str(error)))}</main></body></html>\n")
    else:
        yield _bytes(f"{content}{frame.tail()}</body></html>\n")


async def _session(watch: Watch, offers: Offers) -> str:
    await watch.draw()
    log, cursor = watch.log, watch.cursor
    shown = {name: part.html for name, part in watch.parts.items()}
    requests = await in_thread(lambda: ledger_section(log))
    kinds = Counter(str(record["type"]) for record in log.records[: cursor.seq])
    shown |= {"requests": requests, "log": section("log", "Log", log_section(kinds))}
    shown["overview"] = joined([shown["overview"], live_section(watch, cursor, offers=offers)])
    nothing = Sheet(shown={}, story=Story(), kinds=kinds, texts={})
    sections = [shown[name] if name in shown else make(nothing) for name, make in SECTIONS.items()]
    ledger = [written(log.rows[number]) for number in sorted(log.rows)]
    islands = [*island_of("events", log.lines[: cursor.seq]), *island_of("ledger", ledger)]
    return "".join([*sections, "</main>", *islands])


def live_section(watch: Watch, cursor: Cursor, *, offers: Offers) -> Markup:
    """How the page is connected, and what can be done to the session."""
    standing = watch.standing
    told = tag("p", tag("b", "", id="pulse"), tag("span", "", id="pulse-note", class_="quiet"), role="status")
    command = offers.resume(watch.log.session)
    copy = tag("button", "copy", type="button", id="copy")
    resume = tag("p", "goes on with: ", tag("code", command, id="command"), " ", copy, id="resume", hidden=True)
    return tag(
        "section",
        told,
        *([_form()] if offers.can_act else []),
        tag("p", id="answer", role="status", hidden=True),
        resume,
        id="live",
        aria_label="Live",
        data_place=str(cursor),
        data_status=str(standing["status"]),
        data_live=str(standing["is_live"]).lower(),
    )


def _form() -> Markup:
    text = tag("textarea", id="text", rows=2, maxlength=LONGEST_CHARACTERS, required=True, aria_describedby="hint")
    say = tag("button", "Tell", type="submit")
    cancel = tag("button", "Cancel the session", type="button", id="cancel", class_="risky")
    return tag(
        "form",
        tag("label", "Tell the Planner", for_="text", id="label"),
        text,
        tag("div", say, cancel, tag("span", "", id="hint", class_="quiet"), class_="controls"),
        id="tell",
        autocomplete="off",
    )


def list_page(directory: Directory) -> str:
    """The list of sessions."""
    frame = list_frame()
    brand = tag("a", "xnagent", href="/", class_="brand")
    lines = {name: line.html for name, line in directory.roll.lines.items()}
    head = tag(
        "header", tag("h1", "Sessions"), directory.roll.totals or tag("dl", id="totals"), class_="glance", id="overview"
    )
    pulse = tag("p", tag("span", "", id="pulse-note", class_="quiet"), role="status", id="live")
    whole = tag("main", head, pulse, listed(lines), id="main", data_place=str(Cursor(drawn=directory.roll.drawn)))
    content = f'<body class="live list">{bar(brand, (), search="Find a session")}{whole}{frame.tail()}</body></html>\n'
    return clean(f"{BEGINNING}{frame.head('xnagent: sessions')}{content}")


def plain_page(title: str, *text: object, target: str = "") -> str:
    """A page that says one thing; with `target` the browser goes there."""
    frame = frame_of()
    go = tag("meta", http_equiv="refresh", content=f"0; url={target}") if target else ""
    content = tag("main", tag("h1", title), tag("p", *text))
    return f"{BEGINNING}{frame.head(title)}{go}<body>{content}</body></html>\n"


def _bytes(text: str) -> bytes:
    return clean(text).encode()
