"""The Responses wire: what is its own in requests and streams."""

import json

import pytest

from tests.models.speaking import (
    RESPONSES_USAGE,
    SEALED,
    call,
    item_events,
    manifest,
    output_text,
    response,
    result,
    said,
    sealed,
    stream_of,
    terminal,
    user,
)
from xnagent.core.items import Reasoning, ToolCall
from xnagent.core.text import canonical
from xnagent.core.tokens import Usage
from xnagent.errors import ModelError, UsageError
from xnagent.models.parameters import cache_key
from xnagent.models.responses import encode
from xnagent.models.responses_stream import decode

CHOSEN = manifest("responses")
REASONING = SEALED["responses"]


def fields(**changes: object) -> dict[str, object]:
    return json.loads(encode(manifest("responses", **changes), [user("Go.")]))


def test_M96_nothing_is_stored_there_and_the_sealed_reasoning_is_asked_for():
    sent = fields()
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert sent["stream"] is True
    assert sent["instructions"] == "Be good."
    assert [tool["strict"] for tool in sent["tools"]] == [False, False]
    strict = fields(tools=canonical([{"name": "a", "description": "", "parameters": {}, "strict": True}]))
    assert strict["tools"][0]["strict"] is True


@pytest.mark.parametrize("name", ["store", "previous_response_id", "conversation", "input", "instructions"])
def test_M96_history_is_never_left_to_the_server(name: str):
    with pytest.raises(UsageError, match="OPTION_RESERVED"):
        fields(options=canonical({name: True}))


def test_the_cache_key_is_the_same_for_all_that_begins_alike():
    key = cache_key(CHOSEN, [user("Go.")])
    assert key == cache_key(CHOSEN, [user("Go."), said("x"), user("On.")]) == fields()["prompt_cache_key"]
    others = {
        cache_key(CHOSEN, [user("No.")]),
        cache_key(CHOSEN, []),
        cache_key(manifest("responses", manifest="m2"), []),
    }
    assert key not in others
    assert len(others) == 3
    assert all(len(one) <= 64 for one in {key, *others})
    assert "prompt_cache_key" not in fields(options=canonical({"prompt_cache_key": None}))


def test_the_objective_may_get_a_breakpoint_of_its_own():
    options = canonical({"cache_breakpoint": True})
    sent = json.loads(encode(manifest("responses", options=options), [user("Go."), user("<state>")]))
    part = {"type": "input_text", "text": "Go.", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert sent["input"] == [{"role": "user", "content": [part]}, {"role": "user", "content": "<state>"}]
    assert "cache_breakpoint" not in sent


@pytest.mark.parametrize(
    "payload",
    ["", "x", "[1]", '{"type":"reasoning","id":"rs_1","summary":[]}', '{"type":"message"}', '{"type":"compaction"}'],
)
def test_reasoning_that_only_its_id_stands_for_is_left_out(payload: str):
    items = [user("Go."), Reasoning(wire="responses", payload=payload), said("x"), user("On.")]
    assert [item.get("role") for item in json.loads(encode(CHOSEN, items))["input"]] == ["user", "assistant", "user"]


def test_reasoning_at_the_end_of_a_reply_is_left_out():
    items = [user("Go."), sealed("responses"), said("x"), sealed("responses"), user("On.")]
    assert encode(CHOSEN, items).count(b"rs_1") == 1
    alone = encode(CHOSEN, [user("Go."), sealed("responses"), user("On.")])
    assert json.loads(alone)["input"] == [{"role": "user", "content": text} for text in ("Go.", "On.")]


def test_open_reasoning_of_other_servers_and_compactions_go_back():
    for payload in (
        '{"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"t"}]}',
        '{"type":"compaction","id":"c","encrypted_content":"e"}',
    ):
        reply = decode([*item_events(0, payload), *item_events(1, output_text(said("x"))), terminal("completed")])
        assert reply.items == (Reasoning(wire="responses", payload=payload), said("x"))
        assert payload.encode() in encode(CHOSEN, [user("Go."), *reply.items, user("On.")])


def test_the_phase_of_a_text_goes_back_with_it():
    message = json.loads(output_text(said("I look."))) | {"phase": "commentary"}
    reply = decode(
        [*item_events(0, json.dumps(message)), *item_events(1, output_text(call("c1"))), terminal("completed")]
    )
    sent = json.loads(encode(CHOSEN, [user("Go."), *reply.items, result("c1"), said("plain"), user("On.")]))["input"]
    assert sent[1] == {"role": "assistant", "content": "I look.", "phase": "commentary"}
    assert sent[4] == {"role": "assistant", "content": "plain"}


def test_C9_usage_is_normalised():
    usage = decode(stream_of("responses", [said("x")])).usage
    assert usage == Usage(
        input_tokens=100, cached_tokens=60, cache_write_tokens=30, output_tokens=20, reasoning_tokens=8
    )


def test_C9_writes_by_lifetime_are_added():
    details = {"cached_tokens": 1, "cache_write_tokens_details": {"ttl_30m_tokens": 4, "ttl_12h_tokens": 5}}
    usage = {**RESPONSES_USAGE, "input_tokens_details": details}
    read = decode([terminal("completed", usage=usage)]).usage
    assert (read.cache_write_tokens, read.cache_write_short_tokens, read.cache_write_long_tokens) == (9, 4, 5)
    one = {"cached_tokens": 1, "cache_write_tokens": 6, "cache_write_tokens_details": {"ttl_12h_tokens": 5}}
    read = decode([terminal("completed", usage={**usage, "input_tokens_details": one})]).usage
    assert (read.cache_write_tokens, read.cache_write_short_tokens, read.cache_write_long_tokens) == (6, None, 5)


def test_B069_without_usage_it_is_unknown():
    reply = decode([*item_events(0, output_text(said("x"))), terminal("completed", usage=None)])
    assert reply.usage == Usage(is_estimated=True)
    assert "no usage" in reply.note


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("steered", "length"), (None, "length")],
)
def test_B019_incomplete_is_an_outcome_of_its_own(reason: str | None, finish: str):
    end = terminal("incomplete", incomplete_details={"reason": reason})
    reply = decode([*item_events(0, REASONING), *item_events(1, output_text(said("The fix"))), end])
    assert reply.items == (sealed("responses"), said("The fix"))
    assert reply.finish == finish
    assert bool(reply.note) is (reason in {"steered", None})


def test_reasoning_that_was_cut_off_is_not_kept():
    end = terminal("incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert decode([*item_events(0, REASONING), end]).items == ()


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ({"code": "rate_limit_exceeded", "message": "slow"}, "rate_limited"),
        ({"code": "server_error", "message": "x"}, "server"),
        ({"code": "context_length_exceeded", "message": "x"}, "context_overflow"),
        ({"code": "insufficient_quota", "message": "x"}, "quota"),
        ({"code": "invalid_prompt", "message": "x"}, "bad_request"),
        ({"code": "bio_policy", "message": "x"}, "content_refused"),
        (None, "server"),
    ],
)
def test_B021_a_failed_response_is_an_error(error: object, fault: str):
    with pytest.raises(ModelError) as caught:
        decode([*stream_of("responses", [said("Hel")])[:3], terminal("failed", error=error)])
    assert caught.value.fault == fault


def test_a_whole_response_is_read_as_well():
    output = f"[{REASONING}, {output_text(said('x'))}, {output_text(call('c1', '{}'))}]"
    assert decode([response("completed", output)]).items == (sealed("responses"), said("x"), call("c1", "{}"))


def test_items_that_only_the_end_holds_are_read_from_it():
    output = f"[{REASONING},{output_text(said('x'))}]"
    assert decode([terminal("completed", output)]).items == (sealed("responses"), said("x"))


def test_gateways_that_send_only_deltas_are_understood():
    begun = {"type": "function_call", "call_id": "c1", "name": "bash"}
    events = [
        {"type": "response.output_text.delta", "output_index": 0, "delta": "He"},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "y"},
        {"type": "response.output_item.added", "output_index": 1, "item": begun},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a":'},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "1}"},
        {"type": "response.reasoning_summary_text.delta", "output_index": 2, "delta": "hm"},
    ]
    reply = decode([*map(json.dumps, events), terminal("completed")])
    assert reply.items == (said("Hey"), call("c1", '{"a":1}'))


def test_B017_calls_that_all_have_index_0_stay_apart():
    calls = [call(f"f{n}", json.dumps({"path": n}), "read") for n in range(3)]
    texts = [output_text(one, n) for n, one in enumerate(calls)]
    assert decode([*(e for text in texts for e in item_events(0, text)), terminal("completed")]).items == tuple(calls)


@pytest.mark.parametrize(
    ("changes", "arguments"),
    [({"arguments": {"a": 1}}, '{"a":1}'), ({"arguments": None}, ""), ({"arguments": ""}, "")],
)
def test_B020_odd_arguments(changes: dict[str, object], arguments: str):
    item = {"type": "function_call", "id": "fc_1", "name": "bash", **changes}
    (made,) = decode([*item_events(0, json.dumps(item))[1:], terminal("completed")]).items
    assert isinstance(made, ToolCall)
    assert (made.call_id, made.arguments) == ("fc_1", arguments)


def test_refusals_are_text_and_strange_items_are_told():
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}, 7]}
    search = {"type": "web_search_call", "id": "ws_1"}
    events = [*item_events(0, json.dumps(refusal)), *item_events(1, json.dumps(search))]
    reply = decode([*events, terminal("completed")])
    assert reply.items == (said("No."),)
    assert "'web_search_call' was left out" in reply.note


def test_the_closing_mark_alone_is_no_end():
    with pytest.raises(ModelError, match="ended before"):
        decode([*item_events(0, output_text(said("x"))), "[DONE]"])
