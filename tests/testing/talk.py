"""A small client for each wire: keeps a conversation as that wire wants it, and reads streams and whole answers."""

import http.client
import json
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from xnagent.testing.server import ScriptedServer

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
WIRES = list(PATHS)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def exchange(server: ScriptedServer, wire: str, body: object) -> tuple[int, dict[str, str], bytes]:
    raw = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    address = urlsplit(server.base_url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    try:
        connection.request("POST", PATHS[wire], raw, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def post(server: ScriptedServer, wire: str, body: object) -> tuple[int, dict]:
    status, _, raw = exchange(server, wire, body)
    return status, json.loads(raw)


def events_of(raw: bytes) -> list[dict]:
    text = raw.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    data = [line[5:].strip() for line in text.split("\n") if line.startswith("data:")]
    return [json.loads(one) for one in data if one and one != "[DONE]"]


def tools_of(wire: str, *names: str) -> list[dict]:
    flat = [{"name": name, "parameters": SCHEMA} for name in names]
    if wire == "messages":
        return [{"name": name, "input_schema": SCHEMA} for name in names]
    if wire == "responses":
        return [{"type": "function", **tool} for tool in flat]
    return [{"type": "function", "function": tool} for tool in flat]


@dataclass
class Said:
    """An answer, whatever its wire."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    finish: str = ""
    usage: dict = field(default_factory=dict)
    turn: list[dict] = field(default_factory=list)
    """What goes back."""


@dataclass
class Talk:
    """One conversation."""

    wire: str
    system: str = "Be good."
    tools: tuple[str, ...] = ("bash",)
    history: list[dict] = field(default_factory=list)

    def user(self, text: str) -> "Talk":
        kind = {"chat": "text", "responses": "input_text", "messages": "text"}[self.wire]
        self.history.append({"role": "user", "content": [{"type": kind, "text": text}]})
        return self

    def results(self, *results: tuple[str, str], then: str = "") -> "Talk":
        match self.wire:
            case "chat":
                self.history += [{"role": "tool", "tool_call_id": i, "content": text} for i, text in results]
            case "responses":
                self.history += [{"type": "function_call_output", "call_id": i, "output": text} for i, text in results]
            case _ if results:
                blocks = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, text in results]
                self.history.append({"role": "user", "content": blocks})
        return self.user(then) if then else self

    def body(self, **more: object) -> dict:
        tools = tools_of(self.wire, *self.tools)
        match self.wire:
            case "chat":
                system = {"role": "system", "content": self.system}
                return {"model": "m", **more, "tools": tools, "messages": [system, *self.history]}
            case "responses":
                stateless = {"store": False, "include": ["reasoning.encrypted_content"], "instructions": self.system}
                return {"model": "m", **stateless, **more, "tools": tools, "input": list(self.history)}
            case _:
                head = {"model": "m", "max_tokens": 1000, "system": self.system}
                return {**head, **more, "tools": tools, "messages": list(self.history)}

    def ask(self, server: ScriptedServer, *, stream: bool = True, **more: object) -> Said:
        status, _, raw = exchange(server, self.wire, self.body(stream=stream, **more))
        assert status == 200, raw
        said = read(self.wire, raw, stream=stream)
        self.history += said.turn
        return said


def read(wire: str, raw: bytes, *, stream: bool) -> Said:
    readers = {"chat": (_chat, _chat_stream), "responses": (_response, _response_stream)}
    whole, streamed = readers.get(wire, (_message, _message_stream))
    return streamed(events_of(raw)) if stream else whole(json.loads(raw))


def _chat(answer: dict) -> Said:
    choice = answer["choices"][0]
    message = choice["message"]
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
    reasoning = message.get("reasoning_content") or ""
    return Said(
        text=message["content"] or "",
        reasoning=reasoning,
        calls=calls,
        finish=choice["finish_reason"],
        usage=answer.get("usage") or {},
        turn=[message],
    )


def _chat_stream(events: list[dict]) -> Said:
    message, slots, finish, usage = {"role": "assistant", "content": ""}, {}, "", {}
    for one in events:
        assert "error" not in one, one
        usage = one.get("usage") or usage
        for choice in one["choices"]:
            delta, finish = choice["delta"], choice["finish_reason"] or finish
            message["content"] += delta.get("content") or ""
            if "reasoning_content" in delta:
                message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
            for call in delta.get("tool_calls") or ():
                slot = slots.setdefault(call["index"], {"id": "", "type": "function", "function": {"arguments": ""}})
                slot["id"] = call.get("id") or slot["id"]
                slot["function"]["name"] = call["function"].get("name") or slot["function"].get("name")
                slot["function"]["arguments"] += call["function"]["arguments"]
    assert finish
    if slots:
        message["tool_calls"] = list(slots.values())
    return _chat({"choices": [{"message": message, "finish_reason": finish}], "usage": usage})


def _response(answer: dict) -> Said:
    said = Said(finish=answer["status"], usage=answer.get("usage") or {})
    for item in answer["output"]:
        match item["type"]:
            case "reasoning":
                said.reasoning += item["summary"][0]["text"]
            case "message":
                said.text += item["content"][0]["text"]
            case _:
                said.calls.append((item["call_id"], item["name"], item["arguments"]))
    said.turn = answer["output"]
    return said


def _response_stream(events: list[dict]) -> Said:
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    last = events[-1]
    assert last["type"] in {"response.completed", "response.incomplete"}
    done = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    assert done == last["response"]["output"]
    deltas = "".join(one["delta"] for one in events if one["type"] == "response.output_text.delta")
    said = _response(last["response"])
    assert deltas == said.text
    return said


def _message(answer: dict) -> Said:
    said = Said(finish=answer["stop_reason"], usage=answer.get("usage") or {})
    for block in answer["content"]:
        match block["type"]:
            case "thinking":
                said.reasoning += block["thinking"]
            case "text":
                said.text += block["text"]
            case _:
                said.calls.append((block["id"], block["name"], json.dumps(block["input"], ensure_ascii=False)))
    said.turn = [{"role": "assistant", "content": answer["content"]}]
    return said


def _message_stream(events: list[dict]) -> Said:
    assert events[-1]["type"] == "message_stop", events[-1]
    message, usage, partial = {}, {}, {}
    for one in events:
        match one["type"]:
            case "message_start":
                message, usage = one["message"], one["message"].get("usage") or {}
            case "content_block_start":
                message["content"].append(one["content_block"])
            case "content_block_delta":
                delta, block = one["delta"], message["content"][one["index"]]
                key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                    delta["type"]
                )
                if key:
                    block[key] += delta[key]
                else:
                    partial[one["index"]] = partial.get(one["index"], "") + delta["partial_json"]
            case "message_delta":
                message |= one["delta"]
                usage |= {k: v for k, v in (one.get("usage") or {}).items() if v is not None}
    for index, text in partial.items():
        message["content"][index]["input"] = loads_or_empty(text)
    return _message({**message, "usage": usage})


def loads_or_empty(text: str) -> object:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {}
