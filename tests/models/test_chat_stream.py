"""Answers of the chat wire: what the data strings of a stream fold to."""

import json

import pytest

from tests.models.speaking import manifest, result, user
from xnagent.core.ids import CallId
from xnagent.core.items import AssistantText, Reasoning, ToolCall, made_by
from xnagent.core.tokens import Usage
from xnagent.errors import ModelError
from xnagent.models.chat_stream import ChatDecoder, decode
from xnagent.models.wires import encode
from xnagent.ports import Reply

DONE = "[DONE]"


def cc(delta: object, finish: str | None = None, **more: object) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "c1", "object": "chat.completion.chunk", "choices": [choice], **more})


def tc(*calls: object) -> str:
    return cc({"tool_calls": [*calls]})


def fn(index: int | None, call_id: object, name: object, arguments: object) -> dict[str, object]:
    delta = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return delta if index is None else {"index": index, **delta}


def text_of(reply: Reply) -> str:
    return "".join(item.text for item in reply.items if isinstance(item, AssistantText))


def calls_of(reply: Reply) -> list[tuple[str, str, str]]:
    return [(c.call_id, c.name, c.arguments) for c in reply.items if isinstance(c, ToolCall)]


END = [cc({}, "tool_calls"), DONE]


def test_B012_M116_reasoning_is_kept_and_never_content():
    reply = decode(
        [
            cc({"role": "assistant", "reasoning_content": "need "}),
            cc({"reasoning_content": "ls"}),
            tc(fn(0, "c1", "bash", '{"command":"ls"}')),
            *END,
        ]
    )
    assert reply.items[0] == Reasoning(wire="chat", payload="need ls")
    assert text_of(reply) == ""
    assert decode([cc({"reasoning": "hm"}), cc({"content": "x"}, "stop")]).items[0] == Reasoning(
        wire="chat", payload="hm"
    )


def test_B015_keep_alives_are_no_progress_and_no_error():
    decoder = ChatDecoder()
    fed = [decoder.feed(d) for d in ["", " ", '{"type":"ping"}', cc({"content": "ok"}), cc({}, "stop"), DONE]]
    assert fed == [False, False, False, True, True, True]
    assert (text_of(decoder.finish()), decoder.finish().finish) == ("ok", "stop")


def test_B016_empty_ids_and_names_do_not_overwrite():
    reply = decode(
        [
            tc(fn(0, "call_a1", "bash", "")),
            tc(fn(0, "", "", '{"command": ')),
            tc({"index": 0, "id": None, "function": {"name": None, "arguments": '"ls"}'}}),
            *END,
        ]
    )
    assert calls_of(reply) == [("call_a1", "bash", '{"command": "ls"}')]


THREE = [
    fn(0, "f1", "read", '{"path":"A"}'),
    fn(0, "f2", "read", '{"path":"B"}'),
    fn(0, "f3", "grep", '{"pattern":"C"}'),
]
THREE_CALLS = [("f1", "read", '{"path":"A"}'), ("f2", "read", '{"path":"B"}'), ("f3", "grep", '{"pattern":"C"}')]


def test_B017_parallel_calls_that_all_have_index_0():
    assert calls_of(decode([*map(tc, THREE), *END])) == THREE_CALLS
    assert calls_of(decode([tc(*THREE), *END])) == THREE_CALLS


def test_B017_an_exact_repeat_is_no_new_call():
    assert calls_of(decode([tc(THREE[0]), tc(THREE[0]), tc(THREE[1]), tc(THREE[0]), *END])) == THREE_CALLS[:2]


@pytest.mark.parametrize("index", [None, 0])
def test_B017_calls_without_index_or_id(index: int | None):
    anonymous = [fn(index, None, "read", '{"path":"A"}'), fn(index, "", "read", '{"path":"B"}')]
    assert calls_of(decode([*map(tc, anonymous), *END])) == [("", "read", '{"path":"A"}'), ("", "read", '{"path":"B"}')]


def test_B017_interleaved_calls_with_one_index():
    pieces = [
        fn(0, "f1", "read", '{"path":'),
        fn(0, "f2", "read", '{"path":'),
        fn(0, "f1", "", '"A"}'),
        fn(0, "f2", "", '"B"}'),
    ]
    assert calls_of(decode([*map(tc, pieces), *END])) == THREE_CALLS[:2]


def test_interleaved_calls_by_index():
    pieces = [
        fn(0, "f1", "read", '{"path":'),
        fn(1, "f2", "read", '{"path":'),
        fn(0, None, None, '"A"}'),
        fn(1, None, None, '"B"}'),
    ]
    assert calls_of(decode([*map(tc, pieces), *END])) == THREE_CALLS[:2]


def test_name_and_id_on_every_delta():
    pieces = [fn(0, "f1", "read", '{"path"'), fn(0, "f1", "read", ':"A"}')]
    assert calls_of(decode([*map(tc, pieces), *END])) == THREE_CALLS[:1]


def test_B005_ids_come_back_as_they_were_sent():
    twice = [
        fn(0, "call_0", "read", '{"path":"a"}'),
        fn(1, "call_0", "read", '{"path":"b"}'),
        fn(2, "", "read", '{"path":"c"}'),
    ]
    assert [c[0] for c in calls_of(decode([tc(*twice), *END]))] == ["call_0", "call_0", ""]


@pytest.mark.parametrize(
    "raw", ["", "   ", "null", "{}", '"{\\"path\\":\\"a\\"}"', "[]", '{"path":"a"', '{"path":"a"}{"path":"b"}']
)
def test_B020_odd_arguments_are_kept_as_they_are(raw: str):
    assert calls_of(decode([tc(fn(0, "c1", "read", raw)), *END])) == [("c1", "read", raw)]


def test_B020_an_object_instead_of_a_string():
    assert calls_of(decode([tc(fn(0, "c1", "read", {"path": "é"})), *END])) == [("c1", "read", '{"path":"é"}')]


def test_a_legacy_function_call():
    stream = [cc({"function_call": {"name": "read", "arguments": '{"a"'}}), cc({"function_call": {"arguments": ":1}"}})]
    reply = decode([*stream, cc({}, "function_call")])
    assert (calls_of(reply), reply.finish) == ([("", "read", '{"a":1}')], "tool_calls")


USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}


@pytest.mark.parametrize(
    "first", [{"id": "", "choices": [], "prompt_filter_results": []}, {"id": ""}, {"choices": None}]
)
def test_B018_chunks_without_choices(first: object):
    stream = [json.dumps(first), cc({"content": "hi"}, usage=None), cc(None, "stop", usage=None)]
    reply = decode([*stream, json.dumps({"id": "c1", "choices": [], "usage": USAGE}), DONE])
    assert (text_of(reply), reply.finish) == ("hi", "stop")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (10, 2)


@pytest.mark.parametrize(
    "stream",
    [
        [],
        [cc({"content": "The fix is to"})],
        [tc(fn(0, "c1", "bash", '{"command":"rm'))],
        [tc(fn(0, "c1", "bash", '{"command":"rm')), DONE],
        [DONE],
    ],
)
def test_B019_an_end_without_a_finish_is_incomplete(stream: list[str]):
    with pytest.raises(ModelError) as caught:
        decode(stream)
    assert (caught.value.fault, caught.value.is_retryable) == ("incomplete", True)
    assert "The fix" not in str(caught.value)


def test_B019_a_finish_without_the_closing_mark_is_a_success():
    assert text_of(decode([cc({"content": "x"}), cc({}, "stop")])) == "x"


def test_the_closing_mark_without_a_finish_counts_if_the_answer_is_whole():
    reply = decode([cc({"content": "x"}), DONE])
    assert (reply.finish, "missing" in reply.note) == ("stop", True)
    assert decode([tc(fn(0, "c1", "bash", "{}")), DONE]).finish == "tool_calls"


@pytest.mark.parametrize(
    ("reason", "has_calls", "finish"),
    [
        ("stop", False, "stop"),
        ("stop", True, "tool_calls"),
        ("tool_calls", True, "tool_calls"),
        ("tool_calls", False, "stop"),
        ("function_call", True, "tool_calls"),
        ("length", True, "length"),
        ("length", False, "length"),
        ("content_filter", False, "content_filter"),
        ("MAX_TOKENS", False, "length"),
        ("whatever", False, "stop"),
    ],
)
def test_finish_reasons(reason: str, has_calls: bool, finish: str):
    first = tc(fn(0, "c1", "bash", '{"comm')) if has_calls else cc({"content": "x"})
    assert decode([first, cc({}, reason)]).finish == finish


@pytest.mark.parametrize(
    ("reason", "fault"), [("insufficient_system_resource", "overloaded"), ("error", "server"), ("abort", "incomplete")]
)
def test_finish_reasons_that_are_failures(reason: str, fault: str):
    with pytest.raises(ModelError) as caught:
        decode([cc({"content": "x"}), cc({}, reason), DONE])
    assert caught.value.fault == fault


@pytest.mark.parametrize(
    ("event", "fault", "text"),
    [
        (
            {"type": "error", "error": {"type": "rate_limit_error", "message": "Concurrency limit exceeded"}},
            "rate_limited",
            "Concurrency",
        ),
        ({"error": {"message": "Internal Network Failure", "code": 502}}, "server", "Internal Network"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", "Overloaded"),
        ({"error": "upstream timeout"}, "server", "upstream timeout"),
        ({"error": {"type": "invalid_request_error", "message": "messages.3: bad"}}, "bad_request", "messages.3"),
        ({"object": "error", "message": "boom", "code": 400}, "bad_request", "boom"),
        ({"message": "Too many requests", "code": "429"}, "rate_limited", "Too many"),
        ({"error": {"message": "quota", "code": "insufficient_quota"}}, "quota", "quota"),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "context_length_exceeded", "message": "exceeds"}},
            },
            "context_overflow",
            "exceeds",
        ),
    ],
)
def test_B021_B028_error_objects_inside_a_stream(event: object, fault: str, text: str):
    with pytest.raises(ModelError, match=text) as caught:
        decode([cc({"content": "Hel"}), json.dumps(event), cc({}, "stop"), DONE])
    assert caught.value.fault == fault


def test_what_is_no_json_is_a_server_fault():
    with pytest.raises(ModelError, match="not JSON: upstream gone") as caught:
        decode(["upstream gone"])
    assert caught.value.fault == "server"


def test_events_joined_by_a_gateway_are_taken_apart():
    assert text_of(decode([cc({"content": "a"}) + "\n" + cc({"content": "b"}, "stop") + "\n[DONE]"])) == "ab"


def test_odd_json_values_are_ignored():
    assert (
        text_of(
            decode(
                ["null", "1", '"x"', "[]", '{"choices":[7]}', cc("x"), cc({"content": 5}), cc({"content": "a"}, "stop")]
            )
        )
        == "a"
    )


def test_odd_calls_are_ignored_or_read_as_far_as_they_go():
    odd = [
        5,
        {},
        {"index": "0", "id": "c", "function": {"name": "read", "arguments": 7}},
        {"index": 0, "function": None},
    ]
    assert calls_of(decode([tc(*odd), cc({"tool_calls": 5}), *END])) == [("c", "read", "")]


def test_M95_C11_what_gemini_puts_beside_a_call_goes_back_with_it():
    signed = {"google": {"thought_signature": "EqQB/+== é"}}
    first = {**fn(0, "f1", "read", '{"path":"A"}'), "extra_content": signed}
    reply = decode([tc(first, {**fn(1, "f2", "grep", "{}"), "extra_content": 5}), *END])
    assert [made[0] for made in calls_of(reply)] == ["f1", "f2"]
    history = (user("Go."), *reply.items, result("f1"), result("f2"), user("On."))
    for sends in (True, False):
        sent = json.loads(encode(manifest("chat", send_reasoning=sends), history))["messages"][2]
        assert [made.get("extra_content") for made in sent["tool_calls"]] == [signed, None]
        assert "reasoning_content" not in sent
    foreign = made_by("other-model", reply.items)
    for wire, items in (("chat", (history[0], *foreign, *history[4:])), ("messages", history), ("responses", history)):
        assert b"EqQB" not in encode(manifest(wire), items)


def test_M95_C10_openrouters_reasoning_blocks_go_back_whole_and_in_their_order():
    def details(*blocks: object) -> str:
        return cc({"reasoning": "seen by people", "reasoning_details": [*blocks]})

    stream = [
        details({"type": "reasoning.text", "index": 0, "text": "I need ", "signature": None, "format": "f1"}),
        details({"type": "reasoning.text", "index": 0, "text": "ls é.", "signature": None}, 5),
        details({"type": "reasoning.text", "index": 0, "text": "", "signature": "EqQB/+=="}),
        details({"type": "reasoning.encrypted", "index": 0, "data": "gAAA", "id": "t1"}),
        details({"type": "reasoning.summary", "summary": "one"}, {"type": "reasoning.summary", "summary": "two"}),
        tc(fn(0, "c1", "read", "{}")),
        *END,
    ]
    reply = decode(stream)
    history = (user("Go."), *reply.items, result("c1"))
    for sends in (True, False):
        sent = json.loads(encode(manifest("chat", send_reasoning=sends), history))["messages"][2]
        assert sent["reasoning_details"] == [
            {"type": "reasoning.text", "index": 0, "text": "I need ls é.", "signature": "EqQB/+==", "format": "f1"},
            {"type": "reasoning.encrypted", "index": 0, "data": "gAAA", "id": "t1"},
            {"type": "reasoning.summary", "summary": "one"},
            {"type": "reasoning.summary", "summary": "two"},
        ]
        assert "reasoning_content" not in sent
    foreign = made_by("other-model", reply.items)
    for wire, items in (("chat", (history[0], *foreign, *history[-1:])), ("messages", history), ("responses", history)):
        assert b"EqQB" not in encode(manifest(wire), items)


def test_a_single_call_that_is_in_no_list():
    alone = fn(0, "c", "read", "{}")
    assert calls_of(decode([cc({"tool_calls": alone}), *END])) == [("c", "read", "{}")]


def test_content_in_parts():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "ok"}]
    assert decode([cc({"content": parts}, "stop")]).items == (
        Reasoning(wire="chat", payload="hm"),
        AssistantText(text="ok"),
    )


def test_B055_a_pair_of_surrogates_over_two_deltas():
    assert text_of(decode([cc({"content": "\ud83d"}), cc({"content": "\ude00"}, "stop")])) == "😀"
    assert text_of(decode([cc({"content": "\ud83d"}, "stop")])) == "\ufffd"


def test_a_whole_completion_is_one_data_string():
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "read", "arguments": "{}"}}],
    }
    reply = decode(
        [json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": USAGE})]
    )
    assert (calls_of(reply), reply.finish, reply.usage.input_tokens) == ([("c", "read", "{}")], "tool_calls", 10)


def test_B027_an_attempt_leaves_nothing_for_the_next():
    failed = [cc({"content": "Let me run"}), tc(fn(0, "x1", "bash", '{"command":"pri'))]
    with pytest.raises(ModelError):
        decode(failed)
    reply = decode([cc({"content": "Let me run it."}), tc(fn(0, "x2", "bash", '{"command":"printf 1"}')), *END])
    assert text_of(reply) == "Let me run it."
    assert calls_of(reply) == [("x2", "bash", '{"command":"printf 1"}')]


def usage_of(usage: object, **more: object) -> Reply:
    return decode([cc({"content": "x"}, "stop"), json.dumps({"choices": [], "usage": usage, **more}), DONE])


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            {"prompt_tokens": 20000, "completion_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 16000}},
            Usage(input_tokens=20000, output_tokens=1000, cached_tokens=16000),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
            },
            Usage(input_tokens=9, output_tokens=1, cached_tokens=4, cache_write_tokens=5),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 9},
            Usage(input_tokens=9, output_tokens=1, cached_tokens=0),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 1}, Usage(input_tokens=9, output_tokens=1)),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 7},
            Usage(input_tokens=9, output_tokens=1, cached_tokens=7),
        ),
        ({"prompt_tokens": True, "input_tokens": 9.0, "completion_tokens": 1}, Usage(input_tokens=9, output_tokens=1)),
    ],
)
def test_B067_M33_usage_in_the_dialects(sent: object, expected: Usage):
    assert usage_of(sent).usage == expected


def test_usage_of_llama_cpp():
    timings = {"cache_n": 90, "prompt_n": 10, "predicted_n": 7}
    assert usage_of(None, timings=timings).usage == Usage(input_tokens=100, cached_tokens=90, output_tokens=7)
    both = usage_of({"prompt_tokens": 100, "completion_tokens": 7}, timings=timings)
    assert both.usage == Usage(input_tokens=100, cached_tokens=90, output_tokens=7)


LLAMA_FRAME = {"created": 1796032984, "id": "chatcmpl-1", "model": "m.gguf", "object": "chat.completion.chunk"}


def llama(delta: dict, finish: str | None = None, **more: object) -> str:
    """A chunk as llama.cpp writes it (seen in October 2026)."""
    return json.dumps({"choices": [{"finish_reason": finish, "index": 0, "delta": delta}], **LLAMA_FRAME, **more})


def test_a_call_with_progress_as_llama_cpp_streams_it():
    opened = {"index": 0, "id": "663I", "type": "function", "function": {"name": "read", "arguments": "{"}}
    rest = ('"', "path", '":', ' "', "a", ".py", '"}')
    usage = {"completion_tokens": 21, "prompt_tokens": 160, "prompt_tokens_details": {"cached_tokens": 0}}
    reply = decode(
        [
            llama({"role": "assistant", "content": None}, prompt_progress={"total": 160, "cache": 0, "processed": 160}),
            llama({"role": "assistant", "content": None}),
            llama({"tool_calls": [opened]}),
            *(llama({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in rest),
            llama({}, "tool_calls"),
            json.dumps({"choices": [], **LLAMA_FRAME, "usage": usage, "timings": {"cache_n": 0, "prompt_n": 160}}),
            "[DONE]",
        ]
    )
    assert reply.items == (ToolCall(call_id=CallId("663I"), name="read", arguments='{"path": "a.py"}'),)
    assert (reply.finish, reply.note) == ("tool_calls", "")
    assert reply.usage == Usage(input_tokens=160, cached_tokens=0, output_tokens=21)


def test_the_progress_of_llama_cpp_is_progress_but_no_piece_of_the_answer():
    decoder = ChatDecoder()
    assert decoder.feed(llama({"role": "assistant", "content": None}, prompt_progress={"total": 9, "processed": 5}))
    assert not decoder.has_begun
    assert decoder.feed(llama({"content": "x"}))
    assert decoder.has_begun


def test_usage_inside_the_choice():
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop", "usage": USAGE}
    assert decode([json.dumps({"choices": [choice]})]).usage.input_tokens == 10


def test_M61_cached_tokens_outside_the_input_are_added():
    reply = usage_of(
        {"input_tokens": 7, "cache_read_input_tokens": 9000, "cache_creation_input_tokens": 1000, "output_tokens": 200}
    )
    assert reply.usage == Usage(input_tokens=10007, cached_tokens=9000, cache_write_tokens=1000, output_tokens=200)
    assert "added" in reply.note


@pytest.mark.parametrize(
    ("sent", "output"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": 0, "completion_tokens": 12}, 12),
        ({"total_tokens": 900}, None),
        ({"prompt_tokens": -1}, None),
    ],
)
def test_B069_no_usable_usage_is_marked_and_never_0(sent: object, output: int | None):
    reply = usage_of(sent)
    assert reply.usage == Usage(output_tokens=output, is_estimated=True)
    assert "usage" in reply.note


@pytest.mark.parametrize(
    ("sent", "output", "is_odd"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 5120, "total_tokens": 5220, "r": 1710}, 5120, False),
        ({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 160, "r": 50}, 60, True),
        ({"prompt_tokens": 100, "completion_tokens": 10, "r": 50}, 60, True),
        ({"prompt_tokens": 100, "completion_tokens": 60, "total_tokens": 180, "r": 20}, 80, True),
        ({"prompt_tokens": 100, "total_tokens": 130, "r": 20}, 30, True),
    ],
)
def test_B070_reasoning_is_counted_once(sent: dict[str, int], output: int, is_odd: bool):
    reasoning = sent["r"]
    reply = usage_of({**sent, "completion_tokens_details": {"reasoning_tokens": reasoning}})
    assert (reply.usage.output_tokens, reply.usage.reasoning_tokens, bool(reply.note)) == (output, reasoning, is_odd)
