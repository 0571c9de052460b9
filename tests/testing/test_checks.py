"""What each provider refuses: status, words and shape of the body, for requests written by hand."""

import pytest

from tests.testing.talk import post
from xnagent.testing.answer import encrypt, sign
from xnagent.testing.providers import PROVIDERS, Provider
from xnagent.testing.server import ScriptedServer

ANY = {"worker": [{"text": "ok", "times": 0}]}
USER = {"role": "user", "content": "Task x"}


def refusal(wire: str, body: dict, provider: Provider | str | None = None) -> tuple[int, dict]:
    with ScriptedServer(ANY, provider=provider, strict=False) as server:
        status, answer = post(server, wire, body)
        assert (status == 200) == (not server.problems), server.problems
        return status, answer


def assistant(*ids: str, **more: object) -> dict:
    calls = [{"id": i, "type": "function", "function": {"name": "bash", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, **more, "tool_calls": calls}


def result(call_id: str) -> dict:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def function(**more: object) -> dict:
    return {"type": "function", "function": {"name": "bash", **more}}


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
DEEP = {**CLOSED, "properties": {"a": {"type": "array", "items": OPEN}}}


@pytest.mark.parametrize("provider", ["openai", "openai-5.6", "deepseek", "llama.cpp"])
def test_good_chat_requests_pass(provider: str):
    tools = [function(parameters=OPEN), function(name="strict", parameters=CLOSED, strict=True)]
    messages = [{"role": "system", "content": "s"}, USER, assistant("c1", "c2"), result("c1"), result("c2"), USER, USER]
    assert refusal("chat", {"model": "m", "tools": tools, "messages": messages}, provider)[0] == 200


@pytest.mark.parametrize(
    ("messages", "says", "param"),
    [
        ([], "empty array", "messages"),
        ([USER, assistant("c1", "c2"), result("c1")], "did not have response messages: c2", "messages.[3].role"),
        ([USER, assistant("c1"), USER], "must be followed by tool messages", "messages.[2].role"),
        ([USER, result("c9")], "must be a response to a preceeding message", "messages.[1].role"),
        ([USER, assistant("")], "empty string", "messages[1].tool_calls[0].id"),
        ([USER, assistant("x" * 41), result("x" * 41)], "string too long", "messages[1].tool_calls[0].id"),
        ([USER, assistant()], "empty array", "messages[1].tool_calls"),
        ([USER, {"role": "assistant", "content": None}], "expected a string, got null", "messages.[1].content"),
        ([{"role": "robot", "content": "x"}], "Supported values are: 'system'", "messages[0].role"),
    ],
)
def test_M123_openai_chat_messages(messages: list, says: str, param: str):
    status, answer = refusal("chat", {"model": "m", "messages": messages}, "openai")
    error = answer["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert says in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        (function(parameters=OPEN, strict=True), "In context=(), 'additionalProperties' is required"),
        (function(parameters={**OPEN, "additionalProperties": False}, strict=True), "Missing 'b'"),
        (function(parameters=DEEP, strict=True), "In context=('properties', 'a', 'items'), 'additionalProperties'"),
        (function(parameters={"type": "string"}), "got 'type: \"string\"'"),
        (function(name="a b"), "does not match pattern"),
        ({"type": "function", "name": "bash"}, "Missing required parameter: 'tools[0].function'"),
    ],
)
def test_openai_tools(tool: dict, says: str):
    status, answer = refusal("chat", {"model": "m", "tools": [tool], "messages": [USER]}, "openai")
    assert (status, says in answer["error"]["message"]) == (400, True), answer


def test_deepseek_has_its_own_words_and_shape():
    status, answer = refusal("chat", {"model": "m", "messages": [USER, assistant("c1")]}, "deepseek")
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "invalid_request_error", None)
    assert "(insufficient tool messages following tool_calls message)" in answer["error"]["message"]


def test_B012_M122_deepseek_wants_the_reasoning_of_every_turn():
    steps = [{"reasoning": "r1", "calls": [{"name": "bash", "id": "c1"}]}, {"reasoning": "r2", "text": "hm"}]
    script = {"worker": [{"steps": [*steps, {"text": "ok", "times": 0}]}]}
    tools = [function(parameters=OPEN)]

    def ask(server: ScriptedServer, *messages: dict, **more: object) -> tuple[int, dict]:
        return post(server, "chat", {"model": "m", **more, "tools": tools, "messages": [USER, *messages]})

    with ScriptedServer(script, provider="deepseek", strict=False) as server:
        assert ask(server)[0] == 200
        status, answer = ask(server, assistant("c1"), result("c1"))
        assert (status, "must be passed back to the API" in answer["error"]["message"]) == (400, True)
        so_far = [assistant("c1", reasoning_content="r1"), result("c1")]
        assert ask(server, *so_far)[0] == 200
        said = {"role": "assistant", "content": "hm"}
        assert ask(server, *so_far, said, USER)[0] == 400
        assert ask(server, *so_far, {**said, "reasoning_content": "R2"}, USER)[0] == 400
        assert ask(server, *so_far, said, USER, thinking={"type": "disabled"})[0] == 200
        assert ask(server, *so_far, {**said, "reasoning_content": "r2"}, USER)[0] == 200


def test_llama_cpp_templates_may_want_roles_to_alternate():
    strict = Provider(family="llama.cpp", cache=PROVIDERS["llama.cpp"].cache, alternates=True)
    status, answer = refusal("chat", {"model": "m", "messages": [USER, USER]}, strict)
    assert (status, answer["error"]["code"], "must alternate" in answer["error"]["message"]) == (500, 500, True)
    assert refusal("chat", {"model": "m", "messages": [USER, assistant("c"), result("c"), USER]}, strict)[0] == 200


@pytest.mark.parametrize("arguments", ["", '{"path":"a'])
def test_B004_llama_cpp_reads_the_arguments_of_old_calls(arguments: str):
    made = assistant("c")
    made["tool_calls"][0]["function"]["arguments"] = arguments
    status, answer = refusal("chat", {"model": "m", "messages": [USER, made, result("c")]}, "llama.cpp")
    assert (status, "Failed to parse tool call arguments" in answer["error"]["message"]) == (500, True)
    assert refusal("chat", {"model": "m", "messages": [USER, made, result("c")]}, "openai")[0] == 200


def call(call_id: str, **more: object) -> dict:
    known = {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": "bash", "arguments": "{}"}
    return {**known, **more}


def output(call_id: str) -> dict:
    return {"type": "function_call_output", "call_id": call_id, "output": "ok"}


def thought(text: str, **more: object) -> dict:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": encrypt(text), **more}


def test_good_responses_requests_pass():
    items = [USER, thought("x"), call("c1"), call("c2"), output("c1"), output("c2"), USER]
    assert refusal("responses", {"model": "m", "store": False, "input": items})[0] == 200
    assert refusal("responses", {"model": "m", "input": "Task x"})[0] == 200


@pytest.mark.parametrize(
    ("items", "status", "says"),
    [
        ([], 400, "must be provided"),
        ([USER, call("c1")], 400, "No tool output found for function call c1."),
        ([USER, output("c1")], 400, "No tool call found for function call output with call_id c1."),
        ([USER, call("c1"), call("c1"), output("c1")], 400, "Duplicate item found with call_id c1"),
        ([USER, thought("x"), USER], 400, "'reasoning' was provided without its required following item"),
        ([USER, thought("x", encrypted_content=None), call("c"), output("c")], 404, "Items are not persisted"),
        ([USER, thought("x", encrypted_content="AAAA"), call("c"), output("c")], 400, "could not be verified"),
        ([USER, {"type": "item_reference", "id": "rs_1"}], 404, "Item with id 'rs_1' not found"),
        ([USER, call("x" * 65), output("x" * 65)], 400, "maximum length 64"),
        ([{"role": "user", "content": [{"type": "output_text", "text": "x"}]}], 400, "'input_text' and"),
        ([{"role": "tool", "content": "x"}], 400, "Supported values are: 'assistant'"),
    ],
)
def test_M95_M123_responses_items(items: list, status: int, says: str):
    got, answer = refusal("responses", {"model": "m", "store": False, "input": items})
    assert (got, says in answer["error"]["message"]) == (status, True), answer


def test_M95_a_call_needs_the_reasoning_that_led_to_it():
    script = {"worker": [{"reasoning": "need ls", "calls": [{"name": "bash", "id": "c1"}]}, {"text": "ok", "times": 0}]}
    with ScriptedServer(script, strict=False) as server:
        body = {"model": "m", "store": False, "include": ["reasoning.encrypted_content"], "input": [USER]}
        reasoning, made = post(server, "responses", body)[1]["output"]
        status, answer = post(server, "responses", {**body, "input": [USER, made, output("c1")]})
        says = f"without its required 'reasoning' item: '{reasoning['id']}'"
        assert (status, says in answer["error"]["message"]) == (400, True), answer
        assert post(server, "responses", {**body, "input": [USER, reasoning, made, output("c1")]})[0] == 200


def use(use_id: str, **more: object) -> dict:
    return {"type": "tool_use", "id": use_id, "name": "bash", "input": {}, **more}


def used(use_id: str, **more: object) -> dict:
    return {"type": "tool_result", "tool_use_id": use_id, "content": "ok", **more}


def says(role: str, *blocks: dict | str) -> dict:
    return {"role": role, "content": [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]}


MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
THINK = {"type": "thinking", "thinking": "hm", "signature": sign("hm")}


def marked(text: str = "x", mark: dict = MARK) -> dict:
    return {"type": "text", "text": text, **mark}


def test_good_messages_requests_pass():
    loop = [USER, says("assistant", THINK, use("a"), use("b")), says("user", used("a"), used("b"), marked("and on"))]
    body = {"model": "m", "max_tokens": 9, "system": [marked("s", HOUR)], "messages": loop}
    assert refusal("messages", body)[0] == 200
    assert refusal("messages", {**body, "messages": [USER, USER]})[0] == 200


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages: at least one message is required"),
        ([says("assistant", "x"), USER], 'messages: first message must use the "user" role'),
        ([{"role": "system", "content": "x"}, USER], 'messages: Unexpected role "system"'),
        ([USER, says("assistant", "x")], "This model does not support assistant message prefill."),
        ([USER, says("assistant"), USER], "messages.1: all messages must have non-empty content"),
        ([says("user", "")], "messages: text content blocks must be non-empty"),
        ([USER, says("assistant", use("a")), USER], "messages.1: `tool_use` ids were found without `tool_result`"),
        (
            [USER, says("assistant", use("a")), says("user", "first", used("a"))],
            "messages.1: `tool_use` ids were found",
        ),
        ([USER, says("assistant", use("a"), use("b")), says("user", used("a"))], "immediately after: b."),
        ([says("user", used("a"))], "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a."),
        ([USER, says("assistant", use("a")), says("user", used("a"), used("a"))], "must have a single result"),
        ([USER, says("assistant", use("a"), use("a")), says("user", used("a"))], "ids must be unique"),
        ([USER, says("assistant", use("a.b")), says("user", used("a.b"))], "should match pattern"),
        ([USER, says("assistant", use("a", input="{}")), says("user", used("a"))], "should be a valid dictionary"),
        ([USER, says("assistant", {**THINK, "thinking": "HM"}, "x"), USER], "Invalid `signature` in `thinking` block"),
        ([says("user", *[marked()] * 5)], "A maximum of 4 blocks with cache_control may be provided. Found 5."),
        ([says("user", marked("", MARK))], "messages.0.content.0.text: cache_control cannot be set for empty text"),
        ([USER, says("assistant", {**THINK, **MARK}, "x"), USER], "thinking.cache_control: Extra inputs"),
        ([says("user", marked(), marked(mark=HOUR))], "a ttl='1h' cache_control block must not come after a ttl='5m'"),
        ([says("user", marked(mark={"cache_control": {"type": "ephemeral", "ttl": "2h"}}))], "Input should be '5m' or"),
        ([says("user", marked(mark={"cache_control": {"type": "x"}}))], "does not match any of the expected tags"),
    ],
)
def test_B010_B011_M123_messages(messages: list, message: str):
    status, answer = refusal("messages", {"model": "m", "max_tokens": 9, "messages": messages})
    assert (status, answer["type"], answer["error"]["type"]) == (400, "error", "invalid_request_error")
    assert message in answer["error"]["message"]
    assert answer["request_id"].startswith("req_")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"tools": [{"name": "bash"}]}, "tools.0.custom.input_schema: Field required"),
        ({"tools": [{"name": "a b", "input_schema": OPEN}]}, "tools.0.custom.name: String should match pattern"),
        ({"tools": [{"name": "a", "input_schema": DEEP, "strict": True}]}, "'additionalProperties' must be explicitly"),
        ({"tools": [{"name": "a", "input_schema": OPEN}] * 2}, "tools: Tool names must be unique."),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "`max_tokens` must be greater than"),
        ({"cache_control": {"type": "ephemeral"}, "system": [marked()] * 4}, "Found 5."),
    ],
)
def test_messages_settings(more: dict, message: str):
    status, answer = refusal("messages", {"model": "m", "max_tokens": 9, **more, "messages": [USER]})
    assert (status, message in answer["error"]["message"]) == (400, True), answer


def test_old_gateways_want_roles_to_alternate():
    body = {"model": "m", "max_tokens": 9, "messages": [USER, USER]}
    status, answer = refusal("messages", body, "anthropic-strict")
    assert (status, 'multiple "user" roles in a row' in answer["error"]["message"]) == (400, True)


LONG = "x" * 8000
OVERFLOWS = [
    ("chat", "openai", "This model's maximum context length is 1000 tokens.", "context_length_exceeded"),
    ("chat", "deepseek", "in the completion). Please reduce", "invalid_request_error"),
    ("chat", "llama.cpp", "exceeds the available context size (1000 tokens)", 400),
    ("responses", "openai", "Your input exceeds the context window", "context_length_exceeded"),
    ("messages", "anthropic", "tokens > 1000 maximum", None),
]


@pytest.mark.parametrize(("wire", "name", "message", "code"), OVERFLOWS)
def test_B028_overflow_in_the_words_of_each_and_no_problem_of_the_client(
    wire: str, name: str, message: str, code: object
):
    known = PROVIDERS[name]
    provider = Provider(family=known.family, cache=known.cache, window_tokens=1000)
    text = [{"role": "user", "content": LONG}]
    body = {"model": "m", "max_tokens": 5, "input" if wire == "responses" else "messages": text}
    with ScriptedServer(ANY, provider=provider) as server:
        status, answer = post(server, wire, body)
        assert (status, message in answer["error"]["message"], answer["error"].get("code")) == (400, True, code)
        assert (server.problems, server.count("overflows")) == ([], 1)
    if name == "llama.cpp":
        assert answer["error"]["n_prompt_tokens"] > answer["error"]["n_ctx"] == 1000


def test_an_unknown_provider_is_refused_at_once():
    with pytest.raises(KeyError):
        ScriptedServer(provider="nobody")


@pytest.mark.parametrize("field", ["id_slot", "cache_prompt", "return_progress", "slots"])
@pytest.mark.parametrize("provider", ["openai", "deepseek", "llama.cpp"])
def test_what_only_llama_cpp_knows_is_refused_elsewhere(provider: str, field: str):
    status, answer = refusal("chat", {"messages": [USER], field: 1}, provider)
    if provider == "llama.cpp" and field != "slots":
        assert status == 200
    else:
        assert (status, answer["error"]["message"]) == (400, f"Unrecognized request argument supplied: {field}")
