"""The public cases of themes 1 to 4 as sessions, the same on every wire against its maker's own checks."""

import json
import shutil
from itertools import pairwise

import pytest

from tests.e2e.bench import Bench, Ended, call, finish, on, scripted, start, submit, task
from tests.e2e.test_crash import truncate
from tests.e2e.test_wires import PROVIDER, WIRES
from xnagent.core.items import AssistantText, Reasoning, ToolCall, ToolResult, UserText, calls_of, is_balanced
from xnagent.core.spine_events import ReplyReceived, RequestRetried, RequestStarted, ToolStarted
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer

pytestmark = pytest.mark.parametrize("wire", WIRES)

ODD = '{"text": "caf\\u00e9",  "value":"1.0" }'
TEXT = "Zuerst: 那个 – déjà vu 😀\u2028\u2029\x85 " * 3
DOUBLED = json.dumps(json.dumps({"pattern": "*.py"}))
CACHE_BLOCK_TOKENS = 128
"""A provider caches whole blocks, so that the last one of a prefix may be missing."""


def on_wire(wire: str, **settings: object) -> dict[str, object]:
    return {"planner__model__wire": wire, "models": {"m": {"send_reasoning": True}}, **settings}


def glob(pattern: str, call_id: str | None = None) -> ScriptedCall:
    return call("glob", json.dumps({"pattern": pattern}), call_id=call_id)


async def test_B002_killed_in_a_round_of_calls_it_goes_on_with_one_result_for_each(bench: Bench, wire: str):
    """Killed in the second of two commands; taken up, killed before the next answer, and taken up again."""
    count, kept = bench.folder / "count", bench.folder / "kept"
    two = [call("bash", command="echo ONE"), call("bash", command=f"echo run >> {count}; echo TWO")]

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker":
            results = sum(message["role"] == "tool" for message in view.messages)
            return submit().reply if results else on(calls=two, text="Both.").reply
        if "r1 settled" not in view.new_text:
            return start(task("fix")).reply if view.number == 1 else ReplySpec(text="Waiting.")
        if not kept.exists():
            shutil.copytree(bench.work("runs"), kept, ignore=shutil.ignore_patterns("*.rc", "*.end"))
        return finish().reply

    async def taken_up(keep: int) -> tuple[Ended, bytes]:
        truncate(bench.path, keep)
        shutil.copytree(kept, bench.work("runs"), dirs_exist_ok=True)
        with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
            resumed = await bench.resume(server, **on_wire(wire))
        asked = [one.request for one in server.exchanges if one.request.role == "worker"]
        return resumed, asked[0].body

    with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, **on_wire(wire))
    begun = [s.seq for s in ended.events if isinstance(s.event, ToolStarted) and s.event.agent == "r1"]
    first, sent = await taken_up(begun[1])
    again = [s.seq for s in first.events if isinstance(s.event, RequestStarted) and s.event.agent == "r1"]
    second, resent = await taken_up(again[1])
    assert (sent == resent, count.read_text()) == (True, "run\n")
    for resumed in (first, second):
        items = resumed.state.spines["r1"].items
        results = [item.text for item in items if isinstance(item, ToolResult)]
        assert (resumed.code, is_balanced(items), len(results)) == (0, True, 3)
        assert "ONE" in results[0]
        assert "It was not repeated" in results[1]


async def test_B003_B006_calls_that_wait_at_a_limit_get_their_result_and_the_others_stay(bench: Bench, wire: str):
    calls = [glob("a*"), glob("b*"), call("record_fact", text="one")]
    script = scripted(on("<state>", calls=calls, text="I will look."), finish("not executed: step limit reached"))
    with ScriptedServer(script, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, limits__steps=1, **on_wire(wire))
        assert [result.text for result in ended.results()] == ["LIMIT: not executed: step limit reached (1)"] * 3
        resumed = await bench.resume(server, limits__steps=10, **on_wire(wire))
        server.check()
    assert (ended.code, resumed.code, server.count("breaks")) == (6, 0, 0)
    before, after = ended.state.spines["planner"].items, resumed.state.spines["planner"].items
    assert after[: len(before)] == before
    assert AssistantText(text="I will look.") in after
    assert not resumed.state.board.facts


ARGUMENTS = [
    ('{"pattern":"*.py","path":"x', "BAD_ARGS", "cut off"),
    ("", "BAD_ARGS", "missing: pattern"),
    ("   ", "BAD_ARGS", "missing: pattern"),
    ("null", "BAD_ARGS", "missing: pattern"),
    ("[]", "BAD_ARGS", "not an object"),
    ('{"pattern":"*.py"}{"pattern":"*"}', "BAD_ARGS", "more than one JSON value"),
    (DOUBLED, "ok", "a.py"),
    ("\ufeff" + '{"pattern":"*.py"}', "ok", "a.py"),
    ('{"pattern":NaN}', "BAD_ARGS", "pattern"),
    ('{"pattern":"*.py","colour":"red"}', "BAD_ARGS", "unknown field colour"),
    ("plain words", "BAD_ARGS", ""),
    ("{" * 300, "BAD_ARGS", ""),
]


async def test_B004_B020_odd_arguments_get_one_result_each_and_the_session_goes_on(bench: Bench, wire: str):
    calls = [call("glob", text) for text, *_ in ARGUMENTS] + [call("", "{}"), call("no_such_tool", "{}")]
    with ScriptedServer(scripted(on("<state>", calls=calls), finish()), provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, **on_wire(wire))
        server.check()
    assert ended.code == 0
    results = ended.results()[: len(calls)]
    assert [result.code for result in results[: len(ARGUMENTS)]] == [code for _, code, _ in ARGUMENTS]
    assert all(said in result.text for result, (*_, said) in zip(results, ARGUMENTS, strict=False))
    assert all(result.code != "ok" for result in results[len(ARGUMENTS) :])
    kept = calls_of(ended.state.spines["planner"].items)[: len(ARGUMENTS)]
    blank = "{}" if wire == "messages" else None  # there, a call without arguments begins as an empty object
    assert [one.arguments for one in kept] == [text if text.strip() else blank or text for text, *_ in ARGUMENTS]


async def test_B005_ids_become_unique_and_stay_so_over_a_resumption(bench: Bench, wire: str):
    script = scripted(
        on("<state>", calls=[glob("a*", "call_0"), glob("b*", "call_0"), glob("R*", ""), glob("z*", "x" * 200)]),
        on("README", calls=[glob("z*", "call_0"), glob("*", "own"), glob("c*", "a b|c")]),
        on("step limit reached", calls=[glob("b*", "call_0")]),
        finish(),
    )
    with ScriptedServer(script) as server:
        assert (await bench.run(server, limits__steps=2, **on_wire(wire))).code == 6
        ended = await bench.resume(server, **on_wire(wire))
        server.check()
    ids = [made.call_id for made in calls_of(ended.state.spines["planner"].items)]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert (ids[0], ids[5], server.count("breaks")) == ("call_0", "own", 0)
    results = ended.results(tool="glob")
    assert [result.call_id for result in results] == ids[:-1]
    assert [result.text.split()[0] for result in results[:3]] == ["a.py", "b.py", "README.md"]


async def test_B009_B012_M95_M122_what_was_said_goes_back_as_it_was_also_after_a_resumption(bench: Bench, wire: str):
    """The servers refuse reasoning that is missing, changed or unsigned, each in its maker's way."""
    script = scripted(
        on("<state>", calls=[call("record_fact", ODD)], text=TEXT, reasoning="need ls, déjà 😀"),
        on('"fact":"f1"', calls=[call("glob", '{ "pattern" : "*" }')], reasoning="more"),
        on("step limit", calls=[call("glob", '{"pattern":"a*"}')], reasoning="still", text="Again."),
        finish("a.py"),
    )
    with ScriptedServer(script, provider=PROVIDER[wire]) as server:
        await bench.run(server, limits__steps=2, **on_wire(wire))
        ended = await bench.resume(server, **on_wire(wire))
        server.check()
    assert (ended.code, server.count("breaks"), server.count("rebases")) == (0, 0, 0)
    assert server.count("extensions") == len(server.bodies) - 1 == 3
    items = ended.state.spines["planner"].items
    assert next(item.arguments for item in items if isinstance(item, ToolCall)) == ODD
    assert sum(isinstance(item, Reasoning) for item in items) == 3
    assert next(item.text for item in items if isinstance(item, AssistantText)) == TEXT
    escaped = json.dumps(ODD)[1:-1] if wire != "messages" else ODD.strip()
    assert all(escaped in body.decode() for body in server.bodies[1:])


QUIRKS = ("split", "bom", "crlf", "keepalive", "text_type", "no_done", "empty_choices", "repeated_ids", "index_zero")


async def test_B013_B014_B015_B016_B017_B018_an_odd_stream_is_read_as_it_was_meant(bench: Bench, wire: str):
    def brain(view: RequestView) -> ReplySpec:
        if view.number > len(QUIRKS):
            return ReplySpec(calls=finish().reply.calls, text=TEXT, quirks=QUIRKS)
        calls = (glob("a*"), glob("b*"), call("glob", pattern="é" * 50))
        return ReplySpec(text=f"{view.number} {TEXT}", calls=calls, quirks=(QUIRKS[view.number - 1],))

    with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, **on_wire(wire))
        server.check()
    texts = [item.text for item in ended.state.spines["planner"].items if isinstance(item, AssistantText)]
    assert texts == [f"{number} {TEXT}" for number in range(1, len(QUIRKS) + 1)] + [TEXT]
    assert len(ended.results(tool="glob")) == 3 * len(QUIRKS)
    assert not ended.of(RequestRetried)
    assert ended.record["usage"]["input_tokens"] == server.books.input_tokens


PARTIAL = {"calls": (call("glob", '{"pattern":"pri', call_id="x1"),), "text": "Let me run " * 9}
WORTH_A_RETRY = {
    "B019 polite": Fault(cut_share=0.9, is_polite=True),
    "B019 rude": Fault(cut_share=0.6),
    "B019 at once": Fault(cut_share=0.0, is_polite=True),
    "B021 event": Fault(error_event={"message": "Overloaded", "type": "overloaded_error"}, after_events=3),
    "B021 first": Fault(error_event={"message": "Concurrency limit exceeded", "type": "rate_limit_error"}),
    "B021 text": Fault(error_event="upstream timeout", after_events=1),
    "B024 500": Fault(status=500, html=True),
    "B024 529": Fault(status=529, body={"type": "error", "error": {"type": "overloaded_error", "message": "x"}}),
    "B024 408": Fault(status=408),
    "B024 409": Fault(status=409),
    "B024 504": Fault(status=504, body="upstream request timeout"),
    "wrong type": Fault(body="upstream connect error", content_type="application/json"),
}


async def test_B019_B021_B024_B027_a_failed_attempt_is_made_again_and_leaves_nothing(bench: Bench, wire: str):
    faults = list(WORTH_A_RETRY.values())

    def brain(view: RequestView) -> ReplySpec:
        if faults:
            return ReplySpec(fault=faults.pop(), **PARTIAL)
        return ReplySpec(text="Let me run it.", calls=finish().reply.calls)

    with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, retry__max_attempts=20, **on_wire(wire))
        server.check()
    assert ended.code == 0
    assert len(server.bodies) == len(WORTH_A_RETRY) + 1
    assert len(set(server.bodies)) == len(ended.of(RequestStarted)) == len(ended.of(ReplyReceived)) == 1
    items = ended.state.spines["planner"].items
    assert [item.text for item in items if isinstance(item, AssistantText)] == ["Let me run it."]
    assert "x1" not in {one.call_id for one in calls_of(items)}
    told = {event.fault for event in ended.of(RequestRetried)}
    assert told == {"incomplete", "overloaded", "rate_limited", "server", "timeout"}
    assert ended.record["usage"]["requests"] == 1


async def test_B019_e_an_answer_that_was_cut_by_its_limit_is_no_failure(bench: Bench, wire: str):
    script = scripted(on("<state>", text="The fix is", finish="length"), finish())
    with ScriptedServer(script, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, **on_wire(wire))
        server.check()
    assert [reply.finish for reply in ended.replies()] == ["length", "tool_calls"]
    assert (ended.code, ended.of(RequestRetried)) == (0, [])


IN_VAIN = {
    "quota": Fault(status=429, body={"error": {"message": "no credit", "code": "insufficient_quota"}}),
    "authentication": Fault(status=401, body={"error": {"message": "bad key"}}),
    "not_found": Fault(status=404, body={"error": {"message": "no such model"}}),
    "bad_request": Fault(error_event={"type": "invalid_request_error", "message": "messages.3: bad"}),
    "protocol": Fault(html=True),
    "output_budget": Fault(status=400, body={"error": {"message": "max_tokens: 9 > 8, which is the maximum"}}),
}


async def test_B021_B023_B057_what_waiting_cannot_cure_is_sent_once(bench: Bench, wire: str):
    failing = list(IN_VAIN.items())

    def brain(_view: RequestView) -> ReplySpec:
        return ReplySpec(fault=failing[0][1]) if failing else finish().reply

    with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, **on_wire(wire))
        while failing:
            wanted, _ = failing.pop(0)
            assert (ended.outcome, ended.code, ended.record["error"]["class"]) == ("provider_error", 9, wanted)
            ended = await bench.resume(server, **on_wire(wire))
    assert ended.code == 0
    assert len(server.bodies) == len(IN_VAIN) + 1
    assert len(set(server.bodies)) == 1


SHAPES = ["0.02", " 0.02 ", "0", "-1", "date-60", "Tue, 99 Foo 2030", "", "abc", "nan", "inf", "120, 60", None]


async def test_B022_every_shape_of_retry_after_waits_a_little_and_never_not_at_all(bench: Bench, wire: str):
    headers = [{} if shape is None else {"Retry-After": shape} for shape in SHAPES]
    headers += [{"retry-after-ms": "20"}, {"x-ratelimit-reset-requests": "30ms"}]
    sent = iter(headers)

    def brain(_view: RequestView) -> ReplySpec:
        if (shape := next(sent, None)) is None:
            return finish().reply
        return ReplySpec(fault=Fault(status=429, headers=shape, body={"error": {"message": "slow"}}))

    with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, retry__max_attempts=len(headers) + 1, **on_wire(wire))
    waits = [event.wait_seconds for event in ended.of(RequestRetried)]
    assert (ended.code, len(waits), len(server.bodies)) == (0, len(headers), len(headers) + 1)
    assert all(0 < wait <= 0.2 for wait in waits)
    assert (waits[0], waits[1], waits[-2], waits[-1]) == pytest.approx((0.02, 0.02, 0.02, 0.03), rel=0.2)


async def test_B025_a_wait_that_does_not_fit_fails_at_once_and_says_how_long(bench: Bench, wire: str):
    fault = Fault(status=429, headers={"Retry-After": "171"})
    with ScriptedServer(brain=lambda _view: ReplySpec(fault=fault)) as server:
        ended = await bench.run(server, retry__max_total_seconds=60, **on_wire(wire))
    assert (ended.code, len(server.bodies), ended.record["error"]["class"]) == (8, 1, "rate_limited")
    assert "asks to wait 171 s" in ended.record["error"]["message"]


async def test_B026_silence_in_every_phase_ends_and_is_tried_again(bench: Bench, wire: str):
    faults = [Fault(hang="keepalive"), Fault(hang="stream", after_events=2), Fault(hang="stream"), Fault(hang="start")]

    def brain(_view: RequestView) -> ReplySpec:
        return ReplySpec(fault=faults.pop(), text="half") if faults else finish().reply

    with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
        limits = {"timeouts__idle_seconds": 0.3, "timeouts__progress_seconds": 0.4}
        ended = await bench.run(server, retry__max_attempts=9, **limits, **on_wire(wire))
    assert ended.code == 0
    assert [event.fault for event in ended.of(RequestRetried)] == ["timeout"] * 4
    assert not [item for item in ended.state.spines["planner"].items if isinstance(item, AssistantText)]


async def test_B010_M34_25_parallel_results_are_all_read_from_the_cache_by_the_next_request(bench: Bench, wire: str):
    def brain(view: RequestView) -> ReplySpec:
        if view.number > 4:
            return finish().reply
        count = 25 if view.number == 2 else 3
        return ReplySpec(calls=tuple(glob("*") for _ in range(count)), text="Look.")

    with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, **on_wire(wire))
        server.check()
    replies = ended.replies()
    for before, after in pairwise(replies[1:]):
        assert after.usage.cached_tokens > 0.99 * before.usage.input_tokens - CACHE_BLOCK_TOKENS, wire
    assert all(isinstance(item, UserText) for item in ended.state.spines["planner"].items[:2])
