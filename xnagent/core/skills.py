"""`SKILL.md` as it is written: front matter of a few lines, then Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from xnagent.core.values import dataclass

NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
NAME_CHARACTERS: Final = 64
DESCRIPTION_CHARACTERS: Final = 1_024
_FENCE: Final = "---"
_KEY: Final = re.compile(r"([A-Za-z][\w-]*):(?:\s+(.*))?$")
_BLOCK: Final = re.compile(r"[|>][+-]?\d?[+-]?$")
_PAIRS: Final = ('"', "'")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillText:
    """A skill as its file says it."""

    name: str
    description: str
    body: str


def parse_skill(text: str, *, folder: str) -> SkillText | str:
    """The skill, or why it cannot be used. `folder` is the name of the folder that it is in."""
    lines = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        return "it has no front matter (`---` on its first line)"
    end = next((number for number, line in enumerate(lines[1:], start=1) if line.rstrip() == _FENCE), None)
    if end is None:
        return "its front matter has no end (`---`)"
    fields = dict(_fields(lines[1:end]))
    name, description = fields.get("name", ""), fields.get("description", "")
    problem = _problem(name, description, folder=folder)
    return problem or SkillText(name=name, description=description, body="\n".join(lines[end + 1 :]).strip())


def _problem(name: str, description: str, *, folder: str) -> str:
    if not name:
        return "its front matter has no `name`"
    if len(name) > NAME_CHARACTERS or not NAME.fullmatch(name):
        return f"its name {name[:NAME_CHARACTERS]!r} is not 1 to {NAME_CHARACTERS} of a-z, 0-9 and single hyphens"
    if name != folder:
        return f"its name {name!r} is not that of its folder, {folder!r}"
    if not description:
        return "its front matter has no `description`"
    if len(description) > DESCRIPTION_CHARACTERS:
        return f"its description has {len(description):,} characters, {DESCRIPTION_CHARACTERS:,} are allowed"
    return ""


def _fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Top-level keys with their texts. A colon in a value needs no quotes; what is nested belongs to the key above."""
    key, parts = "", list[str]()
    for line in lines:
        found = _KEY.match(line)
        if found is None:
            parts.append(line.strip())
            continue
        if key:
            yield key, _value(parts)
        key, parts = found[1], [(found[2] or "").strip()]
    if key:
        yield key, _value(parts)


def _value(parts: list[str]) -> str:
    first, *rest = parts
    kept = [part for part in rest if not part.startswith("#")]
    if _BLOCK.match(first):
        return (" " if first.startswith(">") else "\n").join(rest).strip()
    text = " ".join(part for part in (first, *kept) if part)
    is_quoted = len(text) > 1 and text[0] in _PAIRS and text[-1] == text[0]
    return text[1:-1].replace(text[0] * 2, text[0]) if is_quoted else text
