"""What a model sends, however odd, becomes a history that every later request can carry."""

import json

import pytest

from tests.e2e.bench import Bench, bash, call, finish, on, scripted, start, submit, task
from xnagent.core.items import AssistantText, ToolCall, calls_of
from xnagent.core.spine_events import ReplyReceived, RequestFailed, RequestRetried, RequestStarted
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


ODD = '{"text": "caf\\u00e9",  "value":"1.0" }'


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ('{"pattern":"*.py","path":"x', "BAD_ARGS", "cut off"),
        ("", "BAD_ARGS", "missing: pattern"),
        ("null", "BAD_ARGS", "missing: pattern"),
        ("[]", "BAD_ARGS", "not an object"),
        ('{"pattern":"*.py"}{"pattern":"*"}', "BAD_ARGS", "more than one JSON value"),
        (json.dumps(json.dumps({"pattern": "*.py"})), "ok", "a.py"),
        ('{"pattern":"*.py","colour":"red"}', "BAD_ARGS", "unknown field colour"),
        ('{"pattern":"\ud83d"}', "ok", ""),
    ],
)
async def test_B004_B020_odd_arguments_get_one_result_and_are_sent_back_so_that_servers_can_read_them(
    bench: Bench, arguments: str, code: str, said: str
):
    script = scripted(on("<state>", calls=[call("glob", arguments)]), finish())
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    result = ended.results(tool="glob")[0]
    assert result.code == code
    assert said in result.text
    sent = json.loads(server.bodies[1])["messages"]
    assistant = next(message for message in sent if message["role"] == "assistant")
    kept = assistant["tool_calls"][0]["function"]["arguments"]
    assert isinstance(json.loads(kept), dict)
    if is_object(arguments):
        assert kept == arguments.replace("\ud83d", "\ufffd")
    assert ended.code == 0


async def test_B004_a_server_that_reads_the_arguments_of_old_calls_takes_every_later_request(bench: Bench):
    cut = on("<state>", calls=[call("glob", '{"pattern":"*.py","path":"x')], finish="length")
    script = scripted(cut, on("BAD_ARGS", calls=[call("glob", " ")]), finish())
    with ScriptedServer(script, provider="llama.cpp") as server:
        ended = await bench.run(server)
        server.check()
    assert (ended.code, [result.code for result in ended.results()[:2]]) == (0, ["BAD_ARGS", "BAD_ARGS"])
    assert ended.record["spine"]["breaks"] == 0


async def test_B005_ids_that_are_doubled_or_empty_are_made_unique_and_stay_so_over_a_resumption(bench: Bench):
    def glob(pattern: str, call_id: str) -> ScriptedCall:
        return call("glob", json.dumps({"pattern": pattern}), call_id=call_id)

    script = scripted(
        on("<state>", calls=[glob("a*", "call_0"), glob("b*", "call_0"), glob("R*", "")]),
        on("README", calls=[glob("z*", "call_0"), glob("*", "own")]),
        on("step limit reached", calls=[glob("b*", "call_0")]),
        finish(),
    )
    with ScriptedServer(script) as server:
        first = await bench.run(server, limits__steps=2)
        assert first.code == 6
        ended = await bench.resume(server)
        server.check()
    ids = [call.call_id for call in calls_of(ended.state.spines["planner"].items)]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert (ids[0], ids[4]) == ("call_0", "own")
    results = ended.results(tool="glob")
    assert [result.call_id for result in results] == ids[:-1]
    assert [result.text.split()[0] for result in results[:3]] == ["a.py", "b.py", "README.md"]


async def test_B009_arguments_and_results_are_the_same_bytes_in_every_later_request(bench: Bench):
    script = scripted(
        on("<state>", calls=[call("record_fact", ODD)], text="Zuerst: déjà vu 😀\u2028."),
        on('"fact":"f1"', calls=[call("glob", '{ "pattern" : "*" }')]),
        on("step limit", calls=[call("glob", '{"pattern":"a*"}')]),
        finish("a.py"),
    )
    with ScriptedServer(script) as server:
        await bench.run(server, limits__steps=2)
        ended = await bench.resume(server)
        server.check()
    assert ended.code == 0
    assert server.count("extensions") == len(server.bodies) - 1
    assert (server.count("breaks"), server.count("rebases")) == (0, 0)
    arguments = [item.arguments for item in ended.state.spines["planner"].items if isinstance(item, ToolCall)]
    assert arguments[0] == ODD
    assert json.loads(server.bodies[-1])["messages"][3]["tool_calls"][0]["function"]["arguments"] == ODD


async def test_B055_half_a_surrogate_pair_poisons_nothing(bench: Bench):
    """In the objective, in text, in arguments, in what a command prints, in a message of the user."""
    worker = [
        bash(r"printf 'ok \355\240\275 \377 \000end\n'; touch $'a\377b'; ls"),
        on("ok", calls=[call("note", '{"text":"half \\ud83d of it"}')], text="half \ud83d"),
        submit(summary="sum \ud83d mary"),
    ]
    script = scripted(
        start(task("fix")),
        finish("r1 settled", outcome="blocked", question="which \udc00?"),
        finish("the user wrote m1", outcome="completed"),
        workers={"fix": worker},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, "Make it \ud83d so.")
        assert ended.code == 5
        ended = await bench.resume(server, message="as you \ud83d like")
        server.check()
    assert ended.code == 0
    for body in server.bodies:
        json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8")
    json.dumps(ended.record).encode("utf-8")


async def test_B055_a_pair_in_two_pieces_of_a_stream_is_one_character(bench: Bench):
    """The server cuts text every 40 characters."""
    script = scripted(on("<state>", text="x" * 39 + "😀"), finish("without calling"))
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    texts = [item.text for item in ended.state.spines["planner"].items if isinstance(item, AssistantText)]
    assert texts[0].endswith("x😀")


async def test_the_same_failing_call_is_advised_against_and_then_stopped(bench: Bench):
    failing = on("BAD_ARGS", calls=[call("bash", '{"cmd_line":"ls"}')], times=0)
    script = scripted(
        start(task("fix")),
        finish("r1 settled: failed", outcome="failed"),
        workers={"fix": [on(calls=[call("bash", '{"cmd_line":"ls"}')]), failing]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    results = ended.results("r1")
    assert ended.run("r1").reason == "stopped: the same failing call was made 8 times in a row"
    assert len(results) == 8
    assert ["This same call has failed" in result.text for result in results] == [False] * 2 + [True] * 6


async def test_a_planner_that_repeats_a_failing_call_ends_the_session(bench: Bench):
    with ScriptedServer(brain=lambda _view: ReplySpec(calls=(call("delegate", task="none"),))) as server:
        ended = await bench.run(server)
    assert (ended.outcome, ended.code, len(server.bodies)) == ("failed", 3, 8)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429, headers={"Retry-After": "0.05"}),
        Fault(status=500),
        Fault(status=503, body="busy"),
        Fault(status=529),
        Fault(cut_after=10),
        Fault(error_event={"message": "overloaded", "type": "overloaded_error"}),
    ],
    ids=["429", "500", "503", "529", "cut", "event"],
)
async def test_B024_B025_an_attempt_that_fails_is_made_again_with_the_same_bytes(bench: Bench, fault: Fault):
    faults = iter([fault, fault])

    def brain(_view: RequestView) -> ReplySpec:
        failing = next(faults, None)
        return finish().reply if failing is None else ReplySpec(fault=failing, text="half an answer")

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server)
    assert (ended.code, len(server.bodies), len(set(server.bodies))) == (0, 3, 1)
    assert [event.attempt for event in ended.of(RequestRetried)] == [1, 2]
    assert len(ended.of(RequestStarted)) == len(ended.of(ReplyReceived)) == 1
    assert ended.record["usage"]["requests"] == 1


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_B025_the_server_sees_as_many_requests_as_attempts_are_allowed(bench: Bench, attempts: int):
    with ScriptedServer(brain=lambda _view: ReplySpec(fault=Fault(status=503))) as server:
        ended = await bench.run(server, retry__max_attempts=attempts)
    assert (ended.outcome, ended.code, len(server.bodies)) == ("provider_error", 8, attempts)
    assert ended.record["error"]["class"] == "overloaded"


async def test_B025_a_wait_that_does_not_fit_fails_at_once(bench: Bench):
    fault = Fault(status=429, headers={"Retry-After": "171"})
    with ScriptedServer(brain=lambda _view: ReplySpec(fault=fault)) as server:
        ended = await bench.run(server, retry__max_total_seconds=60)
    assert (ended.code, len(server.bodies)) == (8, 1)
    assert ended.record["duration_seconds"] < 10


async def test_B027_nothing_of_a_broken_attempt_stays(bench: Bench):
    broken = on(calls=[call("glob", '{"pattern":"pri', call_id="x1")], text="Let me run", fault=Fault(cut_after=700))
    script = scripted(
        broken, on(calls=[call("glob", '{"pattern":"b*"}', call_id="x2")], text="Let me run it."), finish()
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    items = ended.state.spines["planner"].items
    assert calls_of(items)[0].call_id == "x2"
    assert [item.text for item in items if isinstance(item, AssistantText)] == ["Let me run it."]
    assert "x1" not in server.bodies[-1].decode()
    assert [event.fault for event in ended.of(RequestRetried)] == ["incomplete"]


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (401, {"error": {"message": "bad key"}}, "authentication"),
        (402, {}, "quota"),
        (404, {"error": {"message": "no such model"}}, "not_found"),
        (429, {"error": {"message": "no credit", "code": "insufficient_quota"}}, "quota"),
    ],
)
async def test_B023_B057_what_waiting_cannot_cure_is_sent_once_and_a_resumption_may_succeed(
    bench: Bench, status: int, body: dict, fault: str
):
    faults = iter([Fault(status=status, body=body)])

    def brain(_view: RequestView) -> ReplySpec:
        failing = next(faults, None)
        return finish().reply if failing is None else ReplySpec(fault=failing)

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server)
        assert (ended.outcome, ended.code, len(server.bodies)) == ("provider_error", 9, 1)
        assert ended.record["error"]["class"] == fault == ended.of(RequestFailed)[0].fault
        resumed = await bench.resume(server)
    assert resumed.code == 0
    assert server.bodies[0] == server.bodies[1]


async def test_M122_reasoning_goes_back_where_it_is_wanted(bench: Bench):
    script = scripted(
        on("<state>", calls=[call("glob", pattern="*")], reasoning="need ls, déjà"),
        on("a.py", calls=[call("glob", pattern="b*")], reasoning="more"),
        finish("b.py"),
    )
    wants = {"m": {"send_reasoning": True}}
    with ScriptedServer(script, require_reasoning=True) as server:
        ended = await bench.run(server, models=wants)
        server.check()
    assert ended.code == 0
