"""The other side of each wire, for tests: reads requests back into items and says replies as streams."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from xnagent.core.ids import AgentId, CallId
from xnagent.core.items import AssistantText, Item, Reasoning, ReplyItem, ToolCall, ToolResult, UserText
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import canonical
from xnagent.models.raw_json import elements, members

WIRES = ("chat", "responses", "messages")
TOOLS = [
    {
        "name": "bash",
        "description": "Run.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
    {"name": "read", "description": "Read é.", "parameters": {"type": "object", "properties": {}}},
]
SEALED = {
    "chat": "need ls",
    "responses": '{"id":"rs_1", "type":"reasoning", "summary":[], "encrypted_content":"gAAA\\u003d=" }',
    "messages": '{"type":"thinking", "thinking":"need \\u006cs", "signature":"EqQB/+=="}',
}
"""Reasoning as each wire writes it, in bytes that a parser and dumper would change."""


def manifest(wire: str, **changes: Any) -> ManifestRecorded:
    values: dict[str, Any] = {
        "manifest": "m1",
        "role": "worker",
        "wire": wire,
        "model": "some-model",
        "system": "Be good.",
        "tools": canonical(TOOLS),
        "max_output_tokens": 1000,
        "window_tokens": 100_000,
        "send_reasoning": wire == "chat",
        **changes,
    }
    return ManifestRecorded(**values)


def user(text: str) -> UserText:
    return UserText(text=text, origin="user")


def said(text: str) -> AssistantText:
    return AssistantText(text=text)


def call(call_id: str, arguments: str = "{}", name: str = "bash") -> ToolCall:
    return ToolCall(call_id=CallId(call_id), name=name, arguments=arguments)


def result(call_id: str, text: str = "ok", *, is_error: bool = False) -> ToolResult:
    return ToolResult(call_id=CallId(call_id), text=text, is_error=is_error)


def sealed(wire: str) -> Reasoning:
    return Reasoning(wire=wire, payload=SEALED[wire])


def spine(*items: Item, generation: int = 0) -> Spine:
    return Spine(agent=AgentId("r1"), items=items, generation=generation)


def read_request(wire: str, body: bytes) -> list[Item]:
    """The items that a request holds, in their order; opaque payloads and arguments as they stand in the bytes."""
    text = body.decode()
    parts = list(elements(members(text)["input" if wire == "responses" else "messages"]))
    reader = {"chat": _read_chat, "responses": _read_responses, "messages": _read_messages}[wire]
    return [item for part in parts for item in reader(part)]


def _read_chat(text: str) -> Iterator[Item]:
    message = json.loads(text)
    if message["role"] == "user":
        yield user(message["content"])
    elif message["role"] == "tool":
        yield result(message["tool_call_id"], message["content"])
    elif message["role"] == "assistant":
        if "reasoning_content" in message:
            yield Reasoning(wire="chat", payload=message["reasoning_content"])
        if message["content"] is not None:
            yield said(message["content"])
        for made in message.get("tool_calls", []):
            yield call(made["id"], made["function"]["arguments"], made["function"]["name"])


def _read_responses(text: str) -> Iterator[Item]:
    item = json.loads(text)
    match item.get("type", item.get("role")):
        case "user":
            yield user(item["content"])
        case "assistant":
            yield said(item["content"])
        case "function_call":
            yield call(item["call_id"], item["arguments"], item["name"])
        case "function_call_output":
            yield result(item["call_id"], item["output"])
        case "reasoning":
            yield Reasoning(wire="responses", payload=text)


def _read_messages(text: str) -> Iterator[Item]:
    message = members(text)
    for block_text in elements(message["content"]):
        block = json.loads(block_text)
        match block["type"]:
            case "text":
                yield user(block["text"]) if message["role"] == '"user"' else said(block["text"])
            case "tool_use":
                yield call(block["id"], members(block_text)["input"], block["name"])
            case "tool_result":
                yield result(block["tool_use_id"], block.get("content", ""), is_error=block.get("is_error", False))
            case _:
                yield Reasoning(wire="messages", payload=block_text)


def without_markers(body: bytes) -> bytes:
    return re.sub(rb',"cache_control":\{"type":"ephemeral"(,"ttl":"1h")?\}', b"", body)


def marker_count(body: bytes) -> int:
    return len(body) - len(body.replace(b'"cache_control":{', b'"cache_control":'))


def stream_of(wire: str, items: Sequence[ReplyItem]) -> list[str]:
    """The data strings of an answer that consists of the items."""
    return {"chat": _say_chat, "responses": _say_responses, "messages": _say_messages}[wire](items)


def _say_chat(items: Sequence[ReplyItem]) -> list[str]:
    deltas: list[dict[str, Any]] = []
    for item in items:
        match item:
            case Reasoning():
                deltas.append({"reasoning_content": item.payload})
            case AssistantText():
                deltas += [{"content": item.text[:1]}, {"content": item.text[1:]}]
            case ToolCall():
                index = sum("tool_calls" in delta for delta in deltas)
                function = {"name": item.name, "arguments": item.arguments}
                made = {"index": index, "id": item.call_id, "type": "function", "function": function}
                deltas.append({"tool_calls": [made]})
    has_calls = any(isinstance(item, ToolCall) for item in items)
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls" if has_calls else "stop"})
    top = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    chunks = [{**top, "choices": [choice]} for choice in choices] + [{**top, "choices": [], "usage": usage}]
    return [*map(json.dumps, chunks), "[DONE]"]


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "error": None,
    "incomplete_details": None,
}
RESPONSES_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 8},
    "total_tokens": 120,
}


def response(status: str, output: str = "[]", **more: Any) -> str:
    """A response object as JSON; `output` is JSON already."""
    fields = json.dumps({**RESPONSE, "status": status, "usage": RESPONSES_USAGE, **more})
    return f'{fields[:-1]}, "output": {output}}}'


def numbered(events: Sequence[str]) -> list[str]:
    return [f'{event[:-1]}, "sequence_number": {number}}}' for number, event in enumerate(events)]


def terminal(status: str, output: str = "[]", **more: Any) -> str:
    return f'{{"type": "response.{status}", "response": {response(status, output, **more)}}}'


def item_events(index: int, text: str) -> list[str]:
    """One output item, added and done."""
    item = json.loads(text)
    added = json.dumps({"type": "response.output_item.added", "output_index": index, "item": {**item, **_begun(item)}})
    return [added, f'{{"type": "response.output_item.done", "output_index": {index}, "item": {text}}}']


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    return {"message": {"content": []}, "function_call": {"arguments": ""}}.get(item["type"], {})


def output_text(item: ReplyItem, number: int = 0) -> str:
    """A reply's item as the Responses wire writes it."""
    match item:
        case Reasoning():
            return item.payload
        case AssistantText():
            content = [{"type": "output_text", "text": item.text, "annotations": [], "logprobs": []}]
            message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
            return json.dumps({**message, "content": content})
        case ToolCall():
            made = {"type": "function_call", "id": f"fc_{number}", "call_id": item.call_id, "name": item.name}
            return json.dumps({**made, "arguments": item.arguments, "status": "completed"})


def _say_responses(items: Sequence[ReplyItem]) -> list[str]:
    texts = [output_text(item, number) for number, item in enumerate(items)]
    events = [f'{{"type": "response.created", "response": {response("in_progress", usage=None)}}}']
    for index, text in enumerate(texts):
        added, done = item_events(index, text)
        events += [added, *_deltas(items[index], index), done]
    return numbered([*events, terminal("completed", f"[{','.join(texts)}]")])


def _deltas(item: ReplyItem, index: int) -> list[str]:
    place = {"item_id": f"x_{index}", "output_index": index}
    match item:
        case AssistantText():
            more: dict[str, Any] = {"content_index": 0, "delta": item.text, "logprobs": []}
            return [json.dumps({"type": "response.output_text.delta", **place, **more})]
        case ToolCall():
            return [json.dumps({"type": "response.function_call_arguments.delta", **place, "delta": item.arguments})]
        case _:
            return []


def block_events(index: int, start: str, *deltas: dict[str, Any]) -> list[str]:
    """One content block; `start` is JSON already."""
    grown = [json.dumps({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
    begin = f'{{"type": "content_block_start", "index": {index}, "content_block": {start}}}'
    return [begin, *grown, json.dumps({"type": "content_block_stop", "index": index})]


def message_events(*blocks: Sequence[str], stop: str | None, usage: Any = None, last: Any = None) -> list[str]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    begun = {"input_tokens": 7, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 3, "output_tokens": 1}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage or begun}
    end = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": last or {"output_tokens": 20}}
    return [
        json.dumps({"type": "message_start", "message": start}),
        *(event for block in blocks for event in block),
        json.dumps({"type": "message_delta", **end}),
        json.dumps({"type": "message_stop"}),
    ]


def _say_messages(items: Sequence[ReplyItem]) -> list[str]:
    blocks = [block_events(index, *_block(item)) for index, item in enumerate(items)]
    has_calls = any(isinstance(item, ToolCall) for item in items)
    return message_events(*blocks, stop="tool_use" if has_calls else "end_turn")


def _block(item: ReplyItem) -> tuple[Any, ...]:
    match item:
        case AssistantText():
            pieces = [{"type": "text_delta", "text": part} for part in (item.text[:1], item.text[1:])]
            return ('{"type": "text", "text": "", "citations": null}', *pieces)
        case ToolCall():
            start = json.dumps({"type": "tool_use", "id": item.call_id, "name": item.name, "input": {}})
            parts = ("", item.arguments[:3], item.arguments[3:])
            return (start, *({"type": "input_json_delta", "partial_json": part} for part in parts))
        case Reasoning():
            return (item.payload,)


TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)
IDS = st.sampled_from(["c", "call_1|fc_", "toolu_", "é ", "x" * 90, "call.", "-"])
ARGUMENTS = st.one_of(
    st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.booleans()), max_size=2).map(json.dumps),
    st.sampled_from(
        ["", " ", "null", "[]", '{"a":', '{"b": 1,"a":"\\u00e9", "n":1.0}', '"{\\"a\\":1}"', '{"a":NaN}', "{}{}"]
    ),
    TEXTS,
)


@st.composite
def growths(draw: st.DrawFn) -> list[Spine]:
    """A spine as it grows: messages, replies, calls and their results, reasoning of any wire, now and then a rebase."""
    grown = spine(user(draw(TEXTS)))
    history, number = [grown], 0
    for _ in range(draw(st.integers(0, 6))):
        move = draw(st.sampled_from(["message", "reply", "calls", "rebase"]))
        if move == "rebase":
            grown = replace(spine(grown.items[0], user("<checkpoint>")), generation=grown.generation + 1)
        elif move == "message":
            grown = replace(grown, items=(*grown.items, user(draw(TEXTS))))
        else:
            calls = [
                call(f"{draw(IDS)}{number + n}", draw(ARGUMENTS), draw(st.sampled_from(["bash", "a.b", ""])))
                for n in range(draw(st.integers(1, 3)) if move == "calls" else 0)
            ]
            number += len(calls)
            thoughts = [sealed(draw(st.sampled_from(WIRES)))] if draw(st.booleans()) else []
            texts = [said(draw(TEXTS))] if draw(st.booleans()) or not calls else []
            results = [result(made.call_id, draw(TEXTS), is_error=draw(st.booleans())) for made in calls]
            after = [] if results and draw(st.booleans()) else [user(draw(TEXTS))]
            grown = replace(grown, items=(*grown.items, *thoughts, *texts, *calls, *results, *after))
        history.append(grown)
    return history
