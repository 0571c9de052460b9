"""Requests of the chat wire: bytes, prefixes, incremental rendering."""

import hashlib
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.ids import AgentId, CallId
from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import canonical
from xnagent.errors import UsageError
from xnagent.models.chat import ChatEncoder, encode

TOOLS = [
    {"name": "bash", "description": "Run.", "parameters": {"type": "object", "required": ["command"]}},
    {"name": "read", "description": "Read é.", "parameters": {"type": "object"}},
]


def manifest(**changes) -> ManifestRecorded:
    values = {
        "manifest": "m1",
        "role": "worker",
        "wire": "chat",
        "model": "some-model",
        "system": "Be good.",
        "tools": canonical(TOOLS),
        "max_output_tokens": 1000,
        "window_tokens": 100_000,
    }
    return ManifestRecorded(**{**values, **changes})


def user(text: str) -> UserText:
    return UserText(text=text, origin="user")


def call(number: int, arguments: str = "{}", name: str = "bash") -> ToolCall:
    return ToolCall(call_id=CallId(f"c{number}"), name=name, arguments=arguments)


def result(number: int, text: str = "ok") -> ToolResult:
    return ToolResult(call_id=CallId(f"c{number}"), text=text)


HEAD = (
    b'{"model":"some-model","stream":true,"stream_options":{"include_usage":true},"max_tokens":1000,'
    b'"tools":[{"type":"function","function":{"name":"bash","description":"Run.",'
    b'"parameters":{"required":["command"],"type":"object"}}},'
    b'{"type":"function","function":{"name":"read","description":"Read \xc3\xa9.","parameters":{"type":"object"}}}],'
    b'"messages":[{"role":"system","content":"Be good."}'
)


def test_golden_of_the_first_request():
    assert encode(manifest(), [user("Go.")]) == HEAD + b',{"role":"user","content":"Go."}]}'


def test_golden_without_tools_and_system():
    bare = manifest(tools="[]", system="")
    assert encode(bare, [user("Go."), user("On.")]) == (
        b'{"model":"some-model","stream":true,"stream_options":{"include_usage":true},"max_tokens":1000,'
        b'"messages":[{"role":"user","content":"Go."},{"role":"user","content":"On."}]}'
    )


def test_golden_of_a_whole_round_with_parallel_calls():
    items = [
        user("Go."),
        Reasoning(wire="chat", payload="need ls"),
        AssistantText(text="I look."),
        call(1, '{"b": 1,"a":"\\u00e9", "n":1.0}'),
        call(2, "", name="read"),
        result(1, "one\ntwo"),
        result(2, "\u2028"),
    ]
    expected = (
        ',{"role":"user","content":"Go."},{"role":"assistant","content":"I look.","tool_calls":['
        '{"id":"c1","type":"function","function":{"name":"bash",'
        '"arguments":"{\\"b\\": 1,\\"a\\":\\"\\\\u00e9\\", \\"n\\":1.0}"}},'
        '{"id":"c2","type":"function","function":{"name":"read","arguments":"{}"}}]},'
        '{"role":"tool","tool_call_id":"c1","content":"one\\ntwo"},'
        '{"role":"tool","tool_call_id":"c2","content":"\u2028"}]}'
    )
    assert encode(manifest(), items) == HEAD + expected.encode()


def test_B012_reasoning_goes_back_beside_the_calls_where_it_is_wanted():
    items = [user("Go."), Reasoning(wire="chat", payload="need ls"), call(1), result(1)]
    wanted = json.loads(encode(manifest(send_reasoning=True), items))["messages"][2]
    assert list(wanted) == ["role", "content", "reasoning_content", "tool_calls"]
    assert wanted["content"] is None
    assert wanted["reasoning_content"] == "need ls"
    assert b"need ls" not in encode(manifest(), items)


def test_T29_reasoning_of_another_wire_is_not_sent():
    items = [user("Go."), Reasoning(wire="messages", payload="sealed"), AssistantText(text="x")]
    assert b"sealed" not in encode(manifest(send_reasoning=True), items)


def test_a_reply_without_text_and_calls_is_an_empty_text():
    items = [user("Go."), Reasoning(wire="chat", payload="hm"), user("On.")]
    assert json.loads(encode(manifest(), items))["messages"][2] == {"role": "assistant", "content": ""}


def test_options_are_sorted_and_may_rename_or_remove_a_parameter():
    options = canonical(
        {"temperature": 0, "max_tokens_name": "max_completion_tokens", "stream_options": None, "a": [1]}
    )
    assert encode(manifest(tools="[]", system="", options=options), [user("x")]) == (
        b'{"model":"some-model","stream":true,"max_completion_tokens":1000,"a":[1],"temperature":0,'
        b'"messages":[{"role":"user","content":"x"}]}'
    )


@pytest.mark.parametrize("name", ["model", "messages", "tools", "stream"])
def test_options_cannot_replace_what_is_ours(name: str):
    with pytest.raises(UsageError, match=f"OPTION_RESERVED.*{name}"):
        encode(manifest(options=canonical({name: 1})), [])


def test_M28_B007_tools_are_the_same_bytes_whatever_the_order_of_keys():
    shuffled = [{"parameters": {"required": ["command"], "type": "object"}, "description": "Run.", "name": "bash"}]
    first = encode(manifest(tools=json.dumps(shuffled)), [])
    assert first == encode(manifest(tools=canonical(TOOLS[:1])), [])


@pytest.mark.parametrize(
    ("name", "sent"), [("a.b c", "a_b_c"), ("", "unknown"), ("x" * 99, "x" * 64), ("ok_1-a", "ok_1-a")]
)
def test_an_invented_tool_name_does_not_spoil_later_requests(name: str, sent: str):
    message = json.loads(encode(manifest(), [call(1, name=name), result(1)]))["messages"][1]
    assert message["tool_calls"][0]["function"]["name"] == sent


def test_B055_half_a_surrogate_pair_is_sent_as_a_replacement():
    body = encode(manifest(), [user("a\ud83d b"), call(1, "\udc00"), result(1, "\ud83d\ude00")])
    messages = json.loads(body.decode())["messages"]
    assert messages[1]["content"] == "a\ufffd b"
    assert messages[3]["content"] == "😀"


def test_B009_M95_old_messages_are_the_same_bytes_in_all_later_requests():
    items = [user("Go."), call(1, '{"b": 1,"a":"\\u00e9", "n":1.0}'), result(1, '{"z":1,"a":[3,1]}')]
    bodies = [encode(manifest(), [*items, *map(user, "abc"[:n])]) for n in range(4)]
    for shorter, longer in pairwise(bodies):
        assert longer.startswith(shorter[:-2] + b",")


TEXTS = st.text(max_size=12)


def extend(spine: Spine, items: list[Item]) -> Spine:
    return replace(spine, items=(*spine.items, *items))


@st.composite
def spines(draw) -> list[Spine]:
    """A spine as it grows: message, reply with calls, results, now and then a rebase."""
    spine = extend(Spine(agent=AgentId("r1")), [user("brief")])
    history, number = [spine], 0
    for _ in range(draw(st.integers(0, 6))):
        step = draw(st.sampled_from(["message", "reply", "calls", "rebase"]))
        if step == "message":
            spine = extend(spine, [user(draw(TEXTS))])
        elif step == "rebase":
            checkpoint = (spine.items[0], user("<checkpoint>"))
            spine = replace(spine, generation=spine.generation + 1, items=checkpoint)
        else:
            count = draw(st.integers(1, 3)) if step == "calls" else 0
            calls = [call(number + n, draw(TEXTS)) for n in range(count)]
            number += count
            reasoning = [Reasoning(wire="chat", payload=draw(TEXTS))] if draw(st.booleans()) else []
            spine = extend(spine, [*reasoning, AssistantText(text=draw(TEXTS)), *calls])
            results = [ToolResult(call_id=one.call_id, text=draw(TEXTS)) for one in calls]
            spine = extend(spine, results or [user(draw(TEXTS))])
        history.append(spine)
    return history


@given(history=spines(), reasoning=st.booleans())
def test_I1_incremental_equals_pure_and_extends(history: list[Spine], reasoning: bool):
    encoder, chosen = ChatEncoder(), manifest(send_reasoning=reasoning)
    last = None
    for spine in history:
        body = encoder.encode(chosen, spine)
        assert body.content == encode(chosen, spine.items) == ChatEncoder().encode(chosen, spine).content
        assert body.sha256 == hashlib.sha256(body.content).hexdigest()
        assert b"".join(body.segments) + b"]}" == body.content
        if last is not None and last[0].lineage == spine.lineage:
            assert body.content.startswith(last[1].content[:-2])
            assert all(a is b for a, b in zip(last[1].segments, body.segments, strict=False))
        last = (spine, body)


def test_items_that_are_no_extension_are_rendered_anew():
    encoder = ChatEncoder()
    spine = extend(Spine(agent=AgentId("r1")), [user("a")])
    encoder.encode(manifest(), spine)
    for other in (
        replace(spine, items=(user("b"),)),
        replace(spine, items=()),
        replace(spine, items=(spine.items[0], AssistantText(text="x"))),
        replace(spine, items=(spine.items[0], AssistantText(text="x"), AssistantText(text="y"))),
    ):
        assert encoder.encode(manifest(), other).content == encode(manifest(), other.items)
    changed = manifest(system="Other.")
    assert encoder.encode(changed, spine).content == encode(changed, spine.items)


def test_the_cost_of_a_request_is_what_is_new():
    encoder, spine = ChatEncoder(), extend(Spine(agent=AgentId("r1")), [user("a" * 1000) for _ in range(500)])
    first = encoder.encode(manifest(), spine)
    second = encoder.encode(manifest(), extend(spine, [user("b")]))
    assert len(second.segments) == len(first.segments) + 1
    assert all(a is b for a, b in zip(first.segments, second.segments, strict=False))
