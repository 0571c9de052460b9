"""Answers in Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from xnagent.core.text import Json
from xnagent.testing.answer import Answer, Rendering, event, pieces


def render(answer: Answer) -> Rendering:
    """The events of the answer."""
    events = [*_progress(answer), *(event(_chunk(answer, delta)) for delta in _deltas(answer))]
    if "empty_choices" in answer.quirks:
        events.insert(
            0, event({"id": "", "object": "chat.completion.chunk", "choices": [], "prompt_filter_results": []})
        )
    closing = [event(_chunk(answer, {}, finish=_finish(answer)))]
    if usage := answer.usage.chat():
        closing.append(event({**_frame(answer, "chat.completion.chunk"), "choices": [], **usage}))
    if "no_done" not in answer.quirks:
        closing.append(b"data: [DONE]\n\n")
    return Rendering(events=events, closing=closing)


def whole(answer: Answer) -> bytes:
    """The answer to a request without `stream`."""
    spec = answer.spec
    message: dict[str, Json] = {"role": "assistant", "content": spec.text or None}
    if spec.reasoning:
        message["reasoning_content"] = spec.reasoning
    if spec.calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for call, call_id in zip(spec.calls, answer.ids, strict=True)
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
    document = {**_frame(answer, "chat.completion"), "choices": [choice], **answer.usage.chat()}
    return json.dumps(document, ensure_ascii=False).encode()


def error_event(error: Json) -> bytes:
    """An error in a stream."""
    return event({"error": error})


def _finish(answer: Answer) -> str:
    return answer.spec.finish or ("tool_calls" if answer.spec.calls else "stop")


def _progress(answer: Answer) -> Iterator[bytes]:
    """As llama.cpp: nothing of it is a piece of the answer."""
    reading = answer.usage.reading
    for processed in (reading.cached, reading.prompt) if answer.tells_progress else ():
        chunk = _chunk(answer, {"role": "assistant", "content": None})
        yield event(
            {**chunk, "prompt_progress": {"total": reading.prompt, "cache": reading.cached, "processed": processed}}
        )


def _deltas(answer: Answer) -> Iterator[Mapping[str, Json]]:
    spec = answer.spec
    yield {"role": "assistant", "content": ""}
    yield from ({"reasoning_content": piece} for piece in pieces(spec.reasoning))
    yield from ({"content": piece} for piece in pieces(spec.text))
    for number, (call, call_id) in enumerate(zip(spec.calls, answer.ids, strict=True)):
        index = 0 if "index_zero" in answer.quirks else number
        begin: Json = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        yield {"tool_calls": [begin]}
        for turn, piece in enumerate(pieces(call.text)):
            yield {"tool_calls": [_continued(answer, index, piece=piece, nothing=None if turn % 2 else "")]}


def _continued(answer: Answer, index: int, *, piece: str, nothing: str | None) -> Json:
    if "repeated_ids" in answer.quirks:
        return {"index": index, "id": nothing, "function": {"name": nothing, "arguments": piece}}
    return {"index": index, "function": {"arguments": piece}}


def _chunk(answer: Answer, delta: Mapping[str, Json], *, finish: str | None = None) -> dict[str, Json]:
    choice: dict[str, Json] = {"index": 0, "delta": dict(delta), "finish_reason": finish}
    return {**_frame(answer, "chat.completion.chunk"), "choices": [choice]}


def _frame(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": answer.created, "object": kind, "created": 0, "model": answer.model}
