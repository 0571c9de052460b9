"""The scripted server tested by itself: script, checks, faults, books; with plain requests and with the real client."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from xnagent.core.ids import AgentId
from xnagent.core.items import AssistantText, ToolCall, ToolResult, UserText
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.errors import ModelError
from xnagent.models.catalog import ModelEntry, create_model
from xnagent.models.chat import encode
from xnagent.testing.cache import CacheRules
from xnagent.testing.script import ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer

SYSTEM = {"role": "system", "content": "Be good."}
BRIEF = {"role": "user", "content": "Task parser: fix it"}


def body_of(*messages: object, tools: tuple[str, ...] = (), **more: object) -> bytes:
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    return json.dumps(
        {"model": "scripted", **more, "tools": offered, "messages": messages}, separators=(",", ":")
    ).encode()


def post(server: ScriptedServer, body: bytes, path: str = "/v1/chat/completions") -> tuple[int, object]:
    address = urlsplit(server.base_url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def message_of(answer: tuple[int, object]) -> dict[str, object]:
    assert answer[0] == 200, answer
    return answer[1]["choices"][0]["message"]


WORKER = {
    "worker": [
        {
            "match": "Task parser",
            "steps": [
                {"text": "I look.", "calls": [{"name": "bash", "arguments": '{"command": "ls"}'}]},
                {"when": ["a.py", "b.py"], "text": "Both are there."},
                {"when": "again", "text": "Yes.", "times": 0},
            ],
        }
    ]
}


def test_a_script_is_followed_and_leftovers_and_surprises_are_problems():
    with ScriptedServer(WORKER) as server:
        first = message_of(post(server, body_of(SYSTEM, BRIEF)))
        call = first["tool_calls"][0]
        assert (first["content"], call["function"]["arguments"]) == ("I look.", '{"command": "ls"}')
        with pytest.raises(AssertionError, match=r"rule 2 of worker 'Task parser' was used 0 of 1"):
            server.check()
        server.check(leftovers=False)
        so_far = [SYSTEM, BRIEF, first, {"role": "tool", "tool_call_id": call["id"], "content": "a.py b.py"}]
        assert message_of(post(server, body_of(*so_far)))["content"] == "Both are there."
        server.check()
        so_far += [{"role": "assistant", "content": "Both are there."}]
        for _ in range(2):
            so_far += [{"role": "user", "content": "again"}]
            said = message_of(post(server, body_of(*so_far)))
            so_far += [said]
        status, answer = post(server, body_of(*so_far, {"role": "user", "content": "odd"}))
        assert (status, "unexpected request" in answer["error"]["message"]) == (400, True)
        with pytest.raises(AssertionError, match="'odd'"):
            server.check()
        assert (server.count("extensions"), server.count("breaks"), len(server.bodies)) == (4, 0, 5)


def test_roles_conversations_and_attempts():
    script = {
        "planner": [{"text": "one"}, {"text": "two", "when": ["more"]}],
        "planner_wait": "waiting",
        "worker": [
            {"match": "Task a", "attempt": 1, "text": "first a"},
            {"match": "Task a", "attempt": 2, "text": "second a"},
            {"match": "Task b", "text": "b"},
        ],
    }
    with ScriptedServer(script) as server:
        goal = {"role": "user", "content": "objective"}
        planner = [SYSTEM, goal]
        for new, expected in [("x", "one"), ("x", "waiting"), ("more", "two")]:
            planner.append({"role": "user", "content": new})
            said = message_of(post(server, body_of(*planner, tools=("delegate", "plan"))))
            assert said["content"] == expected
            planner.append(said)
        for text, expected in [("Task b", "b"), ("Task a run r1", "first a"), ("Task a run r3", "second a")]:
            assert message_of(post(server, body_of(SYSTEM, {"role": "user", "content": text})))["content"] == expected
        server.check()


def test_a_resend_gets_the_same_reply_and_moves_nothing():
    with ScriptedServer({"worker": [{"text": "a"}, {"text": "b"}]}) as server:
        body = body_of(SYSTEM, BRIEF)
        first = post(server, body)
        assert post(server, body) == first
        assert (server.count("resends"), server.books.requests) == (1, 1)
        later = body_of(SYSTEM, BRIEF, {"role": "assistant", "content": "a"}, {"role": "user", "content": "x"})
        assert message_of(post(server, later))["content"] == "b"
        server.check()


def test_the_same_brief_once_more_is_a_new_attempt():
    script = {
        "worker": [{"attempt": 1, "steps": [{"text": "a"}, {"text": "b"}]}, {"attempt": 2, "steps": [{"text": "c"}]}]
    }
    with ScriptedServer(script) as server:
        assert message_of(post(server, body_of(SYSTEM, BRIEF)))["content"] == "a"
        more = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "x"}]
        assert message_of(post(server, body_of(SYSTEM, BRIEF, *more)))["content"] == "b"
        assert message_of(post(server, body_of(SYSTEM, BRIEF)))["content"] == "c"
        server.check()


def assistant(*ids: str, **more: object) -> dict[str, object]:
    calls = [{"id": i, "type": "function", "function": {"name": "bash", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, **more, "tool_calls": calls}


def result(call_id: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([BRIEF, assistant("c1")], "no results of ['c1'] at the end"),
        ([BRIEF, assistant("c1", "c2"), result("c2"), result("c1")], "expected 'c1'"),
        ([BRIEF, assistant("c1"), BRIEF], "stands before the results"),
        ([BRIEF, result("c9")], "expected None"),
        ([BRIEF, assistant("c1"), result("c1"), result("c1")], "expected None"),
        ([BRIEF, assistant("c1", "c1"), result("c1"), result("c1")], "uses the id 'c1' again"),
        ([BRIEF, assistant("c1"), result("c1"), assistant("c1"), result("c1")], "again"),
        ([BRIEF, assistant(""), result("")], "without an id"),
        ([BRIEF, {"role": "robot", "content": "x"}], "role 'robot'"),
        ([], "no messages"),
    ],
)
def test_I3_M123_pairs_are_checked(messages: list[object], says: str):
    with ScriptedServer({"worker": [{"text": "x", "times": 0}]}) as server:
        status, answer = post(server, body_of(*messages))
        assert (status, says in answer["error"]["message"]) == (400, True), answer
        with pytest.raises(AssertionError):
            server.check()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages":[1]}', b'{"messages":"x"}', b"\xff"])
def test_bodies_that_cannot_be_read(body: bytes):
    with ScriptedServer() as server:
        assert post(server, body)[0] == 400
        assert len(server.problems) == 1


def test_I1_breaks_and_declared_rebases():
    with ScriptedServer({"worker": [{"text": "ok", "times": 0}]}) as server:
        grown = [SYSTEM, BRIEF, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "x"}]
        post(server, body_of(SYSTEM, BRIEF))
        post(server, body_of(*grown))
        checkpoint = {"role": "user", "content": "<checkpoint 1>"}
        post(server, body_of(SYSTEM, BRIEF, checkpoint))
        assert (server.count("extensions"), server.count("rebases"), server.problems) == (1, 1, [])
        post(server, body_of(SYSTEM, BRIEF, checkpoint, {"role": "user", "content": "y"}))
        post(server, body_of(SYSTEM, BRIEF, {**checkpoint, "content": "edited"}, *grown[2:]))
        assert (server.count("breaks"), "at byte" in server.problems[0]) == (1, True)
        post(server, body_of(SYSTEM, BRIEF, {"role": "user", "content": "<checkpoint"}, tools=("bash",)))
        assert server.count("breaks") == 2


def test_M122_reasoning_must_come_back():
    script = {"worker": [{"reasoning": "need ls", "calls": [{"name": "bash", "id": "c1"}]}, {"text": "ok", "times": 0}]}
    with ScriptedServer(script, require_reasoning=True) as server:
        post(server, body_of(SYSTEM, BRIEF))
        status, answer = post(server, body_of(SYSTEM, BRIEF, assistant("c1"), result("c1")))
        assert (status, "reasoning_content" in answer["error"]["message"]) == (400, True)
        given = assistant("c1", reasoning_content="need ls")
        assert post(server, body_of(SYSTEM, BRIEF, given, result("c1")))[0] == 200


def test_a_brain_answers_in_place_of_a_script():
    seen = []

    def brain(view):
        seen.append((view.role, view.number, view.new_text, view.tools))
        assert view.number < 2
        return ReplySpec(text=f"reply {view.number}")

    with ScriptedServer(brain=brain) as server:
        said = message_of(post(server, body_of(SYSTEM, BRIEF, tools=("delegate",))))
        status, _ = post(server, body_of(SYSTEM, BRIEF, said, {"role": "user", "content": "on"}, tools=("delegate",)))
        assert status == 400
        assert "the brain failed" in server.problems[0]
    assert seen == [("planner", 1, BRIEF["content"], ("delegate",)), ("planner", 2, "on", ("delegate",))]


def test_other_paths():
    with ScriptedServer() as server:
        assert post(server, b"{}", "/v1/other")[0] == 404
        address = urlsplit(server.base_url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
        for path, status in [("/v1/models", 200), ("/x", 404)]:
            connection.request("GET", path)
            response = connection.getresponse()
            assert (response.status, bool(response.read())) == (status, True)
        connection.close()


MANIFEST = ManifestRecorded(
    manifest="m", role="worker", wire="chat", model="scripted", system="Be good.", tools="[]",
    max_output_tokens=100, window_tokens=1000, send_reasoning=True,
)  # fmt: skip


@contextmanager
def client_of(script: object, **options: object):
    with ScriptedServer(script, **options) as server:
        yield server, create_model(ModelEntry(name="scripted", base_url=server.base_url), None)


@pytest.mark.anyio
async def test_the_real_client_extends_and_its_ledger_agrees():
    steps = [
        {"reasoning": "é" * 50, "text": "t" * 99, "calls": [{"name": "bash", "arguments": {"n": n}}]} for n in range(8)
    ]
    spine, usages = Spine(agent=AgentId("r1"), items=(UserText(text="Task x", origin="task"),)), []
    with client_of({"worker": steps}, require_reasoning=True) as (server, model):
        for _ in steps:
            body = model.encode(MANIFEST, spine)
            reply = await model.send(body)
            usages.append(reply.usage)
            results = [ToolResult(call_id=i.call_id, text="r" * 500) for i in reply.items if isinstance(i, ToolCall)]
            spine = replace(spine, items=(*spine.items, *reply.items, *results))
        await model.aclose()
        server.check()
        assert server.bodies[-1] == encode(MANIFEST, spine.items[: -len(reply.items) - 1])
        assert server.count("extensions") == 7
        assert server.books.requests == 8
        assert sum(usage.input_tokens for usage in usages) == server.books.input_tokens
        assert sum(usage.cached_tokens for usage in usages) == server.books.cached_tokens > 0
        assert sum(usage.output_tokens for usage in usages) == server.books.output_tokens
        assert all(usage.reasoning_tokens == 25 for usage in usages)


@pytest.mark.anyio
@pytest.mark.parametrize("dialect", ["openai", "deepseek", "llama.cpp", "none"])
async def test_usage_in_each_dialect(dialect: str):
    with client_of({"worker": [{"text": "x"}]}, cache=CacheRules(dialect=dialect)) as (_, model):
        usage = (
            await model.send(
                model.encode(MANIFEST, Spine(agent=AgentId("r1"), items=(UserText(text="go", origin="task"),)))
            )
        ).usage
        await model.aclose()
    assert usage.is_estimated == (dialect == "none")
    assert usage.cached_tokens == (None if dialect == "none" else 0)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"status": 529, "body": {"error": {"type": "overloaded_error", "message": "x"}}}, "overloaded"),
        ({"status": 429, "headers": {"Retry-After": "0"}}, "rate_limited"),
        ({"cut_after": 150}, "incomplete"),
        ({"html": True}, "protocol"),
        ({"error_event": {"message": "m", "code": 502}}, "server"),
        ({"error_event": "upstream timeout"}, "server"),
    ],
)
async def test_B024_faults_are_given_once_and_the_same_request_then_succeeds(fault: object, kind: str):
    spine = Spine(agent=AgentId("r1"), items=(UserText(text="go", origin="task"),))
    with client_of({"worker": [{"text": "lost", "fault": fault, "times": 2}, {"text": "good"}]}) as (server, model):
        body = model.encode(MANIFEST, spine)
        for _ in range(2):
            with pytest.raises(ModelError) as caught:
                await model.send(body)
            assert caught.value.fault == kind
        assert (await model.send(body)).items == (AssistantText(text="good"),)
        await model.aclose()
        server.check()
        assert [exchange.is_whole for exchange in server.exchanges] == [False, False, True]


@pytest.mark.parametrize("how", [True, "stream", "keepalive"])
def test_a_hanging_answer_ends_with_the_server(how: object):
    with ScriptedServer({"worker": [{"fault": {"hang": how}}]}) as server:
        address = urlsplit(server.base_url)
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            body = body_of(SYSTEM, BRIEF)
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            expected = {True: b"", "stream": b"Wait", "keepalive": b": keepalive"}[how]
            received = b""
            while expected not in received:
                received += connection.recv(4096)
    assert server.stopping.is_set()
    assert b"[DONE]" not in received


def test_forty_clients_at_once_and_some_that_go_away():
    with ScriptedServer({"worker": [{"text": "x" * 5000, "delay_seconds": 0.05}]}) as server:
        answers = []

        def one(number: int) -> None:
            body = body_of(SYSTEM, {"role": "user", "content": f"Task {number}"})
            if number % 4 == 0:
                address = urlsplit(server.base_url)
                connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
                connection.request("POST", "/v1/chat/completions", body)
                connection.close()
            answers.append(post(server, body)[0])

        threads = [threading.Thread(target=one, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert answers == [200] * 40
        assert server.problems == []


def test_as_a_program(tmp_path):
    script = tmp_path / "script.toml"
    script.write_text('[[worker]]\ntext = "hello"\n', encoding="utf-8")
    command = [sys.executable, "-m", "xnagent.testing.server", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = urlsplit(process.stdout.readline().strip())
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
        connection.request("POST", "/v1/chat/completions", body_of(SYSTEM, BRIEF))
        assert b"hello" in connection.getresponse().read()
        connection.close()
        os.kill(process.pid, signal.SIGINT)
        assert (process.wait(10), process.stderr.read()) == (0, "")


def test_calls_may_be_written_in_python():
    spec = ReplySpec(calls=(ScriptedCall(name="a", arguments={"x": "é"}), ScriptedCall(name="b", arguments="{", id="")))
    with ScriptedServer(brain=lambda _: spec) as server:
        calls = message_of(post(server, body_of(SYSTEM, BRIEF)))["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"x": "é"}', "{"]
    assert [bool(call["id"]) for call in calls] == [True, False]
