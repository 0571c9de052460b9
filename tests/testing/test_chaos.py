"""Troubles drawn from a seed: the same each time, bounded for each body, and every one of them seen on the network."""

import http.client
import json
import time
from datetime import timedelta
from email.utils import parsedate_to_datetime

import pytest

from tests.testing.talk import WIRES, Talk, exchange, loads_or_empty, read
from xnagent.testing.chaos import FAULTS, Chaos, Trouble, retry_after_shapes
from xnagent.testing.doubles import EPOCH, FakeClock
from xnagent.testing.script import QUIRKS, ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer

STEPS = [
    {"reasoning": "r" * 90, "text": "one – 那个", "calls": [{"name": "bash", "arguments": {"n": 1}}] * 3},
    {"when": "out 1", "text": "two", "calls": [{"name": "bash", "arguments": {"n": 2}}]},
    {"when": "out 2", "text": "three"},
]


def draw(chaos: Chaos, body: bytes, attempt: int, wire: str = "chat") -> Trouble:
    return chaos.draw(body, attempt=attempt, wire=wire, family="generic")


def test_the_same_seed_body_and_attempt_draw_the_same():
    bodies = [b"%d" % number for number in range(400)]
    first = [draw(Chaos(seed=7, rate=0.5), body, 1) for body in bodies]
    assert first == [draw(Chaos(seed=7, rate=0.5), body, 1) for body in reversed(bodies)][::-1]
    assert first != [draw(Chaos(seed=8, rate=0.5), body, 1) for body in bodies]
    assert first != [draw(Chaos(seed=7, rate=0.5), body, 2) for body in bodies]
    assert 150 < sum(trouble != Trouble() for trouble in first) < 250


def test_troubles_of_a_body_are_bounded_unless_asked_otherwise():
    always = Chaos(seed=1, rate=1.0, kinds=("error_500",))
    assert [draw(always, b"x", n).fault is None for n in range(1, 5)] == [False, False, True, True]
    for_ever = Chaos(seed=1, rate=1.0, kinds=("error_500",), most_per_body=None)
    assert all(draw(for_ever, b"x", n).fault for n in range(1, 50))
    assert not any(draw(Chaos(seed=1, rate=0.0), b"x", n).fault for n in range(1, 50))


def test_every_kind_is_drawn_and_gateway_oddities_only_on_the_chat_wire():
    def drawn(wire: str) -> set[str]:
        found = [draw(Chaos(seed=3, rate=1.0), b"%d" % n, 1, wire) for n in range(1500)]
        return {quirk for trouble in found for quirk in trouble.quirks}

    assert drawn("chat") == set(QUIRKS)
    assert drawn("messages") == drawn("responses") < set(QUIRKS) - {"index_zero", "empty_ids", "no_done"}
    shapes = [draw(Chaos(seed=n, rate=1.0, kinds=("rate_limit",)), b"x", 1).fault.headers for n in range(300)]
    assert all(shape in shapes for shape in retry_after_shapes(1.0))


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="unknown kind of trouble 'flood'"):
        Chaos(seed=1, kinds=("flood",))


def test_B022_dates_in_headers_follow_the_clock():
    fault = {"status": 429, "headers": {"Retry-After": "date+30"}, "body": {"error": {}}}
    clock = FakeClock()
    clock.advance(5)
    with ScriptedServer({"worker": [{"fault": fault}]}, clock=clock) as server:
        headers = exchange(server, "chat", Talk("chat").user("Task").body())[1]
        assert parsedate_to_datetime(headers["retry-after"]) == EPOCH + timedelta(seconds=35)


def test_a_cache_lives_by_the_injected_clock():
    clock = FakeClock()
    with ScriptedServer({"worker": [{"text": "ok", "times": 0}]}, clock=clock) as server:
        talk = Talk("messages", system="s" * 9000).user("Task")
        mark = {"cache_control": {"type": "ephemeral"}}
        cached = []
        for wait in (0, 299, 301):
            clock.advance(wait)
            cached.append(talk.ask(server, **mark).usage["cache_read_input_tokens"] > 2000)
            talk.user("on")
        assert cached == [False, True, False]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", list(FAULTS))
def test_each_fault_once_and_then_the_answer(kind: str, wire: str, stream: bool):
    chaos = Chaos(seed=5, rate=1.0, kinds=(kind,), most_per_body=1, hang_seconds=0.1)
    with ScriptedServer({"worker": [{"text": "good " * 40}]}, chaos=chaos) as server:
        body = Talk(wire).user("Task").body(stream=stream)
        assert outcome(server, wire, body, stream=stream) is None
        assert outcome(server, wire, body, stream=stream).text == "good " * 40
        server.check()
        assert (server.count("faults"), server.books.requests, server.count("resends")) == (1, 1, 0)
        assert [one.is_whole for one in server.exchanges] == [False, True]


def outcome(server: ScriptedServer, wire: str, body: dict, *, stream: bool) -> object:
    """What a careful client makes of it: an answer, or None."""
    try:
        status, headers, raw = exchange(server, wire, body)
        if status == 200 and "html" not in headers["content-type"]:
            return read(wire, raw, stream=stream)
    except (AssertionError, KeyError, IndexError, ValueError, OSError, http.client.HTTPException):
        return None
    return None


@pytest.mark.parametrize("wire", WIRES)
def test_hangs_are_bounded(wire: str):
    for kind in ("hang", "stall", "keepalive_only"):
        chaos = Chaos(seed=2, rate=1.0, kinds=(kind,), hang_seconds=0.2)
        with ScriptedServer({"worker": [{"text": "x"}]}, chaos=chaos) as server:
            start = time.monotonic()
            assert outcome(server, wire, Talk(wire).user("Task").body(stream=True), stream=True) is None
            assert 0.1 < time.monotonic() - start < 5


def patient(server: ScriptedServer, talk: Talk) -> object:
    """One answer, with as many attempts as it takes; ids are made good as B005 asks."""
    for _ in range(4):
        said = outcome(server, talk.wire, talk.body(stream=True), stream=True)
        if said is not None:
            return said
    raise AssertionError("four attempts were not enough")


def mended(talk: Talk, said: object, number: int) -> list[tuple[str, str]]:
    """Take an answer in: unique ids, and a result for each call."""
    ids = [call[0] for call in said.calls]
    if len(set(ids)) < len(ids) or not all(ids) or "call_0" in ids:
        ids = [f"mended_{number}_{n}" for n in range(len(ids))]
        for call, new in zip(said.turn[0].get("tool_calls", ()), ids, strict=True):
            call["id"] = new
    if talk.wire == "chat" and said.calls:
        for call in said.turn[0]["tool_calls"]:
            call["function"]["name"] = "bash"
    talk.history += said.turn
    results = []
    for new, (_, _, text) in zip(ids, said.calls, strict=True):
        arguments = loads_or_empty(text)
        results.append((new, f"out {arguments['n']}" if arguments else "error: the arguments cannot be read"))
    return results


CAREFUL = tuple(kind for kind in (*FAULTS, *QUIRKS) if kind not in {"index_zero", "repeated_ids"})
"""All that the small client above can read."""


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("seed", range(8))
def test_sessions_come_to_their_end_whatever_happens(wire: str, seed: int):
    chaos = Chaos(seed=seed, rate=0.6, kinds=CAREFUL, hang_seconds=0.05)
    with ScriptedServer({"worker": [{"steps": STEPS}]}, chaos=chaos) as server:
        talk, texts = Talk(wire).user(f"Task {seed}"), []
        for number in range(40):
            said = patient(server, talk)
            results = mended(talk, said, number)
            texts.append(said.text)
            if not results:
                break
            talk.results(*results)
        assert texts[-1] == "three"
        server.check()
        assert server.books.requests == len(texts) >= 3
        assert server.count("breaks") == 0
        assert server.count("extensions") == len(texts) - 1


def test_a_brain_is_asked_once_for_each_answer():
    asked = []

    def brain(view: object) -> ReplySpec:
        asked.append(view.number)
        calls = (ScriptedCall(name="bash", arguments={"n": view.number}),) if view.number < 4 else ()
        return ReplySpec(text=f"reply {view.number}", calls=calls)

    chaos = Chaos(seed=11, rate=1.0, kinds=("cut", "error_event", "truncated_arguments"), most_per_body=1)
    with ScriptedServer(brain=brain, chaos=chaos) as server:
        talk = Talk("chat").user("Task")
        for number in range(40):
            results = mended(talk, patient(server, talk), number)
            if not results:
                break
            talk.results(*results)
    assert asked == [1, 2, 3, 4]


def test_another_request_in_place_of_a_failed_one_undoes_the_choice():
    chaos = Chaos(seed=1, rate=1.0, kinds=("cut",), most_per_body=1)
    script = {"worker": [{"text": "a", "when": "Task"}, {"text": "b", "when": "more"}]}
    with ScriptedServer(script, chaos=chaos) as server:
        talk = Talk("chat").user("Task")
        outcome(server, "chat", talk.body(stream=True), stream=True)
        talk.user("more")
        outcome(server, "chat", talk.body(stream=True), stream=True)
        assert talk.ask(server).text == "a"
        with pytest.raises(AssertionError, match="rule 2"):
            server.check()


def test_the_cache_keeps_a_prompt_whose_answer_was_cut():
    chaos = Chaos(seed=1, rate=1.0, kinds=("cut",), most_per_body=1)
    with ScriptedServer({"worker": [{"text": "a"}]}, chaos=chaos) as server:
        talk = Talk("chat", system="s" * 9000).user("Task")
        outcome(server, "chat", talk.body(stream=True), stream=True)
        said = talk.ask(server)
        assert said.usage["prompt_tokens_details"]["cached_tokens"] == server.books.cached_tokens > 2000


def test_a_cut_never_tells_the_end():
    for seed in range(40):
        chaos = Chaos(seed=seed, rate=1.0, kinds=("cut",), most_per_body=1)
        with ScriptedServer({"worker": [{"text": "a"}]}, chaos=chaos) as server:
            try:
                raw = exchange(server, "chat", Talk("chat").user("Task").body(stream=True))[2]
            except http.client.IncompleteRead as error:
                raw = error.partial
            assert b'"finish_reason":"stop"' not in raw


def test_a_fault_of_the_script_is_given_as_it_is_written():
    script = {"worker": [{"text": "x" * 99, "fault": {"cut_share": 0.5, "is_polite": True}}, {"text": "good"}]}
    with ScriptedServer(script) as server:
        talk = Talk("messages").user("Task")
        raw = exchange(server, "messages", talk.body(stream=True))[2]
        assert raw.startswith(b"event: message_start")
        assert b"message_delta" not in raw
        assert talk.ask(server).text == "good"
    script = {"worker": [{"text": "x" * 99, "fault": {"error_event": {"message": "m"}, "after_events": 3}}]}
    with ScriptedServer(script) as server:
        raw = exchange(server, "responses", Talk("responses").user("Task").body(stream=True))[2]
        names = [line.removeprefix("event: ") for line in raw.decode().splitlines() if line.startswith("event: ")]
        assert names == ["response.created", "response.in_progress", "response.output_item.added", "response.failed"]
        assert json.loads(raw.decode().rsplit("data: ", 1)[1])["response"]["error"]["message"] == "m"
