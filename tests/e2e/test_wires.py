"""The same session on every wire: a second or third wire changes nothing but the bytes."""

import json

import pytest

from tests.e2e.bench import Bench, bash, call, finish, on, scripted, start, submit, task
from xnagent.core.spine_events import SpineRebased
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
@pytest.mark.parametrize("seed", range(3))
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
