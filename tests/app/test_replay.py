"""A log tells whether all of it comes out the same again, and gives back every request."""

import shutil
from hashlib import sha256

import pytest

from tests.e2e.bench import Bench, bash, call, finish, on, rewrite, scripted, start, submit, task
from xnagent.app.replay import replay_session, request_bytes
from xnagent.core.spine_events import RequestStarted, SpineRebased
from xnagent.errors import UsageError
from xnagent.store.reading import read_events
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

SCRIPT = scripted(
    start(task("one", checks=["true"])),
    on("r1 settled", calls=[call("record_fact", text="It went well"), call("worker_status")], text="Noted."),
    on('"fact":"f2"', text="Hm."),
    finish("without calling a tool"),
    workers={"one": [bash("echo hello"), on(calls=[call("note", text="Found it", value="42")]), submit()]},
)


async def test_M91_a_whole_session_comes_out_the_same_again(bench: Bench):
    with ScriptedServer(SCRIPT) as server:
        ended = await bench.run(server)
        server.check()
    replayed = replay_session(bench.host, bench.session)
    assert replayed.problems == []
    assert replayed.requests == len(server.bodies)
    assert replayed.calls == 7
    assert replayed.messages == len(ended.told(kind="objective") + ended.told(kind="baseline") + ended.told()) + 2


async def test_every_request_can_be_had_as_it_was_sent(bench: Bench):
    with ScriptedServer(SCRIPT) as server:
        ended = await bench.run(server)
    logged = {event.request: event.sha256 for event in ended.of(RequestStarted)}
    for number, digest in logged.items():
        assert sha256(request_bytes(read_events(bench.path), number)).hexdigest() == digest
    assert {sha256(body).hexdigest() for body in server.bodies} == set(logged.values())
    with pytest.raises(UsageError, match=f"there is no request 99; the session has {len(logged)}"):
        request_bytes(read_events(bench.path), 99)


@pytest.mark.parametrize(
    ("kind", "old", "new", "problem"),
    [
        ("session_started", "Make it so.", "Make it worse.", "objective of planner: other text"),
        ("manifest_recorded", "You are the Planner", "You are the planner", "request 1: other bytes"),
        ("reply_received", "Do one", "Do two", "plan of planner: another outcome"),
        ("task_added", "Make one true", "Make one false", "plan of planner: another outcome"),
        ("run_started", '"checks":["true"]', '"checks":["false"]', "delegate of planner: another outcome"),
        ("fact_recorded", "42", "43", "note of r1: another outcome"),
        ("spine_extended", "</state>", "</state> ", "baseline of planner: other text"),
        ("request_started", '"sha256":"', '"sha256":"0', "request 1: other bytes"),
        ("tool_finished", '\\"fact\\":\\"f2\\"', '\\"fact\\":\\"f3\\"', "record_fact of planner: another outcome"),
        ("run_settled", "completed", "cancelled", "delta of planner: other text"),
    ],
)
async def test_a_log_that_somebody_changed_is_found_out(bench: Bench, kind: str, old: str, new: str, problem: str):
    with ScriptedServer(SCRIPT) as server:
        ended = await bench.run(server)
    numbers = {"spine_extended": 1}
    number = numbers.get(kind, 0)
    if kind == "tool_finished":
        results = [event for event in ended.of(type(ended.results()[0])) if event]
        number = next(n for n, event in enumerate(results) if event.tool == "record_fact")
    copy = Bench(bench.folder / "copy")
    shutil.copytree(bench.host.home, copy.host.home)
    rewrite(copy.path, kind, old, new, number=number)
    assert any(problem in found for found in replay_session(copy.host, copy.session).problems)
    assert replay_session(bench.host, bench.session).problems == []


async def test_M91_rebases_are_made_again(bench: Bench):
    def brain(view: RequestView) -> ReplySpec:
        if view.number > 30:
            return finish().reply
        return on(calls=[call("record_fact", text=f"{view.number} " + "word " * 30)], text="So. " * 40).reply

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, planner__model__window=9_000, planner__model__max_output_tokens=500)
    rebases = ended.of(SpineRebased)
    assert replay_session(bench.host, bench.session).rebases == len(rebases) > 0
    copy = Bench(bench.folder / "copy")
    shutil.copytree(bench.host.home, copy.host.home)
    rewrite(copy.path, "spine_rebased", "no model wrote it", "a model wrote it")
    assert any(
        "rebase of planner: another spine" in found for found in replay_session(copy.host, copy.session).problems
    )
