"""The request of the Chat Completions wire: manifest and items to bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final

from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import Json, clean
from xnagent.models.encoder import Encoder, Piece, render
from xnagent.models.parameters import BREAKPOINT_OPTION, cache_key, merged, options_of, sent_name, tools_of
from xnagent.models.placement import Markers
from xnagent.models.raw_json import argument_text, dump
from xnagent.models.reasoning_details import FIELD as DETAILS

WIRE: Final = "chat"
LIMIT_NAME_OPTION: Final = "max_tokens_name"
"""An option that is not sent: what the endpoint calls the output limit (`max_completion_tokens` at OpenAI)."""

EXTRA: Final = "extra_content"
"""A field beside a call that must come back with it: Gemini's thought signatures, without which it refuses the turn."""
EXTRA_WIRE: Final = f"{WIRE}:{EXTRA}"
"""Marks the opaque item before a reply's calls that holds a JSON list of them, with a place for each call."""

DETAILS_WIRE: Final = f"{WIRE}:{DETAILS}"
"""Marks the opaque item that holds a reply's reasoning as a JSON list of OpenRouter's blocks."""

_RESERVED: Final = frozenset({"model", "stream", "messages", "tools"})
_BEGUN: Final = "system"
"""The system message stands before, and nothing else."""
_JOINED: Final = ","
"""A message of the history stands before."""


def encode(manifest: ManifestRecorded, items: Sequence[Item], *, send_reasoning: bool | None = None) -> bytes:
    """The body of the request: a pure function of its arguments; `send_reasoning` None: as the manifest says.

    Raises UsageError if the manifest's options would overwrite what belongs to xnagent.
    """
    if send_reasoning is not None:
        manifest = replace(manifest, send_reasoning=send_reasoning)
    return render(ChatRenderer(), manifest, items=items)


class ChatRenderer:
    """Implements `encoder.Renderer`."""

    def head(self, manifest: ManifestRecorded, items: Sequence[Item]) -> Piece:
        """Parameters, tools, and the system message if there is one."""
        tools: list[Json] = [{"type": "function", "function": tool} for tool in tools_of(manifest, schema="parameters")]
        text = dump(_parameters(manifest, items))[:-1] + (f',"tools":{dump(tools)}' if tools else "") + ',"messages":['
        if not manifest.system:
            return Piece(content=text.encode(), after="")
        text += dump({"role": "system", "content": clean(manifest.system)})
        return Piece(content=text.encode(), after=_BEGUN)

    def group(self, group: Sequence[Item], *, manifest: ManifestRecorded, after: str) -> Piece:
        """One message, or one for each result."""
        messages = _render_group(group, send_reasoning=manifest.send_reasoning)
        if after != _JOINED and isinstance(group[0], UserText) and _has_breakpoints(manifest):
            messages = [_render_objective(group[0])]
        joint = "," if after else ""
        return Piece(content=(joint + ",".join(map(dump, messages))).encode(), after=_JOINED)

    def closing(self, after: str) -> bytes:
        """Of the messages and the body."""
        return b"]}"

    def markers(self, manifest: ManifestRecorded) -> Markers | None:
        """None that moves: the newest message is a breakpoint by itself where there are any."""
        return None


class ChatEncoder(Encoder):
    """The encoder of this wire."""

    def __init__(self) -> None:
        super().__init__(ChatRenderer())


def _has_breakpoints(manifest: ManifestRecorded) -> bool:
    return options_of(manifest, ()).get(BREAKPOINT_OPTION) is True


def _parameters(manifest: ManifestRecorded, items: Sequence[Item]) -> dict[str, Json]:
    options = options_of(manifest, _RESERVED)
    key: dict[str, Json] = {"prompt_cache_key": cache_key(manifest, items)} if _has_breakpoints(manifest) else {}
    options.pop(BREAKPOINT_OPTION, None)
    limit_name = str(options.pop(LIMIT_NAME_OPTION, "max_tokens"))
    fixed: dict[str, Json] = {
        "model": manifest.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        limit_name: manifest.max_output_tokens,
        **key,
    }
    return merged(fixed, options)


def _render_group(group: Sequence[Item], *, send_reasoning: bool) -> list[Json]:
    match group[0]:
        case UserText() as message:
            return [{"role": "user", "content": clean(message.text)}]
        case ToolResult():
            return [_render_result(item) for item in group if isinstance(item, ToolResult)]
        case _:
            return [_render_reply(group, send_reasoning=send_reasoning)]


def _render_objective(message: UserText) -> Json:
    marked: Json = {"type": "text", "text": clean(message.text), "prompt_cache_breakpoint": {"mode": "explicit"}}
    return {"role": "user", "content": [marked]}


def _render_result(result: ToolResult) -> Json:
    return {"role": "tool", "tool_call_id": clean(result.call_id), "content": clean(result.text)}


def _render_reply(group: Sequence[Item], *, send_reasoning: bool) -> Json:
    text = "".join(item.text for item in group if isinstance(item, AssistantText))
    calls = _render_calls(group)
    message: dict[str, Json] = {"role": "assistant", "content": None if calls and not text else clean(text)}
    if reasoning := _payload(group, WIRE) if send_reasoning else "":
        message["reasoning_content"] = clean(reasoning)
    if details := _payload(group, DETAILS_WIRE):
        message[DETAILS] = json.loads(details)
    if calls:
        message["tool_calls"] = calls
    return message


def _payload(group: Sequence[Item], wire: str) -> str:
    return "".join(item.payload for item in group if isinstance(item, Reasoning) and item.wire == wire)


def _render_calls(group: Sequence[Item]) -> list[Json]:
    calls = [item for item in group if isinstance(item, ToolCall)]
    extras: list[Json] = json.loads(_payload(group, EXTRA_WIRE) or "[]")
    return [_render_call(call, extra) for call, extra in zip_longest(calls, extras[: len(calls)]) if call is not None]


def _render_call(call: ToolCall, extra: Json) -> Json:
    function = {"name": sent_name(call.name), "arguments": argument_text(call.arguments)}
    beside: dict[str, Json] = {EXTRA: extra} if extra else {}
    return {"id": clean(call.call_id), "type": "function", "function": function, **beside}
