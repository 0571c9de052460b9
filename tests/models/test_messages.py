"""The Messages wire: what is its own in requests and streams."""

import json

import pytest

from tests.models.speaking import (
    SEALED,
    block_events,
    call,
    manifest,
    message_events,
    result,
    said,
    sealed,
    stream_of,
    user,
)
from xnagent.core.items import Reasoning, ToolCall
from xnagent.core.pricing import Price, cost_usd
from xnagent.core.text import canonical
from xnagent.core.tokens import Usage
from xnagent.errors import ModelError, UsageError
from xnagent.models.messages import encode
from xnagent.models.messages_stream import decode

CHOSEN = manifest("messages")
TEXT = block_events(0, '{"type":"text","text":""}', {"type": "text_delta", "text": "Hey"})


def sent(*items: object) -> list[dict[str, object]]:
    request = json.loads(encode(manifest("messages", options=canonical({"cache_ttl": "none"})), items))
    return request["messages"]


def test_results_come_first_and_texts_after_them_in_one_message():
    items = [user("Go."), user("State."), call("a"), call("b"), result("a"), result("b", is_error=True), user("Delta.")]
    first, reply, last = sent(*items)
    assert first["content"] == [{"type": "text", "text": text} for text in ("Go.", "State.")]
    assert [block["id"] for block in reply["content"]] == ["a", "b"]
    assert last == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "ok"},
            {"type": "tool_result", "tool_use_id": "b", "content": "ok", "is_error": True},
            {"type": "text", "text": "Delta."},
        ],
    }


def test_a_message_is_never_empty_and_holds_no_empty_text():
    texts = [
        [block.get("text") for block in message["content"]]
        for message in sent(user(""), user("Go."), said(" "), user("\n"), user("x"), said(""), user("y"))
    ]
    assert texts == [["(empty)", "Go."], ["(empty)"], ["(empty)", "x"], ["(empty)"], ["y"]]


def test_thinking_at_the_end_of_a_reply_is_left_out():
    assert [len(message["content"]) for message in sent(user("a"), said("x"), sealed("messages"), user("b"))] == [
        1,
        1,
        1,
    ]
    assert sent(user("a"), sealed("messages"), user("b"))[1]["content"] == [{"type": "text", "text": "(empty)"}]


@pytest.mark.parametrize("payload", ["", "x", "[]", '{"type":"text","text":"x"}', '{"a":1}'])
def test_what_is_no_thinking_block_is_not_sent(payload: str):
    reply = sent(user("a"), Reasoning(wire="messages", payload=payload), said("x"), user("b"))[1]
    assert reply["content"] == [{"type": "text", "text": "x"}]


@pytest.mark.parametrize("name", ["system", "messages", "cache_control"])
def test_what_would_break_the_history_or_the_limit_of_markers_is_refused(name: str):
    with pytest.raises(UsageError, match="OPTION_RESERVED"):
        encode(manifest("messages", options=canonical({name: 1})), [])


def test_B012_thinking_is_put_together_once_and_goes_back_byte_for_byte():
    deltas = [
        {"type": "thinking_delta", "thinking": "need "},
        {"type": "thinking_delta", "thinking": "ls é"},
        {"type": "signature_delta", "signature": "EqQB"},
        {"type": "signature_delta", "signature": "/+=="},
    ]
    start = '{"type":"thinking","thinking":"","signature":""}'
    redacted = '{"type": "redacted_thinking", "data": "Em\\u003d="}'
    use = block_events(2, '{"type":"tool_use","id":"t1","name":"bash","input":{}}')
    reply = decode(message_events(block_events(0, start, *deltas), block_events(1, redacted), use, stop="tool_use"))
    built = '{"type":"thinking","thinking":"need ls é","signature":"EqQB/+=="}'
    assert [item.payload for item in reply.items if isinstance(item, Reasoning)] == [built, redacted]
    body = encode(CHOSEN, [user("Go."), *reply.items, result("t1")])
    assert f"{built},{redacted}," in body.decode()


def test_thinking_without_text_keeps_its_signature():
    start = '{"type":"thinking","thinking":"","signature":""}'
    block = block_events(0, start, {"type": "signature_delta", "signature": "s"})
    assert decode(message_events(block, TEXT, stop="end_turn")).items[0] == Reasoning(
        wire="messages", payload='{"type":"thinking","thinking":"","signature":"s"}'
    )


def test_thinking_that_was_cut_off_is_not_kept():
    start = '{"type":"thinking","thinking":"","signature":""}'
    cut = block_events(0, start, {"type": "thinking_delta", "thinking": "so"})
    assert decode(message_events(cut, stop="max_tokens")).items == ()
    signed = block_events(0, SEALED["messages"])
    assert decode(message_events(signed, stop="max_tokens")).items == ()
    assert decode(message_events(signed, TEXT, stop="max_tokens")).items == (sealed("messages"), said("Hey"))


@pytest.mark.parametrize(
    ("stop", "finish", "is_odd"),
    [
        ("end_turn", "stop", False),
        ("stop_sequence", "stop", False),
        ("max_tokens", "length", False),
        ("model_context_window_exceeded", "length", False),
        ("refusal", "content_filter", False),
        ("pause_turn", "stop", True),
        ("tool_use", "stop", False),
        ("new_reason", "stop", True),
    ],
)
def test_stop_reasons(stop: str, finish: str, is_odd: bool):
    reply = decode(message_events(TEXT, stop=stop))
    assert (reply.finish, reply.items) == (finish, (said("Hey"),))
    assert bool(reply.note) is is_odd


@pytest.mark.parametrize(
    ("start", "deltas", "arguments"),
    [
        ({"input": {}}, [], "{}"),
        ({}, [], ""),
        ({"input": {}}, [""], "{}"),
        ({"input": {"a": 1.0}}, [], '{"a": 1.0}'),
        ({"input": '{"a":1}'}, [], '{"a":1}'),
        ({"input": {}}, ['{"pa', 'th": "a"}'], '{"path": "a"}'),
        ({"input": {}}, ['{"path": "a'], '{"path": "a'),
    ],
)
def test_B020_arguments_are_what_was_written(start: dict[str, object], deltas: list[str], arguments: str):
    block = json.dumps({"type": "tool_use", "id": "t1", "name": "bash", **start})
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in deltas]
    (made,) = decode(message_events(block_events(0, block, *pieces), stop="tool_use")).items
    assert made == call("t1", arguments)


def test_B017_blocks_that_all_have_index_0_stay_apart():
    blocks = [
        block_events(
            0,
            json.dumps({"type": "tool_use", "id": f"t{n}", "name": "read", "input": {}}),
            {"type": "input_json_delta", "partial_json": f'{{"n":{n}}}'},
        )
        for n in range(3)
    ]
    reply = decode(message_events(*blocks, stop="tool_use"))
    assert reply.items == tuple(call(f"t{n}", f'{{"n":{n}}}', "read") for n in range(3))


def test_B068_later_numbers_replace_earlier_ones_and_null_replaces_none():
    start = {"input_tokens": 25, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 0, "output_tokens": 1}
    first = json.dumps({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 8}})
    last = {"input_tokens": None, "output_tokens": 15, "cache_read_input_tokens": 100}
    events = message_events(TEXT, [first], stop="end_turn", usage=start, last=last)
    assert decode(events).usage == Usage(input_tokens=125, cached_tokens=100, cache_write_tokens=0, output_tokens=15)


def test_B067_input_is_the_sum_of_the_three_and_is_priced_so():
    numbers = {"input_tokens": 7, "cache_read_input_tokens": 9000, "cache_creation_input_tokens": 1000}
    usage = decode(message_events(TEXT, stop="end_turn", usage=numbers, last={"output_tokens": 200})).usage
    assert usage.input_tokens == 10_007
    price = Price(input_usd=3, cached_usd=0.30, output_usd=15, cache_write_usd=3.75)
    assert cost_usd(usage, price) == pytest.approx(0.009471)


def test_C9_writes_by_lifetime_are_added_and_thinking_is_part_of_the_output():
    split = {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}
    last = {"output_tokens": 50, "output_tokens_details": {"thinking_tokens": 30}}
    for usage in (
        {"input_tokens": 1, "cache_creation": split},
        {"input_tokens": 1, "cache_creation": split, "cache_creation_input_tokens": 7},
    ):
        read = decode(message_events(TEXT, stop="end_turn", usage=usage, last=last)).usage
        assert read == Usage(
            input_tokens=8,
            cache_write_tokens=7,
            cache_write_short_tokens=3,
            cache_write_long_tokens=4,
            output_tokens=50,
            reasoning_tokens=30,
        )


def test_B070_thinking_is_never_counted_twice():
    last = {"output_tokens": 10, "output_tokens_details": {"thinking_tokens": 50}}
    reply = decode(message_events(TEXT, stop="end_turn", last=last))
    assert reply.usage.output_tokens == 60
    assert "exceeds" in reply.note


@pytest.mark.parametrize("usage", [{}, {"input_tokens": 0}, {"input_tokens": None}, {"input_tokens": True}])
def test_B069_without_usable_usage_it_is_unknown(usage: dict[str, object]):
    start = json.loads(message_events(TEXT, stop=None)[0])
    start["message"]["usage"] = usage
    events = [json.dumps(start), *message_events(TEXT, stop="end_turn", last={"output_tokens": 4})[1:]]
    reply = decode(events)
    assert reply.usage == Usage(output_tokens=4, is_estimated=True)
    assert reply.note


def test_input_does_not_shrink_to_nothing_at_the_end():
    last = {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 3}
    assert decode(message_events(TEXT, stop="end_turn", last=last)).usage.input_tokens == 100


def test_B019_a_stop_reason_is_an_end_and_an_end_without_one_needs_an_answer():
    assert decode(message_events(TEXT, stop="end_turn")[:-1]).items == (said("Hey"),)
    assert "missing" in decode(message_events(TEXT, stop=None)).note
    with pytest.raises(ModelError, match="ended before"):
        decode(message_events(stop=None))
    with pytest.raises(ModelError, match=r"after 3 characters and 0 calls"):
        decode(message_events(TEXT, stop="end_turn")[:4])


def test_a_closing_mark_of_a_gateway_is_an_end():
    begun = message_events(TEXT, stop=None)[:4]
    assert decode([*begun, "[DONE]", "late"]).items == (said("Hey"),)


def test_a_whole_message_is_read_as_well():
    use = '{"type":"tool_use","id":"t","name":"n","input":{"a": 1.0}}'
    content = f'[{SEALED["messages"]}, {{"type":"text","text":"x"}}, {use}]'
    usage = '{"input_tokens": 5, "output_tokens": 2}'
    reply = decode([f'{{"type":"message","content":{content},"stop_reason":"tool_use","usage":{usage}}}'])
    assert reply.items == (sealed("messages"), said("x"), call("t", '{"a": 1.0}', "n"))
    assert (reply.finish, reply.usage) == ("tool_calls", Usage(input_tokens=5, output_tokens=2))


def test_deltas_without_a_block_and_blocks_that_are_not_ours():
    delta = {"type": "text_delta", "text": "Hey"}
    lost = json.dumps({"type": "content_block_delta", "index": 9, "delta": delta})
    cited = json.dumps({"type": "content_block_delta", "index": 9, "delta": {"type": "citations_delta"}})
    stray = json.dumps({"type": "content_block_delta", "index": 8, "delta": {"type": "signature_delta"}})
    server = block_events(1, '{"type":"server_tool_use","id":"s","name":"web_search","input":{}}')
    reply = decode(message_events([lost, cited, stray], server, stop="end_turn"))
    assert reply.items == (said("Hey"),)


def test_whole_events_are_pieces_and_pings_are_not():
    made = [item for item in decode(stream_of("messages", [call("t", '{"a":1}')])).items if isinstance(item, ToolCall)]
    assert made == [call("t", '{"a":1}')]
