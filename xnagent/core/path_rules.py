"""Path patterns of permission rules, written as in .gitignore."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

TOKEN: Final = re.compile(r"(?P<deep>\*\*)|(?P<star>\*)|(?P<one>\?)|(?P<set>\[!?\]?[^\]/]*\])|(?P<plain>.)", re.DOTALL)
PATH_WORD: Final = re.compile(r"[^=:,;@\s'\"]+")


def problem_of(pattern: str) -> str:
    """Why a pattern can match nothing; empty if it can."""
    parts = pattern.removeprefix("//").split("/")
    if not pattern.strip("/") or pattern.strip() != pattern:
        return "it names nothing"
    if pattern.startswith("!"):
        return "a pattern cannot be turned round with `!`"
    if ".." in parts:
        return "`..` leads out of the workspace"
    if "\0" in pattern or "\n" in pattern:
        return "no path holds such a character"
    return ""


def is_outside(pattern: str) -> bool:
    """Whether it names files outside the workspace, which only commands can reach."""
    return pattern.startswith(("//", "~/"))


def matches(pattern: str, path: str) -> bool:
    """Whether the pattern names the path or a folder above it.

    `path` is relative to the workspace, without `.` and `..`; or absolute, or begins with `~/`, for such a pattern.
    """
    return _compiled(pattern).match(path) is not None


def is_near(pattern: str, path: str) -> bool:
    """As `matches`, and also where everything below the path is named (`secrets` for `secrets/**`)."""
    return matches(pattern, path) or (pattern.endswith("/**") and matches(pattern.removesuffix("/**"), path))


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re.Pattern[str]:
    if is_outside(pattern):
        return re.compile(_body(pattern.removeprefix("/")) + r"(?:/.*)?\Z", re.DOTALL)
    is_anchored = "/" in pattern.rstrip("/")
    body = pattern.removeprefix("./").strip("/")
    before = "" if is_anchored else "(?:.*/)?"
    return re.compile(before + _body(body) + r"(?:/.*)?\Z", re.DOTALL)


def _body(pattern: str) -> str:
    """`**` stands for any number of folders where it is a whole part, `*` and `?` stay within a name."""
    names = pattern.split("/")
    made: list[str] = []
    for at, name in enumerate(names):
        is_last = at == len(names) - 1
        if name == "**":
            made.append(".+" if is_last else "(?:[^/]+/)*")
        else:
            made.append(_name(name) + ("" if is_last else "/"))
    return "".join(made)


def _name(name: str) -> str:
    return "".join(_token(found) for found in TOKEN.finditer(name))


def _token(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "deep" | "star":
            return "[^/]*"
        case "one":
            return "[^/]"
        case "set":
            inner = found[0][1:-1]
            negated = inner.startswith("!")
            chosen = inner.removeprefix("!").replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
            chosen = chosen.replace("^", "\\^").replace("&", "\\&").replace("~", "\\~").replace("|", "\\|")
            return f"[{'^/' if negated else ''}{chosen}]" if _is_ordered(chosen) and chosen else re.escape(found[0])
        case _:
            return re.escape(found[0])


def _is_ordered(chosen: str) -> bool:
    """Whether no range in a set runs backwards."""
    return all(low <= high for low, high in re.findall(r"([^\\])-([^\\])", chosen)) and not chosen.endswith("-")


def tidy(path: str) -> str | None:
    """The path of a tool's argument, relative to the workspace; None for one that leads elsewhere."""
    names: list[str] = []
    for name in path.strip().split("/"):
        if name == "..":
            if not names:
                return None
            names.pop()
        elif name not in {"", "."}:
            names.append(name)
    return "/".join(names) or "."


def paths_in(word: str) -> tuple[str, ...]:
    """What may be a path in a word of a command (`--config=secrets/x` holds `secrets/x`)."""
    found = [word, *PATH_WORD.findall(word)]
    whole = [path if path.startswith(("/", "~/")) else tidy(path) for path in found]
    return tuple(dict.fromkeys(path for path in whole if path))
