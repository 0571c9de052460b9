"""Walking a tree and searching it without ripgrep. Also a program: it writes matches as ripgrep does with `--null`.

It runs as a process of its own, so that a pattern that never ends can be stopped; so it imports the standard library
only. Of `.gitignore` it knows comments, `!`, `/`, `*`, `?`, `[…]` and `**` in every folder below the start of the root;
global excludes and `.git/info/exclude` are not read.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

OPEN_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
SNIFFED_BYTES: Final = 8_192
MAX_IGNORE_BYTES: Final = 256 * 1024
MAX_ALTERNATIVES: Final = 64
BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
MAX_DEPTH: Final = 200
FAILED: Final = 2


class PathPattern:
    """A pattern for whole paths; `**` stands for any number of folders. Time is linear in the path's length."""

    def __init__(self, pattern: str) -> None:
        names = [part for part in pattern.split("/") if part]
        if names and names[-1] == "**":
            names.append("*")
        self._parts = [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]
        self.start = self._closed({0})

    def _closed(self, states: set[int]) -> frozenset[int]:
        for at, part in enumerate(self._parts):
            if at in states and part is None:
                states.add(at + 1)
        return frozenset(states)

    def step(self, states: frozenset[int], name: str) -> frozenset[int]:
        """The states after one more folder or file; empty: nothing below can match."""
        found: set[int] = set()
        for at in states:
            part = self._parts[at] if at < len(self._parts) else ()
            if part is None:
                found.add(at)
            elif part and part.match(name):
                found.add(at + 1)
        return self._closed(found)

    def is_match(self, states: frozenset[int]) -> bool:
        """Whether a path that led to these states matches."""
        return len(self._parts) in states

    def matches(self, path: str) -> bool:
        """Whether the whole path matches."""
        states = self.start
        for name in path.split("/"):
            states = self.step(states, name)
        return self.is_match(states)


def alternatives(pattern: str) -> list[str]:
    """The pattern with its braces spelled out: `*.{ts,js}` is `*.ts` and `*.js`."""
    found = [pattern]
    while any(BRACES.search(item) for item in found):
        found = [wide for item in found for wide in _widened(item)][:MAX_ALTERNATIVES]
    return found


def _widened(pattern: str) -> list[str]:
    braces = BRACES.search(pattern)
    if braces is None:
        return [pattern]
    return [pattern[: braces.start()] + choice + pattern[braces.end() :] for choice in braces[1].split(",")]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of a `.gitignore`."""

    folder: str
    """Where it holds, with a final `/`; empty: everywhere."""
    patterns: tuple[PathPattern, ...]
    is_negated: bool
    is_for_folders: bool

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """Whether it speaks of the path."""
        if (self.is_for_folders and not is_folder) or not path.startswith(self.folder):
            return False
        return any(pattern.matches(path.removeprefix(self.folder)) for pattern in self.patterns)


def rule(line: str, folder: str = "") -> Rule | None:
    """The rule of a line; None for blank lines and comments."""
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text.removeprefix("!").removeprefix("\\")
    body = text.rstrip("/")
    wide = [choice if "/" in body else f"**/{choice}" for choice in alternatives(body)]
    return Rule(folder, tuple(PathPattern(choice) for choice in wide), is_negated, text.endswith("/"))


def is_ignored(path: str, rules: Sequence[Rule], *, is_folder: bool) -> bool:
    """What the last rule that speaks of the path says; git's own folder always."""
    if path.rpartition("/")[2] == ".git":
        return True
    last = next((item for item in reversed(rules) if item.matches(path, is_folder=is_folder)), None)
    return last is not None and not last.is_negated


def rules_in(root: str, folder: str) -> list[Rule]:
    """The rules of a folder's `.gitignore`."""
    prefix = "" if folder == "." else f"{folder}/"
    data = read_bytes(f"{root}/{prefix}.gitignore", MAX_IGNORE_BYTES) or b""
    found = (rule(line, prefix) for line in data.decode("utf-8", "replace").splitlines())
    return [item for item in found if item]


def rules_above(root: str, folder: str) -> list[Rule]:
    """The rules that hold in a folder from the folders above it."""
    found: list[Rule] = []
    parts = [] if folder == "." else folder.split("/")
    for depth in range(len(parts)):
        found += rules_in(root, "/".join(parts[:depth]) or ".")
    return found


def read_bytes(path: str, limit: int) -> bytes | None:
    """The beginning of a regular file; None if it is not one. Never blocks."""
    try:
        descriptor = os.open(path, OPEN_FLAGS)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def entries(path: str) -> list[os.DirEntry[str]]:
    """A folder's entries by name; none if it cannot be read."""
    try:
        with os.scandir(path) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def files(root: str, folder: str, *, rules: Sequence[Rule]) -> Iterator[str]:
    """The regular files below a folder that are not ignored, sorted; links are not followed."""
    prefix = "" if folder == "." else f"{folder}/"
    known = [*rules, *rules_in(root, folder)]
    for entry in entries(f"{root}/{folder}"):
        path = prefix + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_ignored(path, known, is_folder=is_folder):
            continue
        if is_folder and path.count("/") < MAX_DEPTH:
            yield from files(root, path, rules=known)
        elif entry.is_file(follow_symlinks=False):
            yield path


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for, and how much around it to show."""

    root: str
    expression: re.Pattern[str]
    context: int

    def in_file(self, path: str) -> Iterator[str]:
        """The records of a file: matches and the lines around them."""
        lines = _lines(f"{self.root}/{path}")
        before: deque[tuple[int, str]] = deque(maxlen=self.context)
        after, last = 0, -1
        for number, line in enumerate(lines, 1):
            match = self.expression.search(line)
            if match is None and not after:
                before.append((number, line))
                continue
            if match is None:
                after -= 1
                yield f"./{path}\0{number}-{line}"
            else:
                if self.context and number - len(before) > last + 1:
                    yield "--"
                yield from (f"./{path}\0{n}-{text}" for n, text in before)
                column = len(os.fsencode(line[: match.start()])) + 1
                yield f"./{path}\0{number}:{column}:{line}"
                after = self.context
            before.clear()
            last = number


def _lines(path: str) -> Iterator[str]:
    head = read_bytes(path, SNIFFED_BYTES)
    if head is None or b"\0" in head:
        return
    with Path(path).open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for line in file:
            yield line.rstrip("\n").removesuffix("\r")


def _chosen(paths: Iterable[str], glob: str | None) -> Iterator[str]:
    filter_rule = rule(glob) if glob else None
    for path in paths:
        if filter_rule is None or filter_rule.matches(path, is_folder=False) != filter_rule.is_negated:
            yield path


def main(request: str, out: TextIO) -> int:
    """Search below a root; `request` is JSON: `root`, `pattern`, `start`, `glob`, `context`."""
    asked = json.loads(request)
    try:
        search = Search(asked["root"], re.compile(asked["pattern"]), asked["context"])
    except re.error as error:
        sys.stderr.write(f"regex parse error: {error}\n")
        return FAILED
    root, start = asked["root"], asked["start"]
    is_file = Path(root, start).is_file()
    paths = iter([start]) if is_file else files(root, start, rules=rules_above(root, start))
    for path in paths if is_file else _chosen(paths, asked["glob"]):
        out.writelines(f"{record}\n" for record in search.in_file(path))
    return 0


if __name__ == "__main__":
    with open(1, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as stdout:
        sys.exit(main(sys.argv[1], stdout))
