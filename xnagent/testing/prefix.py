"""What two requests of one conversation have in common: the rule I1, for each wire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from xnagent.testing.reading import Message, as_blocks

MARKERS: Final = frozenset({"cache_control", "prompt_cache_breakpoint"})
_LISTS: Final = ("messages", "input")
_HEAD: Final = ("model", "tools", "system", "thinking", "tool_choice")
"""What the prompt of the Messages wire depends on beside its messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A request cut where the next one goes on."""

    head: bytes
    """What stands before the first element."""
    elements: tuple[bytes, ...]
    """Messages, items or blocks, in order."""
    tail: bytes
    """What stands behind the last one."""
    heading: int
    """Elements up to and including the first one of the user."""

    def extends(self, earlier: Prefix) -> bool:
        """Whether an earlier one goes on in this one."""
        count = len(earlier.elements)
        same = self.head == earlier.head and self.tail == earlier.tail
        return same and len(self.elements) > count and self.elements[:count] == earlier.elements

    def keeps_head_of(self, earlier: Prefix) -> bool:
        """Whether everything up to an earlier one's first user message is the same."""
        heading = earlier.heading
        return self.head == earlier.head and self.elements[:heading] == earlier.elements[:heading]

    def joined(self) -> bytes:
        """All of it, to show where two part."""
        return self.head + b"".join(self.elements) + self.tail


def plain_prefix(body: bytes, data: Mapping[str, Any]) -> Prefix:
    """By bytes: each element with the comma that stands before it."""
    key = next((key for key in _LISTS if isinstance(data.get(key), list)), "")
    text = body.decode("utf-8", "surrogateescape")
    begin = _array_start(text, key) if key else -1
    if begin < 0:
        return Prefix(head=body, elements=(), tail=b"", heading=0)
    decoder, at, elements = json.JSONDecoder(), begin, []
    for _ in data[key]:
        start = at
        while text[at] in ", \t\r\n":
            at += 1
        _, at = decoder.raw_decode(text, at)
        elements.append(_bytes(text[start:at]))
    heading = next((n for n, one in enumerate(data[key], 1) if one.get("role") == "user"), len(elements))
    return Prefix(head=_bytes(text[:begin]), elements=tuple(elements), tail=_bytes(text[at:].rstrip()), heading=heading)


def marked_prefix(data: Mapping[str, Any]) -> Prefix:
    """By content without cache markers: a block each, so that a message may grow by blocks."""
    head = {key: [without_markers(one) for one in as_blocks(data.get(key))] for key in ("tools", "system")}
    rest = {key: data.get(key) for key in _HEAD if key not in head}
    turns = [(one.get("role"), block) for one in data.get("messages") or () for block in as_blocks(one.get("content"))]
    elements = tuple(compact([role, without_markers(block)]) for role, block in turns)
    heading = next((n for n, (role, _) in enumerate(turns, 1) if role == "user"), len(turns))
    return Prefix(head=compact({**head, **rest}), elements=elements, tail=b"", heading=heading)


def without_markers(block: Message) -> Message:
    """A block, message or tool without cache markers, in its content too."""
    plain = {key: value for key, value in block.items() if key not in MARKERS}
    if isinstance(plain.get("content"), list):
        plain["content"] = [without_markers(part) if isinstance(part, dict) else part for part in plain["content"]]
    return plain


def compact(value: object) -> bytes:
    """JSON without spaces, keys in their order, half surrogate pairs kept."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _array_start(text: str, key: str) -> int:
    for colon in (":[", ": ["):
        start = text.find(f'"{key}"{colon}')
        if start >= 0:
            return start + len(f'"{key}"{colon}')
    return -1


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
