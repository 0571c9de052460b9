"""One script on three wires, streamed and whole; and the official SDKs as readers of what is sent."""

import json

import pytest

from tests.testing.talk import WIRES, Talk, events_of, exchange, read
from xnagent.testing.script import QUIRKS
from xnagent.testing.server import ScriptedServer

SCRIPT = {
    "worker": [
        {
            "match": "Task parser",
            "steps": [
                {
                    "reasoning": "Ich öffne – 那个 – beides. " * 9,
                    "text": "I look 😀.",
                    "calls": [
                        {"name": "bash", "arguments": {"command": "ls " + "é" * 60}},
                        {"name": "bash", "arguments": {"command": "pwd"}},
                    ],
                },
                {"when": ["a.py", "/tmp"], "reasoning": "good", "text": "Both are there."},
                {"when": "more", "text": "Bye."},
            ],
        }
    ]
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", WIRES)
def test_one_script_serves_all_wires(wire: str, stream: bool):
    with ScriptedServer(SCRIPT) as server:
        talk = Talk(wire).user("Task parser: fix it")
        first = talk.ask(server, stream=stream)
        assert (first.text, first.reasoning) == ("I look 😀.", "Ich öffne – 那个 – beides. " * 9)
        assert [(name, json.loads(text)) for _, name, text in first.calls] == [
            ("bash", {"command": "ls " + "é" * 60}),
            ("bash", {"command": "pwd"}),
        ]
        assert first.finish == {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}[wire]
        (one, *_), (two, *_) = first.calls
        second = talk.results((one, "a.py"), (two, "/tmp")).ask(server, stream=stream)
        assert second.text == "Both are there."
        assert talk.user("more").ask(server, stream=stream).text == "Bye."
        server.check()
        assert (server.count("extensions"), server.count("breaks"), server.books.requests) == (2, 0, 3)


def test_llama_cpp_tells_its_progress_when_asked():
    body = {"messages": [{"role": "user", "content": "Task parser"}], "stream": True, "return_progress": True}
    with ScriptedServer(SCRIPT, provider="llama.cpp") as server:
        status, _, text = exchange(server, "chat", body)
    told = [event["prompt_progress"] for event in events_of(text) if "prompt_progress" in event]
    assert status == 200
    assert [one["processed"] for one in told] == [0, told[0]["total"]]
    assert [list(event) for event in events_of(text)[2:3]] == [["id", "object", "created", "model", "choices"]]


@pytest.mark.parametrize("wire", WIRES)
def test_B067_usage_adds_up_to_the_books(wire: str):
    with ScriptedServer(SCRIPT) as server:
        talk = Talk(wire, system="s" * 9000).user("Task parser")
        marks = {"cache_control": {"type": "ephemeral"}} if wire == "messages" else {}
        first = talk.ask(server, **marks)
        ids = [call[0] for call in first.calls]
        second = talk.results((ids[0], "a.py"), (ids[1], "/tmp")).ask(server, **marks)
        totals = {"input": 0, "cached": 0, "written": 0, "output": 0}
        for usage in (first.usage, second.usage):
            details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
            read, written = usage.get("cache_read_input_tokens", 0), usage.get("cache_creation_input_tokens", 0)
            totals["cached"] += details.get("cached_tokens", 0) + read
            totals["written"] += written
            totals["input"] += usage.get("prompt_tokens", usage.get("input_tokens", 0)) + read + written
            totals["output"] += usage.get("completion_tokens", usage.get("output_tokens", 0))
        books = server.books
        assert totals == {
            "input": books.input_tokens,
            "cached": books.cached_tokens,
            "written": books.written_tokens,
            "output": books.output_tokens,
        }
        assert books.cached_tokens > 2000
        assert (books.written_tokens > 0) == (wire == "messages")
        assert server.reported == books


@pytest.mark.parametrize("wire", WIRES)
def test_I1_an_edited_past_is_a_break_and_a_checkpoint_a_rebase(wire: str):
    with ScriptedServer({"worker": [{"text": "ok", "times": 0}]}) as server:
        talk = Talk(wire).user("Task x")
        talk.ask(server)
        talk.user("on").ask(server)
        rebased = Talk(wire).user("Task x").user("<checkpoint 1>")
        rebased.ask(server)
        assert (server.count("extensions"), server.count("rebases"), server.problems) == (1, 1, [])
        rebased.history[1] = {**rebased.history[1], "content": "edited"}
        rebased.user("y").ask(server)
        assert (server.count("breaks"), "broken: at byte" in server.problems[0]) == (1, True)


def test_I1_cache_marks_may_move_and_blocks_may_be_appended():
    mark = {"cache_control": {"type": "ephemeral"}}
    with ScriptedServer({"worker": [{"text": "ok", "times": 0}]}) as server:
        talk = Talk("messages").user("Task x")
        talk.history[0]["content"][0] |= mark
        talk.ask(server)
        del talk.history[0]["content"][0]["cache_control"]
        talk.user("on")
        talk.history[-1]["content"][0] |= mark
        talk.ask(server)
        talk.history.pop()
        talk.history[-1]["content"] += [{"type": "text", "text": "and on"}]
        talk.ask(server)
        assert (server.count("extensions"), server.count("breaks"), server.problems) == (2, 0, [])


@pytest.mark.parametrize("wire", WIRES)
def test_a_resend_gets_the_same_answer(wire: str):
    with ScriptedServer(SCRIPT) as server:
        body = Talk(wire).user("Task parser").body(stream=True)
        assert exchange(server, wire, body)[2] == exchange(server, wire, body)[2]
        assert (server.count("resends"), server.books.requests) == (1, 1)


def test_reasoning_that_is_switched_off_is_not_sent():
    with ScriptedServer(SCRIPT) as server:
        said = Talk("messages").user("Task parser").ask(server, thinking={"type": "disabled"})
        assert (said.reasoning, said.text) == ("", "I look 😀.")


def test_encrypted_reasoning_is_sent_when_it_is_asked_for():
    with ScriptedServer(SCRIPT) as server:
        talk = Talk("responses").user("Task parser")
        said = talk.ask(server, include=[])
        assert "encrypted_content" not in said.turn[0]
        status, _, raw = exchange(server, "responses", talk.results(*((i, "a.py") for i, *_ in said.calls)).body())
        assert (status, b"Items are not persisted" in raw) == (404, True)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("quirk", [q for q in QUIRKS if q not in {"index_zero", "truncated_arguments"}])
def test_quirks_leave_the_answer_whole(wire: str, quirk: str):
    script = {"worker": [{**SCRIPT["worker"][0]["steps"][0], "quirks": [quirk]}]}
    with ScriptedServer(script) as server:
        status, headers, raw = exchange(server, wire, Talk(wire).user("Task").body(stream=True))
        assert status == 200
        assert headers["content-type"].startswith("text/plain" if quirk == "text_type" else "text/event-stream")
        assert raw.startswith(b"\xef\xbb\xbf") == (quirk == "bom")
        assert (b"\r\n\r\n" in raw) == (quirk == "crlf")
        assert (b": keepalive" in raw) == (quirk == "keepalive")
        assert (b'"choices":[],"prompt_filter' in raw) == (quirk == "empty_choices" and wire == "chat")
        assert (b"[DONE]" in raw) == (wire == "chat" and quirk != "no_done")
        server.check()
        untold = quirk == "no_usage" or (quirk == "null_usage" and wire != "messages")
        assert server.reported.requests == (0 if untold else 1)
        if quirk != "keepalive":
            text = "".join(json.dumps(one, ensure_ascii=False) for one in events_of(raw))
            assert ("call_0" in text) == (quirk == "duplicate_ids")


def test_B016_B017_later_pieces_repeat_nothing_useful_and_indexes_are_zero():
    step = {**SCRIPT["worker"][0]["steps"][0], "quirks": ["index_zero", "repeated_ids"]}
    with ScriptedServer({"worker": [step]}) as server:
        events = events_of(exchange(server, "chat", Talk("chat").user("Task").body(stream=True))[2])
    calls = [call for one in events for choice in one["choices"] for call in choice["delta"].get("tool_calls") or ()]
    assert {call["index"] for call in calls} == {0}
    assert len([call for call in calls if call["id"]]) == 2
    assert {call["id"] for call in calls} > {"", None}


@pytest.mark.parametrize("wire", WIRES)
def test_B020_truncated_arguments_then_the_same_answer_whole(wire: str):
    step = {**SCRIPT["worker"][0]["steps"][0], "quirks": ["truncated_arguments"]}
    with ScriptedServer({"worker": [step, {"when": "a.py", "text": "done"}]}) as server:
        talk = Talk(wire).user("Task")
        raw = exchange(server, wire, talk.body(stream=True))[2]
        ((call, _, cut),) = _calls(wire, raw)
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            json.loads(cut)
        exchange(server, wire, talk.body(stream=True))
        said = talk.ask(server)
        assert [i for i, *_ in said.calls] == [call]
        again = talk.results((call, "cannot be read: a.py")).ask(server)
        assert len(again.calls) == 2
        assert again.calls[0][0] != call
        assert talk.results(*((i, "ok") for i, *_ in again.calls)).ask(server).text == "done"
        server.check()


def _calls(wire: str, raw: bytes) -> list[tuple[str, str, str]]:
    if wire != "messages":
        return read(wire, raw, stream=True).calls
    events = events_of(raw)
    (block,) = [e["content_block"] for e in events if e.get("content_block", {}).get("type") == "tool_use"]
    text = "".join(e["delta"].get("partial_json", "") for e in events if e["type"] == "content_block_delta")
    return [(block["id"], block["name"], text)]
