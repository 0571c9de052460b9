"""The `glob` tool: paths by pattern, never outside the root."""

from __future__ import annotations

import functools
import itertools
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Final

from xnagent.core.spine_events import ToolStarted
from xnagent.core.values import dataclass
from xnagent.ports import Call, Intent, Outcome, ToolSpec
from xnagent.tools.outcome import RefusedError, attempt, workspace_of
from xnagent.tools.paths import Place, locate, not_found, status_of
from xnagent.tools.walk import MAX_DEPTH, PathPattern, Rule, alternatives, entries, is_ignored, rules_above, rules_in

MAX_PATHS: Final = 200
TIME_LIMIT_SECONDS: Final = 20.0

_SPEC = ToolSpec(
    name="glob",
    description=(
        "List files and directories (marked with `/`) by a pattern, sorted by path, at most 200. `*` and `?` stay "
        "within one name, `**` stands for any number of directories, `{a,b}` for either: `**/*.py`, "
        "`src/**/test_*.{ts,tsx}`. Hidden files are listed; .git never; what .gitignore names only if nothing else "
        "matches. Links are not followed."
    ),
    parameters={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "Pattern, relative to path."},
            "path": {"type": "string", "description": "Directory to look in. Default: the workspace root."},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobTool:
    """Finds paths."""

    @property
    def spec(self) -> ToolSpec:
        """Its definition."""
        return _SPEC

    async def intend(self, call: Call) -> Intent | Outcome:
        """Listing may be repeated."""
        return Intent(effect="pure")

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """List what matches, within 20 seconds."""
        return await attempt("glob", functools.partial(_run, call))

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """Run it again."""
        return None


def _run(call: Call) -> Outcome:
    root = workspace_of(call).root
    place = locate(root, str(call.arguments.get("path", ".")).strip() or ".")
    status = status_of(place)
    if status is None:
        raise not_found(place)
    if not stat.S_ISDIR(status.st_mode):
        raise RefusedError("NOT_DIRECTORY", f"{place.name} is a file; path is the directory to look in.")
    pattern = _relative(str(call.arguments["pattern"]), place)
    search = _Search.of(pattern, place)
    found = search.first(is_ignoring=True)
    note = ""
    if not found:
        found = search.first(is_ignoring=False)
        note = "[all of them are excluded by .gitignore]" if found else ""
    return _outcome(pattern, found, place=place, note=note)


def _relative(pattern: str, place: Place) -> str:
    text = pattern.strip()
    for prefix in (place.full, place.root):
        if text.startswith(f"{prefix}/") and place.full.startswith(prefix):
            text = text.removeprefix(f"{prefix}/")
            break
    parts = text.split("/")
    if not text or "\0" in text:
        raise RefusedError("BAD_ARGS", "the pattern is empty or holds a NUL character; `*` lists a directory.")
    if text.startswith("/") or ".." in parts:
        raise RefusedError("OUTSIDE", f"{pattern} leads out of {place.name}. Patterns are relative to path.")
    return "/".join(part for part in parts if part not in {"", "."}) or "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    patterns: tuple[PathPattern, ...]
    place: Place
    deadline: float

    @classmethod
    def of(cls, pattern: str, place: Place) -> _Search:
        patterns = tuple(PathPattern(choice) for choice in alternatives(pattern))
        return cls(patterns=patterns, place=place, deadline=time.monotonic() + TIME_LIMIT_SECONDS)

    def first(self, *, is_ignoring: bool) -> list[str]:
        """One more than is shown, so that the reader learns that there are more."""
        start = tuple(pattern.start for pattern in self.patterns)
        rules = rules_above(self.place.root, self.place.name) if is_ignoring else None
        return list(itertools.islice(self._below(self.place.name, start, rules=rules), MAX_PATHS + 1))

    def _below(self, folder: str, states: Sequence[frozenset[int]], *, rules: Sequence[Rule] | None) -> Iterator[str]:
        if time.monotonic() > self.deadline:
            raise RefusedError("FAILED", f"no end after {TIME_LIMIT_SECONDS:.0f} s; narrow path or pattern.")
        known = None if rules is None else [*rules, *rules_in(self.place.root, folder)]
        prefix = "" if folder == "." else f"{folder}/"
        for entry in entries(f"{self.place.root}/{folder}"):
            path = prefix + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_ignored(path, known or (), is_folder=is_folder):
                continue
            after = tuple(p.step(s, entry.name) for p, s in zip(self.patterns, states, strict=True))
            if any(p.is_match(s) for p, s in zip(self.patterns, after, strict=True)):
                yield f"{path}/" if is_folder else path
            if is_folder and any(after) and path.count("/") < MAX_DEPTH:
                yield from self._below(path, after, rules=known)


def _outcome(pattern: str, found: Sequence[str], *, place: Place, note: str) -> Outcome:
    shown = [path.encode("utf-8", "replace").decode() for path in found[:MAX_PATHS]]
    label = f"glob {pattern}: {len(shown)} paths"
    if not shown:
        advice = f"; `**/{pattern}` looks in all directories below" if "/" not in pattern else ""
        return Outcome(text=f"[nothing matches {pattern} in {place.name}{advice}]", label=label)
    more = [f"[the first {MAX_PATHS} paths; there are more: narrow path or pattern]"] if len(found) > MAX_PATHS else []
    return Outcome(text="\n".join([*shown, *([note] if note else []), *more]), label=label)
