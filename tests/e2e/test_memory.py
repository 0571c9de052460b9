"""What the Planner and the Workers see, and what a rebase keeps (M1 to M25, M106, M107, M110)."""

import json
import re
from hashlib import sha256
from itertools import pairwise

import pytest

from tests.e2e.bench import Bench, bash, call, finish, on, plan, scripted, start, submit, task
from xnagent.core.delta import apply_to_view
from xnagent.core.ids import PLANNER
from xnagent.core.items import UserText
from xnagent.core.spine_events import ReplyReceived, RequestStarted, SpineExtended, SpineRebased, WindowFilled
from xnagent.core.view import view
from xnagent.testing.choice import RequestView
from xnagent.testing.received import Received
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

SMALL = {"planner__model__window": 9_000, "planner__model__max_output_tokens": 500}


def bodies_of(server: ScriptedServer, role: str) -> list[Received]:
    return [exchange.request for exchange in server.exchanges if exchange.request.role == role]


def user_texts(request: Received) -> list[str]:
    return [message["content"] for message in request.messages if message["role"] == "user"]


def document(text: str) -> dict:
    """The view in a baseline or checkpoint."""
    return json.loads(re.search(r"<state>\n(.*)\n</state>", text, re.DOTALL)[1])


def operations(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"op"')]


async def test_M1_M2_M4_M5_M6_M7_everything_is_told_once_and_then_only_what_changed(bench: Bench):
    """Three epochs (run, message, message), one spine: each request begins with the bytes of the one before."""
    script = scripted(
        on(
            "<state>", calls=[plan(task("one"), task("two")), call("record_fact", text="The sky is blue", value="#00f")]
        ),
        on('"fact":"f1"', calls=[call("delegate", task="one")]),
        finish("r1 settled", outcome="blocked", question="Go on?"),
        finish("the user wrote m1", outcome="blocked", question="Really?"),
        finish("the user wrote m2", outcome="failed"),
        workers={"one": [on(calls=[call("note", text="Half way.")]), submit(facts=[{"text": "Grass is green"}])]},
    )
    with ScriptedServer(script) as server:
        await bench.run(server)
        await bench.resume(server, "First more.")
        ended = await bench.resume(server, "Second more.")
        server.check()
    planner = bodies_of(server, "planner")
    assert all(later.extends(earlier) for earlier, later in pairwise(planner))
    last = user_texts(planner[-1])
    assert (last[0].startswith("<objective>"), last[1].startswith("<state>")) == (True, True)
    added = [op["path"] for text in last[2:] for op in operations(text) if op["op"] == "add"]
    for path in ("/facts/f1", "/facts/f2", "/tasks/one", "/tasks/two", "/messages/m1", "/messages/m2", "/runs/r1"):
        assert added.count(path) == 1, path
    everything = "\n".join(last)
    assert everything.count("Grass is green") == everything.count("First more.") == 1
    assert ended.code == 4


async def test_M2_M16_the_first_request_has_everything_and_a_lost_spine_is_made_again_from_the_store(bench: Bench):
    script = scripted(start(task("one")), finish("r1 settled"), workers={"one": [submit(facts=["Water is wet"])]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    replayed = {}
    for text in [*ended.told(PLANNER, "baseline"), *ended.told()]:
        replayed = document(text) if "<state>\n" in text else apply_to_view(replayed, operations(text))
    shown = json.loads(json.dumps(view(ended.state.spines[PLANNER].base)))
    assert replayed == shown
    assert "Water is wet" in json.dumps(replayed)


async def test_M9_M12_M13_each_operation_is_told_once_over_restarts_and_the_newest_state_message_is_known(bench: Bench):
    script = scripted(
        start(task("one"), task("two")),
        on("r1 settled", calls=[call("record_fact", text="one is done")]),
        on("r2 settled", calls=[call("record_fact", text="two is done")]),
        on("step limit", text="Hm."),
        finish("without calling a tool", outcome="failed"),
        workers={"one": [submit()], "two": [submit()]},
    )
    with ScriptedServer(script) as server:
        steps = 1
        ended = await bench.run(server, limits__steps=steps)
        while ended.outcome == "limit":
            steps += 1
            ended = await bench.resume(server, limits__steps=steps)
    news = [line for text in ended.told() for line in text.splitlines() if line.startswith("- run")]
    assert len(news) == len(set(news))
    spine = ended.state.spines[PLANNER]
    assert isinstance(spine.items[spine.state_at], UserText)
    assert spine.items[spine.state_at].origin == "state"
    assert all(item.origin != "state" for item in spine.items[spine.state_at + 1 :] if isinstance(item, UserText))


async def test_M14_M15_agents_do_not_see_each_others_histories(bench: Bench):
    script = scripted(
        start(task("one", objective="Alpha."), task("two", objective="Beta.")),
        finish("r1 settled", outcome="failed"),
        finish("r2 settled", outcome="failed"),
        workers={
            "one": [bash("echo SECRET-$((40+2))", times=2), submit(summary="Alpha is done.")],
            "two": [bash("echo HIDDEN-$((40+2))", times=2), submit(summary="Beta is done.")],
        },
    )
    with ScriptedServer(script) as server:
        await bench.run(server, "The whole objective.")
    for request in bodies_of(server, "planner"):
        assert b"SECRET-42" not in request.body
        assert b"HIDDEN-42" not in request.body
    for request in bodies_of(server, "worker"):
        assert b"The whole objective." not in request.body
        assert (b"Alpha." in request.body) != (b"Beta." in request.body)
        assert (b"SECRET" in request.body) <= (b"Alpha." in request.body)
    conversations = {request.conversation for request in bodies_of(server, "worker")}
    assert len(conversations) == 2


def talkative(limit: int):
    """A Planner that reads and records until it is rebased, then looks up what was dropped."""
    looked: dict[str, int] = {}

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker":
            quick = bash("for n in $(seq 200); do echo line-$n-$((n*n)); done; echo LAST-LINE-OF-THE-LOG")
            return quick.reply if view.number == 1 else submit(summary="It printed a lot.").reply
        if "<state>" in view.new_text and "<checkpoint number" not in view.new_text:
            return start(task("one")).reply
        if "<checkpoint number" in view.new_text and not looked:
            looked["at"] = view.number
            return ReplySpec(calls=(call("run_inspect", run="r1"),))
        if looked:
            looked["found"] = view.number
            assert "LAST-LINE-OF-THE-LOG" in view.new_text
            return finish().reply
        if "r1 settled" not in json.dumps(view.messages):
            return ReplySpec(text="Waiting.")
        assert view.number < limit
        return ReplySpec(
            calls=(call("record_fact", text=f"Fact {view.number}: " + "word " * 40),), text="Thinking. " * 60
        )

    return brain, looked


@pytest.mark.parametrize("policy", ["threshold", "economic"])
async def test_M17_M20_M23_M24_M25_a_rebase_loses_nothing_that_two_calls_cannot_bring_back(bench: Bench, policy: str):
    brain, looked = talkative(60)
    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, spine__policy=policy, **SMALL)
    assert ended.code == 0
    assert looked["found"] - looked["at"] == 1
    assert server.count("rebases") == len(ended.of(SpineRebased)) == ended.record["spine"]["rebases"] == 1
    kinds = [stored.event for stored in ended.events]
    at = next(n for n, event in enumerate(kinds) if isinstance(event, SpineRebased))
    assert isinstance(kinds[at + 1], SpineExtended | WindowFilled | RequestStarted)
    assert sum(isinstance(event, ReplyReceived) for event in kinds) == len(server.bodies)
    spine = ended.state.spines[PLANNER]
    assert spine.generation == 1
    rebased = kinds[at]
    assert rebased.items[0] == ended.state.spines[PLANNER].items[0]
    assert "<checkpoint" in rebased.items[1].text
    for name in ("run_inspect", "worker_status", "read"):
        assert name in rebased.items[1].text
    facts = [fact for fact in ended.state.board.facts.values() if fact.fact in rebased.items[1].text]
    assert len(facts) >= len(document(rebased.items[1].text)["facts"]) > 1


async def test_M17_the_workspace_and_the_store_are_the_same_before_and_after_a_rebase(bench: Bench):
    brain, _ = talkative(60)
    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, **SMALL)
    before = after = None
    from_events = ended.state.board
    for stored in ended.events:
        if isinstance(stored.event, SpineRebased):
            before, after = stored.event.tokens_before, stored.event.tokens_after
    assert before > after
    assert len(from_events.facts) >= 2
    assert bench.read("a.py") == "x = 1\n"


async def test_M15_M17_a_workers_history_is_rebased_too_and_goes_on(bench: Bench):
    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "<state>" in view.new_text:
                return start(task("one", checks=["test -e done"])).reply
            return finish().reply if "r1 settled: completed" in view.new_text else ReplySpec(text="Waiting.")
        text = json.dumps(view.messages)
        if view.number < 14:
            return bash(f"seq {view.number}000 {view.number}250; echo step-{view.number}").reply
        assert "<checkpoint number=" in text
        assert "What you did, newest last" in text
        return submit().reply if view.number > 14 else bash("touch done").reply

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, worker__model__window=6_000, worker__model__max_output_tokens=500)
    assert ended.code == 0
    assert {event.agent for event in ended.of(SpineRebased)} == {"r1"}
    assert server.count("breaks") == 0


async def test_M99_M106_M107_a_long_output_is_cut_kept_whole_and_read_back_in_pages(bench: Bench):
    seen: list[str] = []

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "<state>" in view.new_text:
                return start(task("one")).reply
            return finish().reply if "r1 settled: completed" in view.new_text else ReplySpec(text="Waiting.")
        if view.number == 1:
            return bash("seq 1 50000; echo THE-END").reply
        if view.number == 2:
            seen.append(view.new_text)
            ticket = re.search(r"artifact:[0-9a-f]{16}", view.new_text)[0]
            return ReplySpec(calls=(call("read", path=ticket, offset=30_000, limit=3),))
        if view.number == 3:
            seen.append(view.new_text)
        return submit().reply

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server)
    assert ended.code == 0
    assert len(seen[0]) < 14_000
    assert "THE-END" in seen[0]
    assert "30000\t30000\n30001\t30001\n30002\t30002" in seen[1]
    assert "artifact:" not in seen[1].replace(re.search(r"artifact:\w+", seen[0])[0], "")


async def test_M29_M42_I6_the_head_of_all_requests_of_a_role_is_the_same_and_holds_nothing_volatile(bench: Bench):
    """Over tasks, runs and a resumption; the folder's name and the session's id are in no request."""
    script = scripted(
        start(task("one"), task("two")),
        finish("r1 settled", outcome="blocked", question="?"),
        finish("r2 settled", outcome="blocked", question="?"),
        finish("the user wrote m1", outcome="failed"),
        workers={"one": [bash("true"), submit()], "two": [bash("true"), submit()]},
    )
    with ScriptedServer(script) as server:
        await bench.run(server)
        await bench.resume(server, "More.")
    for role in ("planner", "worker"):
        heads = {
            sha256(json.dumps([r.data["tools"], r.messages[0]]).encode()).hexdigest() for r in bodies_of(server, role)
        }
        assert len(heads) == 1
    for body in server.bodies:
        assert b"s-bench" not in body
        assert str(bench.folder).encode() not in body
        assert not re.search(rb"20\d\d-\d\d-\d\dT", body)


async def test_M110_I3_the_server_accepted_every_request_of_a_session_with_every_kind_of_end(bench: Bench):
    """Failing, unknown, cancelled and refused calls, texts, empty answers: the pairs are whole in all requests."""
    script = scripted(
        on("<state>", calls=[call("nonsense"), call("plan", "{"), plan(task("one")), call("delegate", task="one")]),
        on("UNKNOWN_TOOL", calls=[call("cancel_run", run="r1", reason="again"), call("delegate", task="one")]),
        on(text=""),
        on("r2 settled", text="Fine."),
        finish("without calling a tool"),
        workers={
            "one#1": [bash("sleep 30")],
            "one#2": [on(), on(calls=[call("edit", path="none", old="a", new="b")]), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert ended.state.settled.outcome in {"completed", "failed"}
    assert ended.record["runs"]["total"] >= 1
