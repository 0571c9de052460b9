"""The request of the Chat Completions wire: manifest and items to bytes.

Everything constant comes first and `messages` last, so that a request without its closing `]}` is a byte prefix of the
next one in its lineage. A rendered group of items is kept and reused; nothing is parsed and dumped again.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import Json, canonical, clean
from xnagent.errors import UsageError
from xnagent.ports import Body

WIRE: Final = "chat"
CLOSING: Final = b"]}"
LIMIT_NAME_OPTION: Final = "max_tokens_name"
"""An option that is not sent: what the endpoint calls the output limit (`max_completion_tokens` at OpenAI)."""

_RESERVED: Final = frozenset({"model", "stream", "messages", "tools"})
_NAME_LIMIT: Final = 64
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")


def encode(manifest: ManifestRecorded, items: Sequence[Item], *, send_reasoning: bool | None = None) -> bytes:
    """The body of the request: a pure function of its arguments; `send_reasoning` None: as the manifest says.

    Raises UsageError if the manifest's options would overwrite what belongs to xnagent.
    """
    head = render_head(manifest)
    wanted = manifest.send_reasoning if send_reasoning is None else send_reasoning
    return b"".join([head, *_render_groups(items, send_reasoning=wanted, is_first=_is_bare(head)), CLOSING])


def render_head(manifest: ManifestRecorded) -> bytes:
    """Everything up to the first item: parameters, tools, and the system message if there is one."""
    fields: dict[str, Json] = {**_parameters(manifest)}
    tools = [_render_tool(tool) for tool in json.loads(manifest.tools or "[]")]
    text = _dump(fields)[:-1] + (f',"tools":{_dump(tools)}' if tools else "") + ',"messages":['
    if manifest.system:
        text += _dump({"role": "system", "content": clean(manifest.system)})
    return text.encode()


def _parameters(manifest: ManifestRecorded) -> dict[str, Json]:
    options: dict[str, Json] = json.loads(manifest.options or "{}")
    if taken := _RESERVED.intersection(options):
        raise UsageError(
            f"OPTION_RESERVED: model options cannot set {', '.join(sorted(taken))}; remove them from `options`"
        )
    limit_name = str(options.pop(LIMIT_NAME_OPTION, "max_tokens"))
    fixed: dict[str, Json] = {
        "model": manifest.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        limit_name: manifest.max_output_tokens,
    }
    merged = {**fixed, **{key: options[key] for key in sorted(options)}}
    return {key: value for key, value in merged.items() if value is not None}


def _render_tool(tool: Mapping[str, Json]) -> Json:
    function = {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "parameters": json.loads(canonical(tool.get("parameters", {}))),
    }
    extra = {key: tool[key] for key in sorted(tool) if key not in function}
    return {"type": "function", "function": {**function, **extra}}


def _is_bare(head: bytes) -> bool:
    return head.endswith(b"[")


def _render_groups(items: Sequence[Item], *, send_reasoning: bool, is_first: bool) -> Iterator[bytes]:
    for group in _groups(items):
        messages = _render_group(group, send_reasoning=send_reasoning)
        text = ",".join(_dump(message) for message in messages)
        yield (text if is_first else "," + text).encode()
        is_first = False


def _groups(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    for speaker, run in groupby(items, key=_speaker):
        if speaker == "user":
            yield from ((item,) for item in run)
        else:
            yield tuple(run)


def _speaker(item: Item) -> str:
    match item:
        case UserText():
            return "user"
        case ToolResult():
            return "tool"
        case Reasoning() | AssistantText() | ToolCall():
            return "assistant"


def _render_group(group: Sequence[Item], *, send_reasoning: bool) -> list[Json]:
    match group[0]:
        case UserText() as message:
            return [{"role": "user", "content": clean(message.text)}]
        case ToolResult():
            return [_render_result(item) for item in group if isinstance(item, ToolResult)]
        case _:
            return [_render_reply(group, send_reasoning=send_reasoning)]


def _render_result(result: ToolResult) -> Json:
    return {"role": "tool", "tool_call_id": clean(result.call_id), "content": clean(result.text)}


def _render_reply(group: Sequence[Item], *, send_reasoning: bool) -> Json:
    text = "".join(item.text for item in group if isinstance(item, AssistantText))
    calls = [_render_call(item) for item in group if isinstance(item, ToolCall)]
    message: dict[str, Json] = {"role": "assistant", "content": None if calls and not text else clean(text)}
    reasoning = "".join(item.payload for item in group if isinstance(item, Reasoning) and item.wire == WIRE)
    if reasoning and send_reasoning:
        message["reasoning_content"] = clean(reasoning)
    if calls:
        message["tool_calls"] = calls
    return message


def _render_call(call: ToolCall) -> Json:
    # An invented name with other characters would make every later request a 400.
    name = _NOT_IN_A_NAME.sub("_", call.name)[:_NAME_LIMIT] or "unknown"
    function = {"name": name, "arguments": clean(call.arguments)}
    return {"id": clean(call.call_id), "type": "function", "function": function}


def _dump(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(slots=True, kw_only=True)
class _Rendered:
    """What was rendered for an agent's newest lineage; grows with it."""

    lineage: str
    manifest: ManifestRecorded
    items: tuple[Item, ...]
    segments: list[bytes]
    digest: Any
    """A running SHA-256; hashlib's type has no public name."""


class ChatEncoder:
    """Renders each item once. The same bytes as `encode`, at the cost of what is new plus one join."""

    def __init__(self) -> None:
        self._rendered: dict[str, _Rendered] = {}

    def encode(self, manifest: ManifestRecorded, spine: Spine) -> Body:
        """The request for the spine as it is."""
        rendered = self._rendered.get(spine.agent)
        if rendered is None or rendered.manifest != manifest or not self._is_extension(rendered, spine):
            rendered = self._begin(manifest, spine)
            self._rendered[spine.agent] = rendered
        _extend(rendered, spine.items)
        digest = rendered.digest.copy()
        digest.update(CLOSING)
        content = b"".join([*rendered.segments, CLOSING])
        return Body(content=content, sha256=digest.hexdigest(), segments=tuple(rendered.segments))

    @staticmethod
    def _is_extension(rendered: _Rendered, spine: Spine) -> bool:
        done, items = rendered.items, spine.items
        if rendered.lineage != spine.lineage or len(items) < len(done):
            return False
        if not all(map(operator.is_, done, items)):
            return False
        joins_last = bool(done) and len(items) > len(done) and _speaker(done[-1]) == _speaker(items[len(done)])
        return not (joins_last and _speaker(done[-1]) != "user")

    @staticmethod
    def _begin(manifest: ManifestRecorded, spine: Spine) -> _Rendered:
        head = render_head(manifest)
        digest = hashlib.sha256(head)
        return _Rendered(lineage=spine.lineage, manifest=manifest, items=(), segments=[head], digest=digest)


def _extend(rendered: _Rendered, items: tuple[Item, ...]) -> None:
    new = items[len(rendered.items) :]
    is_first = len(rendered.segments) == 1 and _is_bare(rendered.segments[0])
    for piece in _render_groups(new, send_reasoning=rendered.manifest.send_reasoning, is_first=is_first):
        rendered.segments.append(piece)
        rendered.digest.update(piece)
    rendered.items = items
