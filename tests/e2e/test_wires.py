"""The same session on every wire: a second or third wire changes nothing but the bytes."""

import json

import pytest

from tests.e2e.bench import Bench, Ended, bash, call, finish, on, scripted, start, submit, task
from xnagent.core.ids import PLANNER
from xnagent.core.spine_events import ReplyReceived, SpineRebased
from xnagent.testing.cache import CacheRules
from xnagent.testing.chaos import Chaos
from xnagent.testing.script import Script
from xnagent.testing.server import ScriptedServer

WIRES = ("chat", "responses", "messages")
PROVIDER = {"chat": "deepseek", "responses": "openai", "messages": "anthropic"}


def story() -> Script:
    """Parallel calls, reasoning, a failed check, a second run, a fact."""
    look = on(
        calls=[call("read", path="a.py"), call("grep", pattern="y"), call("glob", pattern="*")], reasoning="Look."
    )
    return scripted(
        start(task("a", checks=["grep -q 'x = 2' a.py"]), task("b", checks=["grep -q 'y = 2' b.py"])),
        on("run r1 settled: failed", calls=[call("delegate", task="a", brief="Set it to 2.")], reasoning="Once more."),
        finish("run r3 settled: completed"),
        workers={
            "a#1": [look, bash("echo 'x = 3' > a.py"), submit()],
            "a#2": [bash("sleep 1; echo 'x = 2' > a.py"), submit()],
            "b": [look, bash("echo 'y = 2' > b.py"), submit(facts=[{"text": "y is", "value": "2"}])],
        },
    )


@pytest.mark.parametrize("wire", WIRES)
async def test_M121_one_session_on_every_wire(bench: Bench, wire: str):
    with ScriptedServer(story(), provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, planner__model__wire=wire)
        server.check()
    assert (ended.outcome, ended.record["verified"]) == ("completed", True)
    assert server.count("breaks") == 0
    usage = ended.record["usage"]
    assert usage["input_tokens"] == server.books.input_tokens
    assert usage["output_tokens"] == server.books.output_tokens
    assert (bench.read("a.py"), bench.read("b.py")) == ("x = 2\n", "y = 2\n")


@pytest.mark.parametrize("wire", WIRES)
async def test_M121_a_spine_is_rebased_on_every_wire(bench: Bench, wire: str):
    steps = [bash(f"seq 1 2500; echo {number}") for number in range(6)]
    script = scripted(start(task("a")), finish("r1 settled: completed"), workers={"a": [*steps, submit()]})
    with ScriptedServer(script, provider=PROVIDER[wire]) as server:
        ended = await bench.run(
            server,
            planner__model__wire=wire,
            planner__model__window=16_000,
            planner__model__max_output_tokens=2_000,
        )
        server.check()
    assert ended.outcome == "completed"
    assert ended.of(SpineRebased)
    assert server.count("rebases") >= 1


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("seed", range(2))
async def test_I3_B048_a_session_among_faults_ends_as_it_should_on_every_wire(bench: Bench, wire: str, seed: int):
    chaos = Chaos(seed=seed, rate=0.3, wait_seconds=0.01, hang_seconds=0.2)
    with ScriptedServer(story(), provider=PROVIDER[wire], chaos=chaos) as server:
        ended = await bench.run(
            server,
            planner__model__wire=wire,
            retry__max_attempts=8,
            timeouts__idle_seconds=2,
            timeouts__progress_seconds=3,
        )
    assert ended.state.settled is not None
    assert ended.outcome in {"completed", "partial", "failed", "provider_error"}
    assert json.loads(json.dumps(ended.record))["session"] == "s-bench"


FINISH = call("finish", outcome="completed", summary="All done.")
LLAMA = CacheRules(block_tokens=1, units="slots", order="system-tools-messages", dialect="llama.cpp", slots=3)


def cached_shares(ended: Ended) -> dict[str, float]:
    """By agent: what came from the cache of what was sent before and sent again, from the second request on."""
    again, served, before = dict[str, int](), dict[str, int](), dict[str, int]()
    for reply in ended.of(ReplyReceived):
        if reply.agent in before:
            again[reply.agent] = again.get(reply.agent, 0) + before[reply.agent]
            served[reply.agent] = served.get(reply.agent, 0) + min(reply.usage.cached_tokens, before[reply.agent])
        before[reply.agent] = reply.usage.input_tokens
    return {agent: served[agent] / again[agent] for agent in again}


async def steal(bench: Bench, **settings: int) -> tuple[dict[str, float], set[tuple[str, int | None]]]:
    """Two Workers with one preamble at work at the same time; the shares, and who asked for which slot."""
    steps = {
        name: [bash(f"seq 1 900; {bench.flag(f'{name}{n}')}; {bench.wait_for(f'{other}{n}')}") for n in range(4)]
        for name, other in (("a", "b"), ("b", "a"))
    }
    script = scripted(
        start(task("a"), task("b")),
        on("r1 settled: completed", "r2 settled: completed", calls=[FINISH]),
        on("settled: completed", text="Waiting."),
        on("settled: completed", calls=[FINISH]),
        workers={name: [*steps[name], submit()] for name in ("a", "b")},
    )
    with ScriptedServer(script, provider="llama.cpp", cache=LLAMA) as server:
        ended = await bench.run(server, **settings)
        server.check(leftovers=False)
    bodies = [json.loads(body) for body in server.bodies]
    return cached_shares(ended), {(one["messages"][1]["content"][:14], one.get("id_slot")) for one in bodies}


async def test_agents_with_one_preamble_keep_their_caches_when_each_is_pinned_to_a_slot(bench: Bench):
    shares, asked = await steal(bench, models__m__slots=3)
    assert asked == {("<objective>\nMa", 0), ('<task id="a" r', 1), ('<task id="b" r', 2)}
    assert shares.keys() == {PLANNER, "r1", "r2"}
    assert min(shares.values()) > 0.99


async def test_without_pinning_they_take_each_others_slots(bench: Bench):
    shares, asked = await steal(bench)
    assert {slot for _, slot in asked} == {None}
    assert min(shares.values()) < 0.95
