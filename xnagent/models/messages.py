"""The request of the Anthropic Messages wire: manifest and items to bytes.

Tools and system come first and `messages` last. A message is left open until another role speaks: that is how results
and the texts after them become one message, and how a longer request still begins with the bytes of the shorter one,
cache markers apart (`placement`, `Encoder`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Literal

from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import Json, clean
from xnagent.errors import UsageError
from xnagent.models.encoder import Piece, render, with_what_follows
from xnagent.models.parameters import LIFETIME_OPTION, merged, options_of, plain_id, sent_name, tools_of
from xnagent.models.placement import Block, Markers
from xnagent.models.raw_json import dump, object_text, whole_pairs

WIRE: Final = "messages"
EMPTY: Final = "(empty)"
"""Stands where a message would have no text at all, which the wire refuses."""

_RESERVED: Final = frozenset({"model", "stream", "messages", "tools", "system", "cache_control"})
_SHORT: Final = b',"cache_control":{"type":"ephemeral"}'
_LONG: Final = b',"cache_control":{"type":"ephemeral","ttl":"1h"}'
_MARKERS: Final = {
    "5m": Markers(short=_SHORT, long=_LONG),
    "1h": Markers(short=_LONG, long=_LONG),
    "none": None,
}
_OPAQUE: Final = frozenset({"thinking", "redacted_thinking"})


def encode(manifest: ManifestRecorded, items: Sequence[Item], *, long_items: int = 0) -> bytes:
    """The body of the request: a pure function of its arguments.

    Cache markers up to `long_items` items ask for an hour, those behind for five minutes.
    Raises UsageError if the manifest's options would overwrite what belongs to xnagent, or name an unknown lifetime.
    """
    return render(MessagesRenderer(), manifest, items=items, long_items=long_items)


class MessagesRenderer:
    """Implements `encoder.Renderer`."""

    def head(self, manifest: ManifestRecorded, items: Sequence[Item]) -> Piece:
        """Parameters, tools, system; the first cache marker goes to their end."""
        parts: dict[str, Json] = {**_parameters(manifest)}
        tools: list[dict[str, Json]] = tools_of(manifest, schema="input_schema")
        system: list[dict[str, Json]] = []
        if manifest.system.strip():
            system.append({"type": "text", "text": clean(manifest.system)})
        parts |= {"tools": tools} if tools else {}
        parts |= {"system": system} if system else {}
        content = dump(parts)[:-1].encode()
        mark_at = len(content) - len(b"}]") if tools or system else None
        return Piece(content=content + b',"messages":[', after="", mark_at=mark_at)

    def group(self, group: Sequence[Item], *, manifest: ManifestRecorded, after: str) -> Piece:
        """Its blocks, in the message that is open if the same role speaks."""
        role: Literal["user", "assistant"] = "user" if isinstance(group[0], UserText | ToolResult) else "assistant"
        rendered = list(_render(group)) or ([] if after == role else [(_text(EMPTY), True)])
        if not rendered:
            return Piece(content=b"", after=after)
        joint = ("," if after == role else _opening(role, after)).encode()
        texts = [text.encode() for text, _ in rendered]
        ends = accumulate((len(text) + 1 for text in texts), initial=len(joint) - 1)
        blocks = tuple(
            Block(speaker=role, mark_at=end - 1 if can_be_marked else None)
            for end, (_, can_be_marked) in zip(list(ends)[1:], rendered, strict=True)
        )
        return Piece(content=joint + b",".join(texts), after=role, blocks=blocks)

    def closing(self, after: str) -> bytes:
        """Of the open message, if there is one, and the body."""
        return b"]}]}" if after else b"]}"

    def markers(self, manifest: ManifestRecorded) -> Markers | None:
        """A field at the end of a block."""
        lifetime = options_of(manifest, ()).get(LIFETIME_OPTION) or "5m"
        if not isinstance(lifetime, str) or lifetime not in _MARKERS:
            known = ", ".join(_MARKERS)
            raise UsageError(f"OPTION_INVALID: {LIFETIME_OPTION} is {lifetime!r}; choose one of {known}")
        return _MARKERS[lifetime]


def _opening(role: str, after: str) -> str:
    return ("]}," if after else "") + f'{{"role":"{role}","content":['


def _parameters(manifest: ManifestRecorded) -> dict[str, Json]:
    options = options_of(manifest, _RESERVED)
    options.pop(LIFETIME_OPTION, None)
    return merged({"model": manifest.model, "max_tokens": manifest.max_output_tokens, "stream": True}, options)


def _render(group: Iterable[Item]) -> Iterator[tuple[str, bool]]:
    """The blocks as JSON, each with whether a cache marker may stand on it."""
    for item in with_what_follows(tuple(group)):
        match item:
            case UserText() | AssistantText():
                yield from [(_text(item.text), True)] if item.text.strip() else []
            case ToolCall():
                yield _use(item), True
            case ToolResult():
                yield _result(item), item.is_error or bool(item.text.strip())
            case Reasoning(wire="messages"):
                yield from [(whole_pairs(item.payload), False)] if _is_own(item.payload) else []
            case Reasoning():
                pass


def _text(text: str) -> str:
    return dump({"type": "text", "text": text})


def _use(call: ToolCall) -> str:
    start = dump({"type": "tool_use", "id": plain_id(clean(call.call_id)), "name": sent_name(call.name)})
    return f'{start[:-1]},"input":{object_text(call.arguments)}}}'


def _result(result: ToolResult) -> str:
    # An error must say something; what is no error may be empty.
    text = EMPTY if result.is_error and not result.text.strip() else result.text
    content: dict[str, Json] = {"content": text} if text.strip() else {}
    flag: dict[str, Json] = {"is_error": True} if result.is_error else {}
    return dump({"type": "tool_result", "tool_use_id": plain_id(clean(result.call_id)), **content, **flag})


def _is_own(payload: str) -> bool:
    try:
        block = json.loads(payload)
    except (ValueError, RecursionError):
        return False
    return isinstance(block, dict) and block.get("type") in _OPAQUE
