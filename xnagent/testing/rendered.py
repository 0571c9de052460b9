"""An answer as bytes: server-sent events or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xnagent.core.text import Json
from xnagent.testing.script import ReplySpec

PIECE_CHARACTERS = 40
"""How much text a chunk holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer with the ids of its calls."""

    spec: ReplySpec
    ids: tuple[str, ...]
    model: str
    created: str
    """The answer's id."""
    usage: Mapping[str, Mapping[str, Json]]
    """What `report_usage` gives."""

    @property
    def finish(self) -> str:
        """The finish reason."""
        return self.spec.finish or ("tool_calls" if self.spec.calls else "stop")


def event(data: Json) -> bytes:
    """One server-sent event; half a surrogate pair goes as an escape, as providers send it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        text = json.dumps(data, separators=(",", ":"))
    return b"data: " + text.encode() + b"\n\n"


def output_bytes(spec: ReplySpec) -> int:
    """How much the model wrote."""
    texts = [spec.text, spec.reasoning, *(call.name + call.text for call in spec.calls)]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def stream(answer: Answer) -> list[bytes]:
    """The events of the answer; the last one is the closing mark."""
    spec = answer.spec
    deltas: list[dict[str, Json]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _pieces(spec.reasoning)]
    deltas += [{"content": piece} for piece in _pieces(spec.text)]
    for index, (call, call_id) in enumerate(zip(spec.calls, answer.ids, strict=True)):
        opening: Json = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        deltas.append({"tool_calls": [opening]})
        rest: list[Json] = [{"index": index, "function": {"arguments": piece}} for piece in _pieces(call.text)]
        deltas += [{"tool_calls": [piece]} for piece in rest]
    events = [event(_chunk(answer, delta)) for delta in deltas]
    events.append(event(_chunk(answer, {}, finish=answer.finish)))
    if answer.usage:
        events.append(event({**_frame(answer, "chat.completion.chunk"), "choices": [], **answer.usage}))
    return [*events, b"data: [DONE]\n\n"]


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
    choice = {"index": 0, "message": message, "finish_reason": answer.finish}
    document = {**_frame(answer, "chat.completion"), "choices": [choice], **answer.usage}
    return json.dumps(document, ensure_ascii=False).encode()


def _chunk(answer: Answer, delta: Mapping[str, Json], *, finish: str | None = None) -> dict[str, Json]:
    choice: dict[str, Json] = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**_frame(answer, "chat.completion.chunk"), "choices": [choice]}


def _frame(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": answer.created, "object": kind, "created": 0, "model": answer.model}


def _pieces(text: str) -> Sequence[str]:
    return [text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS)]
