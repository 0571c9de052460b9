"""What Anthropic refuses about cache marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from xnagent.testing.reading import as_blocks
from xnagent.testing.refusal import Refusal

_MOST_MARKS: Final = 4
_UNMARKABLE: Final = frozenset({"thinking", "redacted_thinking"})

Place = tuple[str, Mapping[str, Any]]


def check_marks(data: Mapping[str, Any]) -> Iterator[Refusal]:
    """How many, on what, and in which order of lifetimes."""
    marked = [(where, block) for where, block in _places(data) if block.get("cache_control") is not None]
    if isinstance(data.get("cache_control"), Mapping):
        marked.append(("cache_control", data))
    if len(marked) > _MOST_MARKS:
        yield Refusal(
            message=f"A maximum of {_MOST_MARKS} blocks with cache_control may be provided. Found {len(marked)}."
        )
    is_short = False
    for where, block in marked:
        yield from _mark(where, block)
        mark = block["cache_control"]
        ttl = mark.get("ttl", "5m") if isinstance(mark, Mapping) else "5m"
        if ttl == "1h" and is_short:
            yield Refusal(
                message=f"{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, "
                "`messages`."
            )
        is_short = is_short or ttl == "5m"


def _mark(where: str, block: Mapping[str, Any]) -> Iterator[Refusal]:
    mark = block["cache_control"]
    kind = block.get("type")
    if kind in _UNMARKABLE:
        yield Refusal(message=f"{where}.{kind}.cache_control: Extra inputs are not permitted")
    elif kind == "text" and not block.get("text"):
        yield Refusal(message=f"{where}.text: cache_control cannot be set for empty text blocks")
    if not isinstance(mark, Mapping) or mark.get("type") != "ephemeral":
        found = mark.get("type") if isinstance(mark, Mapping) else mark
        yield Refusal(
            message=f"{where}.cache_control: Input tag '{found}' found using 'type' does not match any of the expected "
            "tags: 'ephemeral'"
        )
    elif mark.get("ttl", "5m") not in {"5m", "1h"}:
        yield Refusal(message=f"{where}.cache_control.ephemeral.ttl: Input should be '5m' or '1h'")


def _places(data: Mapping[str, Any]) -> Iterator[Place]:
    yield from ((f"tools.{n}", tool) for n, tool in enumerate(data.get("tools") or ()))
    yield from ((f"system.{n}", block) for n, block in enumerate(as_blocks(data.get("system"))))
    for number, message in enumerate(data.get("messages") or ()):
        for place, block in enumerate(as_blocks(message.get("content"))):
            where = f"messages.{number}.content.{place}"
            yield where, block
            inner = block.get("content") if block.get("type") == "tool_result" else None
            yield from (
                (f"{where}.content.{n}", part) for n, part in enumerate(inner if isinstance(inner, list) else ())
            )
