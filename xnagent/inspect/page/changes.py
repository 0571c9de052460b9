"""What changed: patches, file by file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xnagent.inspect.page.markup import Markup, joined, shown, tag
from xnagent.inspect.plain import count

FILE: Final = re.compile(r"^diff --git ", re.MULTILINE)
NAMES: Final = re.compile(r'^(?:"?a/)(.*?)"? "?b/(.*?)"?$')
MOST_LINES: Final = 3_000
"""Of one patch; what is longer says how to get the rest."""
OPEN_LINES: Final = 120
KINDS: Final = {"+": "add", "-": "del", "@": "hunk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """One file of a patch."""

    name: str
    head: Sequence[str]
    lines: Sequence[str]

    def count(self, sign: str) -> int:
        """Lines that were added or removed."""
        return sum(line.startswith(sign) for line in self.lines)


def patch_section(ticket: str | None, texts: Mapping[str, str], *, what: str) -> Markup:
    """A patch by its ticket; `what` it is is said where there is none."""
    text = None if ticket is None else texts.get(ticket)
    if text is None:
        return tag("p", f"no {what}" if ticket is None else f"{what} {ticket} is not in the store", class_="quiet")
    if not text.strip():
        return tag("p", f"the {what} is empty", class_="quiet")
    return _patch(text, ticket=str(ticket))


def _patch(text: str, *, ticket: str) -> Markup:
    files = list(_files(text))
    total = f"{count(len(files))} {'file' if len(files) == 1 else 'files'}, "
    changed = joined([tag("b", f"+{count(sum(each.count('+') for each in files))}", class_="add"), " "])
    removed = tag("b", f"−{count(sum(each.count('-') for each in files))}", class_="del")
    head = tag("p", total, changed, removed, tag("code", ticket), class_="patch-head")
    left, drawn = MOST_LINES, []
    for each in files:
        drawn.append(_file(each, most=max(left, 0), is_open=len(each.lines) <= OPEN_LINES and len(files) <= OPEN_LINES))
        left -= len(each.lines)
    return joined([head, *drawn])


def _files(text: str) -> Iterator[_File]:
    for part in FILE.split(text)[1:] or [text]:
        lines = part.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        found = NAMES.match(lines[0]) if lines else None
        name = found[2] if found else (lines[0] if lines else "")
        begin = next((n for n, line in enumerate(lines) if line.startswith("@@")), len(lines))
        yield _File(name=name, head=lines[1:begin], lines=lines[begin:])


def _file(file: _File, *, most: int, is_open: bool) -> Markup:
    summary = tag(
        "summary",
        tag("span", file.name, class_="path"),
        tag("b", f"+{count(file.count('+'))}", class_="add"),
        tag("b", f"−{count(file.count('-'))}", class_="del"),
    )
    lines = file.lines[:most]
    rest = len(file.lines) - len(lines)
    notes = [line for line in file.head if not line.startswith(("index ", "--- ", "+++ "))]
    body = [tag("p", " · ".join(notes), class_="quiet")] if notes else []
    body.append(tag("pre", *map(_line, lines), class_="diff", tabindex=0))
    if rest:
        body.append(tag("p", f"{count(rest)} more lines are in the stored patch", class_="quiet"))
    return tag("details", summary, *body, class_="file", open=is_open)


def _line(line: str) -> Markup:
    kind = KINDS.get(line[:1])
    text = shown(line + "\n")
    return text if kind is None else Markup(f'<span class="{kind}">{text}</span>')


def patch_tickets(final: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The patches that the page shows: the result's, and each run's."""
    tickets = [final["workspace"]["patch"], *(row["patch"] for row in runs)]
    return list(dict.fromkeys(ticket for ticket in tickets if ticket))
