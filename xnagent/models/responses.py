"""The request of the OpenAI Responses wire, stateless: nothing is stored there, sealed reasoning goes back as it came.

Tools and instructions come first and `input` last, so that requests extend each other byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import Json, clean
from xnagent.models.encoder import Piece, render, with_what_follows
from xnagent.models.parameters import BREAKPOINT_OPTION, cache_key, merged, options_of, sent_name, short_id, tools_of
from xnagent.models.placement import Markers
from xnagent.models.raw_json import argument_text, dump, whole_pairs

WIRE: Final = "responses"
PHASE: Final = "phase"
"""A reply's text may be labelled; the label is kept as an opaque item before it: `{"phase":"commentary"}`."""

_RESERVED: Final = frozenset(
    {
        "model",
        "stream",
        "store",
        "instructions",
        "input",
        "tools",
        "previous_response_id",
        "conversation",
        "background",
        "prompt",
    }
)
_JOINED: Final = ","


def encode(manifest: ManifestRecorded, items: Sequence[Item]) -> bytes:
    """The body of the request: a pure function of its arguments.

    Raises UsageError if the manifest's options would overwrite what belongs to xnagent.
    """
    return render(ResponsesRenderer(), manifest, items=items)


class ResponsesRenderer:
    """Implements `encoder.Renderer`."""

    def head(self, manifest: ManifestRecorded, items: Sequence[Item]) -> Piece:
        """Parameters, tools, instructions."""
        parts: dict[str, Json] = {**_parameters(manifest, items)}
        if tools := tools_of(manifest, schema="parameters"):
            # Left out, `strict` would be true, which wants every property to be required.
            parts["tools"] = [{"type": "function", "strict": False, **tool} for tool in tools]
        if manifest.system:
            parts["instructions"] = clean(manifest.system)
        return Piece(content=(dump(parts)[:-1] + ',"input":[').encode(), after="")

    def group(self, group: Sequence[Item], *, manifest: ManifestRecorded, after: str) -> Piece:
        """Its items in their order."""
        is_marked = not after and options_of(manifest, ()).get(BREAKPOINT_OPTION) is True
        texts = _render_objective(group) if is_marked else ",".join(_render(group))
        return Piece(content=((after if texts else "") + texts).encode(), after=_JOINED if texts else after)

    def closing(self, after: str) -> bytes:
        """Of the input and the body."""
        return b"]}"

    def markers(self, manifest: ManifestRecorded) -> Markers | None:
        """None that moves: the newest message is a breakpoint by itself."""
        return None


def _parameters(manifest: ManifestRecorded, items: Sequence[Item]) -> dict[str, Json]:
    options = options_of(manifest, _RESERVED)
    options.pop(BREAKPOINT_OPTION, None)
    fixed: dict[str, Json] = {
        "model": manifest.model,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": manifest.max_output_tokens,
        "prompt_cache_key": cache_key(manifest, items),
    }
    return merged(fixed, options)


def _render_objective(group: Sequence[Item]) -> str:
    text = "".join(item.text for item in group if isinstance(item, UserText))
    part: dict[str, Json] = {"type": "input_text", "text": text, "prompt_cache_breakpoint": {"mode": "explicit"}}
    return dump({"role": "user", "content": [part]})


def _render(group: Sequence[Item]) -> Iterator[str]:
    phase: Json = None
    for item in with_what_follows(group):
        match item:
            case UserText():
                yield dump({"role": "user", "content": item.text})
            case AssistantText():
                label = {} if phase is None else {PHASE: phase}
                yield dump({"role": "assistant", "content": item.text, **label})
                phase = None
            case ToolCall():
                yield _render_call(item)
            case ToolResult():
                call_id = short_id(clean(item.call_id))
                yield dump({"type": "function_call_output", "call_id": call_id, "output": item.text})
            case Reasoning(wire="responses"):
                own = _own(item.payload)
                phase = own.get(PHASE)
                yield from [whole_pairs(item.payload)] if _can_return(own) else []
            case Reasoning():
                pass


def _render_call(call: ToolCall) -> str:
    call_id, arguments = short_id(clean(call.call_id)), argument_text(call.arguments)
    return dump({"type": "function_call", "call_id": call_id, "name": sent_name(call.name), "arguments": arguments})


def _own(payload: str) -> dict[str, Any]:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _can_return(item: dict[str, Any]) -> bool:
    """Whether an opaque item holds what it stands for: the endpoint, which stores nothing, can't look up its id."""
    kind = item.get("type")
    if kind == "reasoning":
        return bool(item.get("encrypted_content") or item.get("content"))
    return kind == "compaction" and bool(item.get("encrypted_content"))
