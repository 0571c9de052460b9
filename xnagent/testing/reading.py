"""A request of any wire read as Chat Completions messages, so that scripts, brains and pairing rules know one shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

Wire = Literal["chat", "responses", "messages"]

Message = dict[str, Any]


def read_messages(wire: Wire, data: Mapping[str, Any]) -> list[Message]:
    """The messages of a request in chat form; what has no counterpart there is left out."""
    match wire:
        case "chat":
            found = data.get("messages")
            return found if isinstance(found, list) else []
        case "responses":
            return _joined(_from_responses(data))
        case "messages":
            return list(_from_anthropic(data))


def as_blocks(content: object) -> list[Message]:
    """Content of the Messages wire as blocks: a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content) if isinstance(content, list) else []


def response_items(data: Mapping[str, Any]) -> list[Message]:
    """Input of the Responses wire as items: a string is one user message."""
    given = data.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return list(given) if isinstance(given, list) else []


def _from_responses(data: Mapping[str, Any]) -> Iterator[Message]:
    if instructions := data.get("instructions"):
        yield {"role": "system", "content": instructions}
    for item in response_items(data):
        match item.get("type", "message"):
            case "message":
                yield {"role": item.get("role"), "content": item.get("content")}
            case "reasoning":
                text = "".join(part.get("text", "") for part in item.get("summary") or ())
                yield {"role": "assistant", "content": None, "reasoning_content": text}
            case "function_call":
                function = {"name": item.get("name"), "arguments": item.get("arguments")}
                call = {"id": item.get("call_id"), "type": "function", "function": function}
                yield {"role": "assistant", "content": None, "tool_calls": [call]}
            case "function_call_output":
                yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
            case _:
                continue


def _joined(messages: Iterator[Message]) -> list[Message]:
    """Neighbouring items of the assistant are one message."""
    joined: list[Message] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "assistant":
            _merge(joined[-1], message)
        else:
            joined.append(message)
    return joined


def _merge(first: Message, second: Message) -> None:
    if second.get("content") is not None:
        first["content"] = second["content"]
    if "reasoning_content" in second:
        first["reasoning_content"] = first.get("reasoning_content", "") + second["reasoning_content"]
    if calls := second.get("tool_calls"):
        first["tool_calls"] = [*first.get("tool_calls", ()), *calls]


def _from_anthropic(data: Mapping[str, Any]) -> Iterator[Message]:
    if system := data.get("system"):
        yield {"role": "system", "content": system}
    for message in data.get("messages") or ():
        blocks = as_blocks(message.get("content"))
        if message.get("role") == "assistant":
            yield _assistant(blocks)
        else:
            yield from (_of_user(block, message.get("role")) for block in blocks)


def _of_user(block: Mapping[str, Any], role: object) -> Message:
    if block.get("type") == "tool_result":
        return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": block.get("content")}
    return {"role": role, "content": block.get("text", "")}


def _assistant(blocks: list[Message]) -> Message:
    message: Message = {"role": "assistant", "content": _text(blocks, "text") or None}
    if thinking := _text(blocks, "thinking"):
        message["reasoning_content"] = thinking
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    if uses:
        message["tool_calls"] = [_call(block) for block in uses]
    return message


def _text(blocks: list[Message], kind: str) -> str:
    return "".join(str(block.get(kind, "")) for block in blocks if block.get("type") == kind)


def _call(block: Mapping[str, Any]) -> Message:
    arguments = json.dumps(block.get("input"), ensure_ascii=False)
    return {"id": block.get("id"), "type": "function", "function": {"name": block.get("name"), "arguments": arguments}}
