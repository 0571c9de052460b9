"""The official SDKs read what the server sends; skipped where they are not installed."""

import json

import pytest
from pydantic import TypeAdapter

from tests.testing.talk import Talk, events_of, exchange
from xnagent.testing.providers import PROVIDERS
from xnagent.testing.server import ScriptedServer

STEPS = [
    {
        "reasoning": "Need ls. " * 20,
        "text": "I look – 那个 😀.",
        "calls": [
            {"name": "bash", "arguments": {"command": "ls " + "é" * 60}},
            {"name": "bash", "arguments": {"command": "pwd"}},
        ],
    },
    {"text": "cut short", "finish": "length"},
    {"text": "bye"},
]
SCRIPT = {"worker": [{"steps": STEPS}]}


def streams_of(wire: str, provider: str | None) -> list[list[dict]]:
    streams = []
    with ScriptedServer(SCRIPT, provider=provider) as server:
        talk = Talk(wire, system="s" * 9000).user("Task")
        marks = {"cache_control": {"type": "ephemeral", "ttl": "1h"}} if wire == "messages" else {}
        for _ in STEPS:
            status, _, raw = exchange(server, wire, talk.body(stream=True, **marks))
            assert status == 200, raw
            streams.append(events_of(raw))
            said = talk.ask(server, **marks)
            talk.results(*((call, "a.py") for call, *_ in said.calls), then="on")
        server.check()
    return streams


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_openai_reads_each_chunk(provider: str):
    types = pytest.importorskip("openai.types.chat")
    for events in streams_of("chat", provider):
        for one in events:
            types.ChatCompletionChunk.model_validate(one)


@pytest.mark.parametrize("provider", ["openai", "openai-5.6", "deepseek"])
def test_openai_reads_each_event_of_responses(provider: str):
    types = pytest.importorskip("openai.types.responses")
    adapter = TypeAdapter(types.ResponseStreamEvent)
    for events in streams_of("responses", provider):
        for one in events:
            assert adapter.validate_python(one).type == one["type"]


@pytest.mark.parametrize("provider", ["anthropic", "deepseek"])
def test_anthropic_reads_each_event(provider: str):
    types = pytest.importorskip("anthropic.types")
    adapter = TypeAdapter(types.RawMessageStreamEvent)
    for events in streams_of("messages", provider):
        for one in events:
            if one["type"] != "ping":
                assert adapter.validate_python(one).type == one["type"]


TOOL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def test_the_openai_client_talks_chat():
    openai = pytest.importorskip("openai")
    tools = [{"type": "function", "function": {"name": "bash", "parameters": TOOL}}]
    with ScriptedServer(SCRIPT, provider="openai") as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="x", max_retries=0, timeout=10)
        ask = {"model": "m", "messages": [{"role": "user", "content": "Task"}], "tools": tools}
        whole = client.chat.completions.create(**ask).choices[0].message
        pieces = client.chat.completions.create(**ask, stream=True)
        text = "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
        assert text == whole.content == STEPS[0]["text"]
        assert json.loads(whole.tool_calls[0].function.arguments) == STEPS[0]["calls"][0]["arguments"]
        with pytest.raises(openai.BadRequestError, match="must be followed by tool messages"):
            client.chat.completions.create(
                **{**ask, "messages": [*ask["messages"], whole.model_dump(exclude_none=True)]}
            )


def test_the_openai_client_talks_responses():
    openai = pytest.importorskip("openai")
    with ScriptedServer(SCRIPT) as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="x", max_retries=0, timeout=10)
        given = [{"role": "user", "content": "Task"}]
        ask = {"model": "m", "store": False, "include": ["reasoning.encrypted_content"]}
        with client.responses.stream(**ask, input=given) as stream:
            for _ in stream:
                pass
            response = stream.get_final_response()
        assert response.output_text == STEPS[0]["text"]
        given += [item.model_dump(exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        given += [{"type": "function_call_output", "call_id": call.call_id, "output": "ok"} for call in calls]
        response = client.responses.create(**ask, input=given)
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        with pytest.raises(openai.NotFoundError, match="Items are not persisted"):
            client.responses.create(**ask, input=[{**given[1], "encrypted_content": None}, *given[2:]])


def test_the_anthropic_client_talks_messages():
    anthropic = pytest.importorskip("anthropic")
    tools = [{"name": "bash", "input_schema": TOOL}]
    with ScriptedServer(SCRIPT) as server:
        root = server.base_url.removesuffix("/v1")
        client = anthropic.Anthropic(base_url=root, api_key="x", max_retries=0, timeout=10)
        ask = {"model": "m", "max_tokens": 2000, "tools": tools, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        turns = [{"role": "user", "content": "Task"}]
        with client.messages.stream(**ask, messages=turns) as stream:
            message = stream.get_final_message()
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        turns.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
        uses = [block.id for block in message.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": use, "content": "ok"} for use in uses]
        turns.append({"role": "user", "content": results})
        assert client.messages.create(**ask, messages=turns).stop_reason == "max_tokens"
        turns[1]["content"] = turns[1]["content"][1:]
        with pytest.raises(anthropic.BadRequestError, match="must start with a thinking block"):
            client.messages.create(**ask, messages=turns)
