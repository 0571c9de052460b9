"""The `edit` tool: one piece of text for another, at the one place that is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xnagent.core.text import clean
from xnagent.ports import Call, ToolSpec
from xnagent.tools.change import Change, ChangeTool
from xnagent.tools.files import decode, read_file, sha256
from xnagent.tools.known import FileView
from xnagent.tools.matching import MAX_PLACES, Found, Match, find, find_lossless, replaced
from xnagent.tools.nearest import nearest
from xnagent.tools.outcome import RefusedError, workspace_of
from xnagent.tools.pages import region
from xnagent.tools.paths import Place, locate_for_change, not_found

MAX_NAMED_LINES: Final = 12
MIN_TELLING: Final = 10
"""New text with fewer characters may stand in a file by chance."""

_SPEC = ToolSpec(
    name="edit",
    description=(
        "Replace text in a file. `old` must be in the file exactly once, so give enough lines around the change; with "
        "all=true every place is replaced. Copy `old` from read without the line numbers. `new` is taken literally. "
        "Line ends, byte order mark and mode are kept. If `old` is not found exactly, differences in line ends, "
        "trailing whitespace, indentation as a whole, tabs for spaces, or look-alike quotes, dashes and spaces are "
        "bridged where only one place fits, and the result says so. On NO_MATCH or NOT_UNIQUE nothing was changed: "
        "the message shows the nearest lines or all places. For a new file or a whole content use write."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, relative to the workspace root."},
            "old": {"type": "string", "description": "The text to replace, not empty."},
            "new": {"type": "string", "description": "The text that shall stand there; empty deletes."},
            "all": {"type": "boolean", "description": "Replace every place. Default false."},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": False,
    },
)


def edit_tool(view: FileView) -> ChangeTool:
    """The tool, for one model's view of its files."""
    return ChangeTool(spec=_SPEC, plan=_plan, view=view)


def _plan(call: Call, view: FileView) -> Change:
    place = locate_for_change(workspace_of(call).root, str(call.arguments["path"]))
    old, new = (clean(str(call.arguments[name])) for name in ("old", "new"))
    before = read_file(place)
    if before is None:
        raise not_found(place)
    _check_texts(place, old=old, new=new, is_empty_file=not before)
    text = decode(before, place.name)
    found = _found(place, text.content, old=old, new=new, is_all=bool(call.arguments.get("all", False)))
    content = replaced(text.content, found.matches)
    if content == text.content:
        raise RefusedError("NO_CHANGE", f"{place.name} already reads so at {_lines(content, found.matches)}.")
    seen = view.last(place)
    is_stale = seen is not None and seen.sha256 != sha256(before)
    note = " It had changed since you last saw it; the edit was made in the file as it is now." if is_stale else ""
    return Change(
        place=place,
        before=before,
        after=text.encoded(content),
        text=_text(place, content, found=found, note=note),
        verb="edited",
        is_known=not is_stale,
    )


def _check_texts(place: Place, *, old: str, new: str, is_empty_file: bool) -> None:
    if not old:
        advice = "The file is empty: use write." if is_empty_file else "Give the text to replace, or use write."
        raise RefusedError("BAD_ARGS", f"old is empty, so it names no place in {place.name}. {advice}")
    if old == new:
        raise RefusedError("NO_CHANGE", f"old and new are the same; {place.name} was not changed.")


def _found(place: Place, text: str, *, old: str, new: str, is_all: bool) -> Found:
    found = find(text, old, new=new, is_all=is_all)
    if not found.matches:
        raise _missing(place, text, old=old, new=new)
    if len(found.matches) == MAX_PLACES:
        raise RefusedError(
            "NOT_UNIQUE", f"old is at {MAX_PLACES:,} places or more in {place.name}; use sed in bash for so many."
        )
    if len(found.matches) == 1 or (is_all and found.is_lossless):
        return found
    how = f" ({found.rung})" if found.rung else ""
    advice = "Add lines around it, or set all=true" if found.is_lossless else "Copy it exactly, with lines around it"
    raise RefusedError(
        "NOT_UNIQUE",
        f"old is at {len(found.matches)} places in {place.name}{how}: {_lines(text, found.matches)}. Nothing was "
        f"changed. {advice}.",
    )


def _missing(place: Place, text: str, *, old: str, new: str) -> RefusedError:
    present = find_lossless(text, new, new=new, is_all=False) if len(new.strip()) >= MIN_TELLING else Found()
    if len(present.matches) == 1:
        return RefusedError(
            "ALREADY_APPLIED",
            f"old is not in {place.name}, but new already is, at {_lines(text, present.matches)}. Nothing was changed.",
        )
    near = nearest(text, old)
    hint = near.report if near else "Nothing in it is like old. Read it, or grep for a word of it."
    return RefusedError("NO_MATCH", f"old is not in {place.name}; nothing was changed. {hint}")


def _lines(text: str, matches: Sequence[Match]) -> str:
    spans = [_span(text, match.start, end=match.end) for match in matches[:MAX_NAMED_LINES]]
    names = [f"{first}–{last}" if last > first else str(first) for first, last in spans]
    more = f" and {len(matches) - MAX_NAMED_LINES} more" if len(matches) > MAX_NAMED_LINES else ""
    is_one = len(names) == 1 and "–" not in names[0]
    return f"{'line' if is_one else 'lines'} {', '.join(names)}{more}"


def _span(text: str, start: int, *, end: int) -> tuple[int, int]:
    first = text.count("\n", 0, start) + 1
    return first, first + text.count("\n", start, max(start, end - 1))


def _text(place: Place, content: str, *, found: Found, note: str) -> str:
    first = found.matches[0]
    span = _span(content, first.start, end=first.start + len(first.new))
    count = len(found.matches)
    what = f"{count} places" if count > 1 else "1 place"
    how = f" Not an exact match: {found.rung}." if found.rung else ""
    more = " The first of them:" if count > 1 else ""
    return f"Edited {place.name} ({what}).{how}{note}{more}\n{region(content, first=span[0], last=span[1])}"
