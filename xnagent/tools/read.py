"""The `read` tool: files, directories and artifacts, in pages."""

from __future__ import annotations

import functools
import os
import stat
from dataclasses import replace
from typing import Final

from xnagent.core.ids import TICKET, Ticket
from xnagent.core.spine_events import ToolStarted
from xnagent.core.state import spine_of, work_of
from xnagent.core.values import dataclass
from xnagent.ports import Call, Intent, Outcome, ToolSpec
from xnagent.tools.files import decode, read_file, sha256
from xnagent.tools.known import FileView
from xnagent.tools.outcome import attempt, failure, workspace_of
from xnagent.tools.output import is_binary
from xnagent.tools.pages import MAX_LINES, Page, page
from xnagent.tools.paths import Place, folder_of, locate, not_found, status_of

MAX_ENTRIES: Final = 200
TICKET_PREFIX: Final = "artifact:"
MIN_REFERRED: Final = 400
"""A shorter page is shown again: saying that it is unchanged would cost as much."""

_DESCRIPTION = """\
Read a text file, a directory's entries, or a stored output by its ticket (artifact:…). Lines come as \
`number<tab>text`: the number is not part of the file. One call shows at most 2,000 lines and 50,000 bytes; a line \
is cut at 2,000 characters (48,000 with limit=1). The last line tells the offset to continue with. A page that you \
have read and that is unchanged is answered by a reference to that result. To find something in a large file use \
grep first. Binary files are refused."""

_FIELD = {
    "path": "File or directory, relative to the workspace root, or a ticket such as artifact:0123456789abcdef.",
    "target": "A ticket such as artifact:0123456789abcdef, or a file or directory relative to the workspace root.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTool:
    """Shows a text without changing anything."""

    field: str
    """The name of the argument that says what to read: `path` for Workers, `target` for the Planner."""
    view: FileView

    @property
    def spec(self) -> ToolSpec:
        """Its definition."""
        return ToolSpec(
            name="read",
            description=_DESCRIPTION,
            parameters={
                "type": "object",
                "properties": {
                    self.field: {"type": "string", "description": _FIELD[self.field]},
                    "offset": {
                        "type": "integer",
                        "description": "First line, from 1; negative counts from the end. Default 1.",
                    },
                    "limit": {"type": "integer", "description": "Number of lines. Default and maximum 2000."},
                },
                "required": [self.field],
                "additionalProperties": False,
            },
        )

    async def intend(self, call: Call) -> Intent | Outcome:
        """Reading may be repeated."""
        return Intent(effect="pure")

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Show one page."""
        target = str(call.arguments[self.field]).strip()
        if target.startswith(TICKET_PREFIX):
            return await self._artifact(call, target)
        return await attempt("read", functools.partial(self._path, call, target))

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """Run it again."""
        return None

    async def _artifact(self, call: Call, target: str) -> Outcome:
        match = TICKET.match(target)
        if match is None:
            return failure("NOT_FOUND", f"{target} is no ticket; one is `artifact:` and 16 hex digits.", tool="read")
        data = await call.artifacts.get(Ticket(match[0]))
        if data is None:
            return failure(
                "NOT_FOUND", f"{match[0]} is not stored here. Run the call that produced it again.", tool="read"
            )
        if is_binary(data):
            return failure("NOT_TEXT", f"{match[0]} is binary ({len(data):,} bytes).", tool="read")
        text = data.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        return await attempt("read", functools.partial(_shown, call, text, name=match[0]))

    def _path(self, call: Call, target: str) -> Outcome:
        place = locate(workspace_of(call).root, target)
        status = status_of(place)
        if status is None:
            raise not_found(place)
        if stat.S_ISDIR(status.st_mode):
            return _listing(place)
        data = read_file(place)
        if data is None:
            raise not_found(place)
        text = decode(data, place.name)
        outcome = _shown(call, text.content, name=place.name, notes=_form(text.content, text.encoding))
        self.view.saw(place, data)
        return replace(outcome, seen=((place.name, sha256(data)),))


def _shown(call: Call, text: str, *, name: str, notes: str = "") -> Outcome:
    if not text:
        return Outcome(text=f"[{name} is empty]", label=f"read {name}: empty", paths_read=(name,))
    shown = _page(call, text, name=name)
    parts = [shown.text, shown.footer, notes]
    body = "\n".join(part for part in parts if part)
    span = f"{shown.first}–{shown.last} of {shown.total}"
    key, digest = f"{name}:{shown.first}-{shown.last}", sha256(body.encode())
    step = _step_of(call, key, digest=digest)
    if step is not None and len(body) >= MIN_REFERRED:
        return Outcome(
            text=f"[{name} lines {span}: unchanged since you read them at step {step}, and that result above still "
            "stands. To have them shown once more, make this call again in your next step.]",
            label=f"read {name} {span}: unchanged since step {step}",
            paths_read=(name,),
            pages=((key, ""),),
        )
    return Outcome(text=body, label=f"read {name} {span}", paths_read=(name,), pages=((key, digest),))


def _step_of(call: Call, key: str, *, digest: str) -> int | None:
    """The step at which the same page was read, if it still stands in the spine and is not asked for twice in a row."""
    work = work_of(call.state, call.agent)
    known = work.pages.get(key)
    if known is None or known.sha256 != digest or known.generation != spine_of(call.state, call.agent).generation:
        return None
    return None if known.referred_at is not None and known.referred_at == work.steps - 1 else known.step


def _page(call: Call, text: str, *, name: str) -> Page:
    offset = call.arguments.get("offset", 1)
    limit = call.arguments.get("limit", MAX_LINES)
    return page(text, name=name, offset=offset, limit=limit)


def _form(text: str, encoding: str) -> str:
    crlf = text.count("\r\n")
    notes = []
    if crlf:
        notes.append("CRLF line ends" if crlf == text.count("\n") else "mixed line ends: LF and CRLF")
    if encoding != "utf-8":
        notes.append(encoding.upper())
    return f"[{'; '.join(notes)}; edit keeps them]" if notes else ""


def _listing(place: Place) -> Outcome:
    names = _entries(place)
    shown = names[:MAX_ENTRIES]
    left = len(names) - len(shown)
    more = [f"[{left} more entries; narrow with glob]"] if left else []
    text = "\n".join([f"{place.name}/ ({len(names)} entries)" if names else f"[{place.name}/ is empty]", *shown, *more])
    return Outcome(text=text, label=f"read {place.name}/: {len(names)} entries", paths_read=(place.name,))


def _entries(place: Place) -> list[str]:
    inside = Place(root=place.root, name="_" if place.name == "." else f"{place.name}/_")
    with folder_of(inside) as folder, os.scandir(folder) as found:
        return sorted(_entry(entry, folder) for entry in found)


def _entry(entry: os.DirEntry[str], folder: int) -> str:
    name = entry.name.encode("utf-8", "replace").decode()
    if entry.is_symlink():
        aim = os.readlink(entry.name, dir_fd=folder).encode("utf-8", "replace").decode()
        return f"{name} -> {aim}"
    return f"{name}/" if entry.is_dir(follow_symlinks=False) else name
