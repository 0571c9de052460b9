"""The `grep` tool: ripgrep where there is one, else a walker with the same output."""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import Process

from xnagent.core.ids import TICKET, Ticket
from xnagent.core.permissions import Rules, hides
from xnagent.core.spine_events import ToolStarted
from xnagent.core.values import dataclass
from xnagent.ports import Call, Intent, Outcome, ToolSpec
from xnagent.tools import walk
from xnagent.tools.outcome import RefusedError, attempt, failure, workspace_of
from xnagent.tools.paths import Place, kind_of, locate, not_found, status_of

MAX_MATCHES: Final = 100
MAX_SORTED: Final = 5_000
MAX_LINE: Final = 300
MAX_CHARS: Final = 24_000
MAX_CONTEXT: Final = 10
TIME_LIMIT_SECONDS: Final = 20
MAX_READ_BYTES: Final = 8 * 1024 * 1024
MAX_WHOLE_LINE: Final = 100_000
LEAD: Final = 100
"""Characters before a match that are shown of a long line."""
RECORD: Final = re.compile(rb"(\d+)(?::(\d+):|-)(.*)", re.DOTALL)
SPECIAL: Final = re.compile(r"([.\\+*?()|\[\]{}^$])")

_SPEC = ToolSpec(
    name="grep",
    description=(
        "Search file contents with a regular expression, line by line (no look-around, no back-references). Results "
        "are `path:line:text`, sorted by path; at most 100 matches, lines cut at 300 characters. Hidden files are "
        "searched; .git, binary files and what .gitignore names are not, unless path names them. To search literally, "
        "escape `. * + ? ( ) [ ] { } ^ $ | \\` with a backslash."
    ),
    parameters={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "Regular expression; `(?i)` in front ignores case."},
            "path": {"type": "string", "description": "File, directory or ticket to search. Default: everything."},
            "glob": {"type": "string", "description": "Only files like this: `*.py`, `src/**/*.{ts,tsx}`, `!*.md`."},
            "context": {"type": "integer", "description": "Lines to show before and after each match, up to 10."},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    pattern: str
    start: str
    """Relative to the root, real; `.` is the root."""
    glob: str | None
    context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Printed:
    """What the search program wrote."""

    records: bytes
    complaint: str
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepTool:
    """Finds lines."""

    ripgrep: str | None
    """Path of the program; None: search without it."""
    time_limit_seconds: float = TIME_LIMIT_SECONDS
    max_sorted: int = MAX_SORTED
    """With more matches the search is made again, sorted, and stopped after the first of them."""
    rules: Rules = field(default_factory=Rules)
    """Lines of files that they forbid to read are not shown."""

    @property
    def spec(self) -> ToolSpec:
        """Its definition."""
        return _SPEC

    async def intend(self, call: Call) -> Intent | Outcome:
        """Searching may be repeated."""
        return Intent(effect="pure")

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Search, within 20 seconds."""
        target = str(call.arguments.get("path", ".")).strip() or "."
        ticket = TICKET.match(target)
        if ticket:
            return await self._in_artifact(call, Ticket(ticket[0]))
        place = await attempt("grep", functools.partial(_start, call, target))
        if isinstance(place, Outcome):
            return place
        return await self._search(call, place, shown=place.name)

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """Run it again."""
        return None

    async def _in_artifact(self, call: Call, ticket: Ticket) -> Outcome:
        data = await call.artifacts.get(ticket)
        if data is None:
            return failure("NOT_FOUND", f"{ticket} is not stored here. Run the call that made it again.", tool="grep")
        async with _as_file(data) as place:
            return await self._search(call, place, shown=ticket)

    async def _search(self, call: Call, place: Place, *, shown: str) -> Outcome:
        query = _Query(
            pattern=str(call.arguments["pattern"]),
            start=place.name,
            glob=str(call.arguments.get("glob") or "") or None,
            context=max(0, min(MAX_CONTEXT, call.arguments.get("context", 0))),
        )
        if not query.pattern:
            return failure("BAD_ARGS", "the pattern is empty; use glob to list files.", tool="grep")
        found = await self._found(query, place.root)
        if found.complaint and not found.records:
            return _refused(query, found.complaint)
        name = shown if shown != place.name else None
        return _outcome(query, self._permitted(found), shown=shown, alias=name)

    def _permitted(self, found: _Printed) -> _Printed:
        if not (self.rules.allow or self.rules.narrow or self.rules.deny):
            return found
        kept = [raw for raw in found.records.split(b"\n") if not self._is_hidden(raw)]
        return replace(found, records=b"\n".join(kept))

    def _is_hidden(self, raw: bytes) -> bool:
        path, separator, _ = raw.partition(b"\0")
        return bool(separator) and hides(self.rules, path.decode("utf-8", "replace").removeprefix("./"))

    async def _found(self, query: _Query, root: str) -> _Printed:
        """All records in the order of their paths, or the first of them, if there are very many.

        ripgrep sorts with one thread only; so it searches unsorted, and again sorted only where that ends early.
        """
        per_match = 2 * query.context + 1
        began = anyio.current_time()
        if self.ripgrep is not None:
            command = self._command(query, root, is_sorted=False)
            found = await _printed(command, root, enough=self.max_sorted * per_match, seconds=self.time_limit_seconds)
            if found.is_whole or found.complaint:
                return replace(found, records=_by_path(found.records, has_context=query.context > 0))
        left = max(1.0, self.time_limit_seconds - (anyio.current_time() - began))
        enough = (MAX_MATCHES + 1) * per_match + query.context
        return await _printed(self._command(query, root, is_sorted=True), root, enough=enough, seconds=left)

    def _command(self, query: _Query, root: str, *, is_sorted: bool) -> list[str]:
        if self.ripgrep is None:
            request = {
                "root": ".",
                "pattern": query.pattern,
                "start": query.start,
                "glob": query.glob,
                "context": query.context,
            }
            return [sys.executable, "-I", "-S", "-B", "-W", "ignore", walk.__file__, json.dumps(request)]
        return [
            self.ripgrep,
            *_RG_OPTIONS,
            *(["--sort=path"] if is_sorted else []),
            *_rg_choices(query, root),
            "--",
            "./" if query.start == "." else f"./{query.start}",
        ]


_RG_OPTIONS: Final = (
    "--no-config",
    "--color=never",
    "--no-heading",
    "--line-number",
    "--column",
    "--with-filename",
    "--null",
    "--hidden",
    "--crlf",
    "--no-messages",
    "--no-require-git",
    "--no-ignore-global",
    "--no-ignore-parent",
    f"--max-columns={MAX_WHOLE_LINE}",
    "--max-columns-preview",
)


def _rg_choices(query: _Query, root: str) -> Iterator[str]:
    if query.glob:
        yield f"--glob={query.glob}"
    yield "--glob=!.git"
    if query.start != "." and Path(root, ".gitignore").is_file():
        yield "--ignore-file=.gitignore"
    if query.context:
        yield f"--context={query.context}"
    yield f"--regexp={query.pattern}"


def _start(call: Call, target: str) -> Place:
    place = locate(workspace_of(call).root, target)
    status = status_of(place)
    if status is None:
        raise not_found(place)
    if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
        raise RefusedError("NOT_TEXT", f"{place.name} is a {kind_of(status)}, not a file.")
    return place


@asynccontextmanager
async def _as_file(data: bytes) -> AsyncIterator[Place]:
    folder = tempfile.TemporaryDirectory()
    try:
        await to_thread.run_sync(Path(folder.name, "output").write_bytes, data)
        yield Place(root=folder.name, name="output")
    finally:
        await to_thread.run_sync(folder.cleanup)


def _by_path(records: bytes, *, has_context: bool) -> bytes:
    """The records as `--sort=path` would have put them: the files in the order of their names, folder by folder."""
    files: dict[bytes, list[bytes]] = {}
    is_apart = False
    for line in records.split(b"\n"):
        path, separator, _ = line.partition(b"\0")
        if separator:
            known = files.setdefault(path, [])
            known += [b"--", line] if is_apart and known else [line]
        is_apart = line.rstrip(b"\r") == b"--"
    between = b"\n--\n" if has_context else b"\n"
    return between.join(b"\n".join(files[path]) for path in sorted(files, key=lambda path: path.split(b"/")))


async def _printed(command: Sequence[str], root: str, *, enough: int, seconds: float) -> _Printed:
    data = bytearray()
    environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    with anyio.move_on_after(seconds):
        async with await anyio.open_process(
            command, stdin=subprocess.DEVNULL, cwd=root, env=environment, start_new_session=True
        ) as process:
            is_whole = await _read(process, data, enough=enough)
            complaint = await _complaint(process) if is_whole else ""
            return _Printed(records=bytes(data), complaint=complaint, is_whole=is_whole)
    return _Printed(records=bytes(data), complaint=f"stopped after {seconds:g} s", is_whole=False)


async def _complaint(process: Process) -> str:
    if process.stderr is None:
        return ""
    return b"".join([chunk async for chunk in process.stderr]).decode("utf-8", "replace")


async def _read(process: Process, data: bytearray, *, enough: int) -> bool:
    """Read until the end, or until there is more than will be shown: then stop the program."""
    count = 0
    if process.stdout is None:
        return True
    async for chunk in process.stdout:
        data += chunk
        count += chunk.count(b"\0")
        if count > enough or len(data) > MAX_READ_BYTES:
            process.kill()
            return False
    return True


def _refused(query: _Query, complaint: str) -> Outcome:
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    what = " ".join(lines)[:400]
    if "regex" in complaint or "literal" in complaint:
        literal = SPECIAL.sub(r"\\\1", query.pattern)
        fact = f"{what}. To search for this text literally use the pattern: {literal}"
        return failure("BAD_ARGS", fact, tool="grep")
    if "glob" in complaint:
        return failure("BAD_ARGS", f"{what}. A glob is like `*.py` or `src/**/*.ts`.", tool="grep")
    return failure("FAILED", f"the search failed: {what}. Narrow path or glob.", tool="grep")


def _outcome(query: _Query, found: _Printed, *, shown: str, alias: str | None) -> Outcome:
    lines: list[str] = []
    matches = used = 0
    is_cut, is_full = False, False
    for raw in found.records.split(b"\n"):
        line = _line(raw, alias)
        if line is None or (line.text == "--" and not lines):
            continue
        is_full = (line.is_match and matches == MAX_MATCHES) or used + len(line.text) > MAX_CHARS
        if is_full:
            break
        matches += line.is_match
        is_cut = is_cut or line.is_cut
        used += len(line.text) + 1
        lines.append(line.text)
    label = f"grep {query.pattern[:60]!r}: {matches} matches"
    if not matches:
        return Outcome(text=_none(query, shown, complaint=found.complaint), label=label)
    while lines[-1] == "--":
        lines.pop()
    return Outcome(text="\n".join([*lines, *_notes(found, matches, is_full=is_full, is_cut=is_cut)]), label=label)


def _none(query: _Query, shown: str, *, complaint: str) -> str:
    if complaint:
        return f"[the search was {complaint} without a match; narrow path or glob]"
    where = "the workspace" if shown == "." else shown
    only = f" (files like {query.glob})" if query.glob else ""
    return f"[no match in {where}{only}; .git, binary files and what .gitignore names were not searched]"


def _notes(found: _Printed, matches: int, *, is_full: bool, is_cut: bool) -> Iterator[str]:
    if is_full:
        yield f"[the first {matches} matches; there are more: narrow pattern, path or glob]"
    elif not found.is_whole:
        yield f"[{matches} matches, not all: the search was {found.complaint or 'cut short'}; narrow path or glob]"
    if is_cut:
        yield f"[long lines are cut to {MAX_LINE} characters around the match; read shows more of one]"


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    is_match: bool = False
    is_cut: bool = False


def _line(raw: bytes, alias: str | None) -> _Line | None:
    """A record of the search program as it is shown; None for its other messages."""
    if raw.rstrip(b"\r") == b"--":
        return _Line("--")
    path, separator, rest = raw.partition(b"\0")
    record = RECORD.match(rest) if separator else None
    if record is None:
        return None
    name = alias or path.decode("utf-8", "replace").removeprefix("./")
    number, column, body = record.groups()
    mark = "-" if column is None else ":"
    at = len(body[: int(column or 1) - 1].decode("utf-8", "replace"))
    text = body.decode("utf-8", "replace").removesuffix("\r").replace("\0", "\N{REPLACEMENT CHARACTER}")
    shown = _around(text, at)
    return _Line(f"{name}{mark}{number.decode()}{mark}{shown}", column is not None, shown != text)


def _around(text: str, at: int) -> str:
    if len(text) <= MAX_LINE:
        return text
    start = max(0, min(at - LEAD, len(text) - MAX_LINE))
    end = start + MAX_LINE
    return (
        ("…" if start else "") + text[start + bool(start) : end - (end < len(text))] + ("…" if end < len(text) else "")
    )
