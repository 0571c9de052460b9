"""The `write` tool: a whole file, and nobody else's work lost."""

from __future__ import annotations

import difflib
from typing import Final

from xnagent.core.text import clean
from xnagent.ports import Call, ToolSpec
from xnagent.tools.change import Change, ChangeTool
from xnagent.tools.files import ENCODINGS, Text, read_file, sha256
from xnagent.tools.known import FileView, Seen
from xnagent.tools.outcome import RefusedError, workspace_of
from xnagent.tools.pages import count_lines, region
from xnagent.tools.paths import Place, locate_for_change

MAX_COMPARED_LINES: Final = 3_000
MAX_SHOWN_LINES: Final = 40

_SPEC = ToolSpec(
    name="write",
    description=(
        "Create a file, or replace the whole content of one. Missing folders are made. An existing file can be "
        "replaced only if you have read it and it has not changed since (NOT_READ, STALE: read it, then write again). "
        "The content is written exactly as given; a byte order mark and the file's mode are kept. To change a part of "
        "a file use edit."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, relative to the workspace root."},
            "content": {"type": "string", "description": "The whole content, usually ending with a line end."},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    },
)


def write_tool(view: FileView) -> ChangeTool:
    """The tool, for one model's view of its files."""
    return ChangeTool(spec=_SPEC, plan=_plan, view=view)


def _plan(call: Call, view: FileView) -> Change:
    place = locate_for_change(workspace_of(call).root, str(call.arguments["path"]))
    before = read_file(place)
    content = clean(str(call.arguments["content"]))
    after = _encoded(content, before)
    if before and after != before:
        _check_seen(place, before, seen=view.last(place))
    return Change(
        place=place,
        before=before,
        after=after,
        text=_text(place, before=before, after=after, content=content),
        verb="created" if before is None else "replaced",
    )


def _encoded(content: str, before: bytes | None) -> bytes:
    for bom, encoding in ENCODINGS:
        if before and before.startswith(bom):
            return Text(content="", bom=bom, encoding=encoding).encoded(content.removeprefix("\ufeff"))
    return content.encode()


def _text(place: Place, *, before: bytes | None, after: bytes, content: str) -> str:
    size = f"{count_lines(content)} lines, {len(after):,} bytes"
    if before is None:
        return f"Created {place.name} ({size})."
    if before == after:
        return f"{place.name} already has exactly this content ({size}); nothing was changed."
    had_crlf, has_crlf = b"\r\n" in before, b"\r\n" in after
    ends = " Its line ends were CRLF and are LF now." if had_crlf and not has_crlf else ""
    return f"Replaced {place.name} ({size}).{ends}"


def _check_seen(place: Place, data: bytes, *, seen: Seen | None) -> None:
    if seen is None:
        raise RefusedError(
            "NOT_READ",
            f"{place.name} exists ({len(data):,} bytes) and you have not read it since your work began or was resumed. "
            "Nothing was written. Read it first, or use edit.",
        )
    if seen.sha256 != sha256(data):
        raise RefusedError(
            "STALE",
            f"{place.name} changed since you last saw it{_by(seen)}; nothing was written. {_changed(seen.data, data)}\n"
            "Read it again, then write what it shall be.",
        )


def _by(seen: Seen) -> str:
    return f" (by {seen.changed_by})" if seen.changed_by else ""


def _changed(old: bytes | None, new: bytes) -> str:
    """The lines that are different now, numbered."""
    text = new.decode("utf-8", "replace")
    if old is None or max(old.count(b"\n"), text.count("\n")) > MAX_COMPARED_LINES:
        return "It is too large to compare here."
    lines = old.decode("utf-8", "replace").split("\n"), text.split("\n")
    changes = [op for op in difflib.SequenceMatcher(None, *lines).get_opcodes() if op[0] != "equal"]
    first, last = changes[0][3] + 1, max(changes[-1][4], changes[0][3] + 1)
    where = f"Changed lines {first}–{last}" if last > first else f"Changed line {first}"
    return f"{where}:\n{region(text, first=first, last=last, margin=1, limit=MAX_SHOWN_LINES)}"
