"""One suite for all wires: the same histories, the same assertions."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.speaking import (
    SEALED,
    TEXTS,
    WIRES,
    call,
    growths,
    manifest,
    marker_count,
    read_request,
    result,
    said,
    sealed,
    spine,
    stream_of,
    user,
    without_markers,
)
from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText, is_balanced
from xnagent.core.prefix import find_break
from xnagent.core.spine import Spine
from xnagent.core.text import canonical, clean
from xnagent.errors import ModelError, UsageError
from xnagent.models.decoding import fold
from xnagent.models.encoder import Encoder
from xnagent.models.messages import EMPTY
from xnagent.models.parameters import plain_id, sent_name, short_id
from xnagent.models.raw_json import UNPARSED, argument_text, object_text
from xnagent.models.wires import BY_NAME, encode

pytestmark = pytest.mark.parametrize("wire", WIRES)

OPTION = {"responses": "max_output_tokens", "messages": "max_tokens", "chat": "max_tokens"}


def sendable(wire: str, items: Sequence[Item]) -> list[Item]:
    """What a wire can say of the items."""
    ids = {"chat": clean, "responses": short_id, "messages": plain_id}[wire]
    kept: list[Item] = []
    for item in items:
        match item:
            case Reasoning() if item.wire == wire:
                kept.append(item)
            case UserText():
                kept.append(user(clean(item.text)))
            case AssistantText():
                kept.append(said(clean(item.text)))
            case ToolCall():
                arguments = (object_text if wire == "messages" else argument_text)(item.arguments)
                kept.append(call(ids(item.call_id), arguments, sent_name(item.name)))
            case ToolResult():
                is_error = item.is_error and wire == "messages"
                kept.append(result(ids(item.call_id), clean(item.text), is_error=is_error))
            case Reasoning():
                pass
    return kept


def has_text(item: Item) -> bool:
    if isinstance(item, AssistantText | UserText):
        return bool(item.text.strip()) and item.text != EMPTY
    return True


def spoken(wire: str, items: Sequence[Item]) -> list[Item]:
    """Blank texts are not compared on any wire: where they cannot be said, something stands for them."""
    plain = [
        replace(item, text="") if isinstance(item, ToolResult) and item.text.strip() in {"", EMPTY} else item
        for item in items
    ]
    return list(filter(has_text, plain))


@given(history=growths())
def test_decode_of_encode_keeps_items(wire: str, history: list[Spine]):
    items = history[-1].items
    read = read_request(wire, without_markers(encode(manifest(wire), items)))
    assert spoken(wire, read) == spoken(wire, sendable(wire, items))


@given(history=growths())
def test_I1_incremental_equals_pure_extends_and_is_deterministic(wire: str, history: list[Spine]):
    renderer, chosen = BY_NAME[wire].renderer, manifest(wire)
    encoder, last = Encoder(renderer), None
    for grown in history:
        body = encoder.encode(chosen, grown)
        assert body.content == encode(chosen, grown.items) == Encoder(renderer).encode(chosen, grown).content
        assert body.sha256 == hashlib.sha256(body.content).hexdigest()
        plain = b"".join(body.segments)
        closed = without_markers(body.content)
        assert closed.startswith(without_markers(plain))
        assert closed[len(without_markers(plain)) :] in {b"]}", b"]}]}"}
        if last is not None and last[0] == grown.lineage:
            assert all(a is b for a, b in zip(last[1].segments, body.segments, strict=False))
            assert find_break(last[1].segments, body.segments) is None
            assert plain.startswith(b"".join(last[1].segments))
        last = (grown.lineage, body)


@given(history=growths())
def test_M123_I3_pairing_rule_and_valid_text(wire: str, history: list[Spine]):
    for grown in history:
        body = encode(manifest(wire), grown.items)
        read = read_request(wire, without_markers(body))
        assert is_balanced(read)
        assert not re.search("[\ud800-\udfff]", json.dumps(json.loads(body), ensure_ascii=False))
        if wire == "messages":
            check_messages(body)


def check_messages(body: bytes) -> None:
    request = json.loads(body)
    assert marker_count(body) <= 4
    roles = [message["role"] for message in request["messages"]]
    assert all(left != right for left, right in pairwise(roles))
    assert roles[0] == "user"
    for message in request["messages"]:
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result") or message["role"] == "assistant"
        for block in message["content"]:
            assert block["type"] != "text" or block["text"].strip()
            assert isinstance(block.get("input", {}), dict)
            ids = [block[name] for name in ("id", "tool_use_id") if name in block and block["type"] != "thinking"]
            assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", one) for one in ids)


REPLIES = [
    [said("那个 – é 😀")],
    [call("c1", '{"b": 1,"a":"\\u00e9", "n":1.0}'), call("c2", "{}", "read")],
]


@pytest.mark.parametrize("reply", [*REPLIES, [said("I look."), *REPLIES[1]]])
@pytest.mark.parametrize("thinks", [True, False])
def test_M95_a_reply_goes_back_as_it_came(wire: str, reply: list[Item], thinks: bool):
    reply = [*([sealed(wire)] if thinks else []), *reply]
    got = fold(BY_NAME[wire].new_decoder(), stream_of(wire, reply))
    assert list(got.items) == reply
    assert got.finish == ("tool_calls" if any(isinstance(item, ToolCall) for item in reply) else "stop")
    results = [result(item.call_id) for item in reply if isinstance(item, ToolCall)]
    history = [user("Go."), *got.items, *results]
    body = encode(manifest(wire), [*history, user("On.")])
    assert read_request(wire, without_markers(body)) == [*history, user("On.")]
    assert thinks is (SEALED[wire].encode() in body)


@given(text=TEXTS.filter(str.strip), more=st.lists(TEXTS, max_size=3))
def test_B055_texts_in_a_stream_are_clean(wire: str, text: str, more: list[str]):
    reply = fold(BY_NAME[wire].new_decoder(), stream_of(wire, [said(text)]))
    assert reply.items == (said(clean(text)),)


@pytest.mark.parametrize("other", WIRES)
def test_B054_T29_reasoning_of_another_wire_is_left_out_and_comes_back_with_its_own(wire: str, other: str):
    items = [
        user("Go."),
        sealed(other),
        said("ok"),
        call("toolu_01", '{"command":"ls"}'),
        result("toolu_01"),
        user("On."),
    ]
    body = encode(manifest(wire), items)
    assert (SEALED[other].encode() in body) is (wire == other)
    read = read_request(wire, without_markers(body))
    assert [item for item in read if not isinstance(item, Reasoning)] == [items[0], *items[2:]]


def test_B054_ids_of_another_wire_are_mapped_alike_in_call_and_result(wire: str):
    ids = ["call_1|fc_9", "call_1_fc_9", "a b", "x" * 100, "x" * 101, "toolu_01"]
    items = [user("Go."), *map(call, ids), *map(result, ids)]
    read = read_request(wire, without_markers(encode(manifest(wire), items)))
    made = [item.call_id for item in read if isinstance(item, ToolCall)]
    assert made == [item.call_id for item in read if isinstance(item, ToolResult)]
    assert len(set(made)) == len(ids)
    assert made[-1] == "toolu_01"
    if wire != "chat":
        assert all(len(one) <= 64 for one in made)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"b": 1,"a":"\\u00e9", "n":1.0}', '{"b": 1,"a":"\\u00e9", "n":1.0}'),
        (' {"a":1}\n', '{"a":1}'),
        ("", "{}"),
        ("   ", "{}"),
        ("null", "{}"),
        ('"{\\"path\\":\\"a\\"}"', '{"path":"a"}'),
        ('{"path":"a', None),
        ("[]", None),
        ('{"path":"a"}{"path":"b"}', None),
        ('{"a":NaN}', None),
        ('{"a":1e999}', None),
        ("7", None),
        ("{" * 9, None),
        ('{"a":' * 200 + "1" + "}" * 200, None),
    ],
)
def test_B004_B020_arguments_go_back_as_the_wire_lets_them(wire: str, arguments: str, sent: str | None):
    body = encode(manifest(wire), [user("Go."), call("c9", arguments), result("c9", "bad", is_error=True)])
    read = read_request(wire, without_markers(body))[1]
    assert isinstance(read, ToolCall)
    if wire != "messages" and sent == arguments.strip():
        assert read.arguments == arguments
    else:
        assert read.arguments == (json.dumps({UNPARSED: arguments}, separators=(",", ":")) if sent is None else sent)


def test_B009_old_messages_are_the_same_bytes_in_all_later_requests(wire: str):
    items = [
        user("Go."),
        sealed(wire),
        call("c1", '{"b": 1,"a":"\\u00e9", "n":1.0}'),
        result("c1", '{"z":1,"a":[3,1]}'),
    ]
    bodies = [without_markers(encode(manifest(wire), [*items, *map(user, "abc"[:n])])) for n in range(4)]
    ends = {"chat": 2, "responses": 2, "messages": 4}
    for shorter, longer in pairwise(bodies):
        assert longer.startswith(shorter[: -ends[wire]] + b",")


def test_M28_B007_tools_are_the_same_bytes_whatever_the_order_of_keys(wire: str):
    shuffled = [{"parameters": {"required": ["c"], "type": "object"}, "description": "Run.", "name": "bash"}]
    bodies = {encode(manifest(wire, tools=text), [user("x")]) for text in (json.dumps(shuffled), canonical(shuffled))}
    assert len(bodies) == 1


def test_M27_a_change_of_system_tools_or_an_old_item_is_found(wire: str):
    encoder, items = Encoder(BY_NAME[wire].renderer), (user("Go."), said("A"), user("On."))
    body = encoder.encode(manifest(wire), spine(*items)).segments
    for changed in (manifest(wire, system="Other."), manifest(wire, tools="[]")):
        found = find_break(body, encoder.encode(changed, spine(*items)).segments)
        assert found is not None
        assert found.segment == "head"
    found = find_break(body, encoder.encode(manifest(wire), spine(items[0], said("B"), items[2])).segments)
    assert found is not None
    assert found.index == 2


def test_M121_options_are_sorted_and_may_replace_or_remove(wire: str):
    options = canonical({"zeta": 1, OPTION[wire]: 5, "alpha": [2]})
    fields = json.loads(encode(manifest(wire, options=options), [user("x")]))
    assert fields[OPTION[wire]] == 5
    names = list(fields)
    assert names.index("alpha") < names.index("zeta") < names.index("tools")
    assert names[-1] == ("input" if wire == "responses" else "messages")


@pytest.mark.parametrize("name", ["model", "stream", "tools"])
def test_options_cannot_replace_what_is_ours(wire: str, name: str):
    with pytest.raises(UsageError, match=f"OPTION_RESERVED.*{name}"):
        encode(manifest(wire, options=canonical({name: 1})), [])


def test_nothing_but_the_conversation_is_needed(wire: str):
    body = json.loads(encode(manifest(wire, system="", tools="[]"), [user("x")]))
    assert not {"system", "instructions", "tools"} & set(body)
    assert json.loads(encode(manifest(wire), []))["model"] == "some-model"


@pytest.mark.parametrize("upto", [0, 1, 2, 3])
def test_B019_a_stream_that_ends_early_is_incomplete(wire: str, upto: int):
    stream = stream_of(wire, [said("The fix is to"), call("c1", '{"a":1}')])
    with pytest.raises(ModelError) as caught:
        fold(BY_NAME[wire].new_decoder(), stream[:upto])
    assert caught.value.fault == "incomplete"


ERRORS = [
    ({"type": "error", "error": {"type": "rate_limit_error", "message": "Concurrency limit exceeded"}}, "rate_limited"),
    ({"error": {"message": "Internal Network Failure", "code": 502}}, "server"),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
    ({"error": "upstream timeout"}, "server"),
    ({"error": {"type": "invalid_request_error", "message": "messages.3: bad"}}, "bad_request"),
    ({"type": "error", "code": "server_error", "message": "x", "param": None, "sequence_number": 3}, "server"),
    ({"type": "error", "code": "context_length_exceeded", "message": "too long"}, "context_overflow"),
]


@pytest.mark.parametrize(("event", "fault"), ERRORS)
@pytest.mark.parametrize("after", [0, 2])
def test_B021_an_error_frame_in_a_200_answer(wire: str, event: object, fault: str, after: int):
    decoder = BY_NAME[wire].new_decoder()
    stream = stream_of(wire, [said("Hel")])[:after]
    with pytest.raises(ModelError) as caught:
        fold(decoder, ['{"type": "ping"}', *stream, json.dumps(event)])
    assert caught.value.fault == fault


def test_B015_keep_alives_are_no_progress_and_no_error(wire: str):
    decoder = BY_NAME[wire].new_decoder()
    assert [decoder.feed(data) for data in ["", " ", '{"type":"ping"}', '{"type":"keepalive"}']] == [False] * 4
    for data in stream_of(wire, [said("ok")]):
        decoder.feed(data)
    assert decoder.is_done
    assert decoder.feed('{"late": 1}') is False
    assert decoder.finish().items == (said("ok"),)


@pytest.mark.parametrize("data", ["not json", "{", "<html>"])
def test_what_is_no_json_is_a_fault(wire: str, data: str):
    with pytest.raises(ModelError, match="not JSON"):
        BY_NAME[wire].new_decoder().feed(data)


def test_an_unknown_wire_is_refused(wire: str):
    with pytest.raises(UsageError, match=f"WIRE_UNKNOWN.*{wire}"):
        encode(manifest("x"), [])
