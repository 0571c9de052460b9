"""A repository with many files: the trees of a session are made in advance."""

import time
from pathlib import Path

from tests.e2e.bench import Bench, call, delegate, plan, reply, submit, task
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

MANY = 5_000


def identity(path: Path) -> int:
    deadline = time.monotonic() + 40
    while not (path / "base").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return path.stat().st_ino


async def test_a_run_begins_in_the_tree_that_was_made_while_the_planner_thought(bench: Bench):
    (bench.repository / "many").mkdir()
    for number in range(MANY):
        (bench.repository / "many" / str(number)).touch()
    seen: list[int] = []

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner" and "<state>" in view.new_text:
            seen.append(identity(bench.work("spare")))
            return reply(plan(task("fix", checks=["grep -q 'x = 2' a.py && [ -e many/new ]"])), *delegate("fix"))
        if view.role == "planner":
            done = "r1 settled: completed" in view.new_text
            return reply(call("finish", outcome="completed", summary="done")) if done else ReplySpec(text="Waiting.")
        if view.number == 1:
            seen.append(identity(bench.work("runs", "r1")))
            return reply(call("bash", command="echo 'x = 2' > a.py; touch many/new; git status --short"))
        return submit().reply

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, sandbox={"mode": "auto"})
    assert ended.outcome == "completed", ended.record
    assert len(set(seen)) == 1
    (result,) = ended.results("r1", "bash")
    assert " M a.py\n?? many/new" in result.text
    assert bench.read("a.py") == "x = 2\n"
    assert not list(bench.work().glob("*spare"))
