"""Answers in Anthropic Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from xnagent.core.text import Json
from xnagent.testing.answer import Answer, Rendering, event, pieces, sign

_REASONS: Final = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}

Block = dict[str, Json]


def render(answer: Answer) -> Rendering:
    """The events of the answer."""
    opening = {**_message(answer), "content": [], "stop_reason": None, **answer.usage.messages(is_start=True)}
    events = [_event({"type": "message_start", "message": opening}), _event({"type": "ping"})]
    for index, block in enumerate(_blocks(answer)):
        events += [_event(data) for data in _block_events(index, block)]
    delta: Json = {"stop_reason": _reason(answer), "stop_sequence": None}
    closing: dict[str, Json] = {"type": "message_delta", "delta": delta, **answer.usage.messages(is_start=False)}
    return Rendering(events=events, closing=[_event(closing), _event({"type": "message_stop"})])


def whole(answer: Answer) -> bytes:
    """The answer to a request without `stream`."""
    content: list[Json] = [_finished(block) for block in _blocks(answer)]
    usage = answer.usage.messages(is_start=False)
    document = {**_message(answer), "content": content, "stop_reason": _reason(answer), **usage}
    return json.dumps(document, ensure_ascii=False).encode()


def error_event(error: Json) -> bytes:
    """An error in a stream."""
    told: Block = dict(error) if isinstance(error, Mapping) else {"message": str(error)}
    return event({"type": "error", "error": {"type": "api_error", **told}}, name="error")


def _event(data: dict[str, Json]) -> bytes:
    return event(data, name=str(data["type"]))


def _message(answer: Answer) -> dict[str, Json]:
    frame: dict[str, Json] = {"id": f"msg_{answer.created}", "type": "message", "role": "assistant"}
    return {**frame, "model": answer.model, "stop_sequence": None}


def _reason(answer: Answer) -> str:
    reason = answer.spec.finish or ("tool_calls" if answer.spec.calls else "stop")
    return _REASONS.get(reason, reason)


def _blocks(answer: Answer) -> Iterator[Block]:
    """The blocks, a call with its arguments as text."""
    spec = answer.spec
    if spec.reasoning:
        yield {"type": "thinking", "thinking": spec.reasoning, "signature": sign(spec.reasoning)}
    if spec.text:
        yield {"type": "text", "text": spec.text}
    for call, call_id in zip(spec.calls, answer.ids, strict=True):
        yield {"type": "tool_use", "id": call_id, "name": call.name, "input": call.text}


def _finished(block: Block) -> Block:
    if block["type"] != "tool_use":
        return block
    try:
        parsed: Json = json.loads(str(block["input"]) or "{}")
    except ValueError:
        parsed = {}
    return {**block, "input": parsed}


def _block_events(index: int, block: Block) -> Iterator[dict[str, Json]]:
    at: dict[str, Json] = {"index": index}
    match block["type"]:
        case "thinking":
            empty: Block = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(str(block["thinking"]))]
            deltas.append({"type": "signature_delta", "signature": str(block["signature"])})
        case "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(str(block["text"]))]
        case _:
            empty = {**block, "input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(str(block["input"])))
            ]
    yield {"type": "content_block_start", **at, "content_block": empty}
    yield from ({"type": "content_block_delta", **at, "delta": dict[str, Json](delta)} for delta in deltas)
    yield {"type": "content_block_stop", **at}
