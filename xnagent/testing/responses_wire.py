"""Answers in OpenAI Responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from xnagent.core.text import Json
from xnagent.testing.answer import Answer, Rendering, encrypt, event, pieces

Item = dict[str, Json]

_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


def render(answer: Answer) -> Rendering:
    """The events of the answer."""
    opening: Json = _response(answer, status="in_progress", items=[])
    data: list[Item] = [{"type": f"response.{kind}", "response": opening} for kind in ("created", "in_progress")]
    items = _items(answer)
    for index, item in enumerate(items):
        data += _item_events(index, item)
    status = "incomplete" if answer.spec.finish in _INCOMPLETE else "completed"
    data.append({"type": f"response.{status}", "response": _response(answer, status=status, items=items)})
    events = [event({**one, "sequence_number": n}, name=str(one["type"])) for n, one in enumerate(data)]
    return Rendering(events=events[:-1], closing=events[-1:])


def whole(answer: Answer) -> bytes:
    """The answer to a request without `stream`."""
    status = "incomplete" if answer.spec.finish in _INCOMPLETE else "completed"
    return json.dumps(_response(answer, status=status, items=_items(answer)), ensure_ascii=False).encode()


def error_event(error: Json) -> bytes:
    """A failed response."""
    told: Item = {"code": "server_error", "message": str(error)}
    if isinstance(error, dict):
        told = {"code": str(error.get("code") or error.get("type") or "server_error"), "message": error.get("message")}
    response: Item = {"id": "resp_failed", "object": "response", "created_at": 0, "model": "", "status": "failed"}
    response |= {"error": told, "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return event({"type": "response.failed", "response": response, "sequence_number": 1}, name="response.failed")


def _response(answer: Answer, *, status: str, items: list[Item]) -> Item:
    reason = _INCOMPLETE.get(answer.spec.finish)
    response: Item = {
        "id": f"resp_{answer.created}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        "instructions": None,
        "model": answer.model,
        "output": list[Json](items),
        "parallel_tool_calls": True,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
    }
    return {**response, **(answer.usage.responses() if status != "in_progress" else {"usage": None})}


def _items(answer: Answer) -> list[Item]:
    spec, made = answer.spec, answer.created
    items: list[Item] = []
    if spec.reasoning:
        summary: Json = [{"type": "summary_text", "text": spec.reasoning}]
        hidden: Item = {"encrypted_content": encrypt(spec.reasoning)} if answer.is_encrypted else {}
        items.append({"id": f"rs_{made}", "type": "reasoning", "summary": summary, **hidden})
    if spec.text:
        content: Json = [{"type": "output_text", "text": spec.text, "annotations": [], "logprobs": []}]
        message: Item = {"id": f"msg_{made}", "type": "message", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    for number, (call, call_id) in enumerate(zip(spec.calls, answer.ids, strict=True), 1):
        known: Item = {"id": f"fc_{made}_{number}", "type": "function_call", "status": "completed"}
        items.append({**known, "call_id": call_id, "name": call.name, "arguments": call.text})
    return items


def _item_events(index: int, item: Item) -> Iterator[Item]:
    at: Item = {"output_index": index}
    match item["type"]:
        case "reasoning":
            opening: Item = {**item, "summary": []}
            inner = _summary_events({**at, "item_id": item["id"]}, item["summary"])
        case "message":
            opening = {**item, "content": [], "status": "in_progress"}
            inner = _text_events({**at, "item_id": item["id"], "content_index": 0}, item["content"])
        case _:
            opening = {**item, "arguments": "", "status": "in_progress"}
            inner = _call_events({**at, "item_id": item["id"]}, str(item["arguments"]), name=str(item["name"]))
    yield {"type": "response.output_item.added", **at, "item": opening}
    yield from inner
    yield {"type": "response.output_item.done", **at, "item": item}


def _summary_events(at: Item, summary: Json) -> Iterator[Item]:
    text = _text_of(summary)
    at, kind = {**at, "summary_index": 0}, "response.reasoning_summary"
    yield {"type": f"{kind}_part.added", **at, "part": {"type": "summary_text", "text": ""}}
    yield from ({"type": f"{kind}_text.delta", **at, "delta": piece} for piece in pieces(text))
    yield {"type": f"{kind}_text.done", **at, "text": text}
    yield {"type": f"{kind}_part.done", **at, "part": {"type": "summary_text", "text": text}}


def _text_events(at: Item, content: Json) -> Iterator[Item]:
    text = _text_of(content)
    part: Item = {"type": "output_text", "annotations": [], "logprobs": []}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in pieces(text):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": {**part, "text": text}}


def _call_events(at: Item, arguments: str, *, name: str) -> Iterator[Item]:
    kind = "response.function_call_arguments"
    yield from ({"type": f"{kind}.delta", **at, "delta": piece} for piece in pieces(arguments))
    yield {"type": f"{kind}.done", **at, "arguments": arguments, "name": name}


def _text_of(parts: Json) -> str:
    first = parts[0] if isinstance(parts, list) else None
    return str(first.get("text")) if isinstance(first, dict) else ""
