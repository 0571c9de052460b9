"""Models that do anything at all, and stops at any time: every session ends, and its log is sound (`check_ended`)."""

import random

import anyio
import pytest

from tests.e2e.bench import Bench, call, reply, task
from xnagent.app.running import Stop
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer

TASKS = ("one", "two", "three", "four")
FAULTS = (
    Fault(status=503),
    Fault(status=429, headers={"Retry-After": "0.01"}),
    Fault(cut_after=200),
    Fault(error_event={"message": "overloaded", "type": "overloaded_error"}),
    Fault(status=400, body={"error": {"message": "too long", "code": "context_length_exceeded"}}),
)
WORDS = ("word ", "naïve ", "名前 ", "</state> ", "😀", '"quoted" ', "line\n")


class Chaos:
    """A Planner and Workers that choose at random; seeded, but requests come in any order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.patience = self.random.randint(10, 60)

    def text(self, most: int = 40) -> str:
        return "".join(self.random.choices(WORDS, k=self.random.randint(0, most)))

    def __call__(self, view: RequestView) -> ReplySpec:
        if self.random.random() < 0.05:
            return ReplySpec(fault=self.random.choice(FAULTS), text=self.text())
        choose = self.planner_call if view.role == "planner" else self.worker_call
        calls = [choose() for _ in range(self.random.choice((0, 1, 1, 1, 1, 2, 2, 3)))]
        if view.role == "planner" and view.number == 1:
            calls = [
                call("plan", tasks=[task(name) for name in TASKS]),
                *(call("delegate", task=name) for name in TASKS),
            ]
        if view.role == "planner" and view.number > self.patience:
            calls.append(call("finish", outcome=self.random.choice(("completed", "failed")), summary="Enough."))
        delay = 0.03 if view.role == "planner" else 0.0
        return reply(*calls, text=self.text(60) if self.random.random() < 0.5 else "", delay_seconds=delay)

    def task(self) -> dict:
        checks = self.random.choice(([], ["true"], ["false"], ["grep -q 2 a.py"]))
        scope = self.random.choice(([], ["a.py"], ["**"]))
        depends = self.random.choice(([], [], [self.random.choice(TASKS)]))
        return task(self.random.choice(TASKS), checks=checks, scope=scope, depends_on=depends)

    def run(self) -> str:
        return f"r{self.random.randint(1, 6)}"

    def planner_call(self) -> ScriptedCall:
        pick = self.random.choice
        return pick(
            (
                lambda: call("plan", tasks=[self.task()]),
                lambda: call("plan", tasks=[self.task(), self.task()], drop=[pick(TASKS)]),
                lambda: call("delegate", task=pick(TASKS), brief=self.text()),
                lambda: call("delegate", task=pick(TASKS)),
                lambda: call("delegate", task=pick(TASKS)),
                lambda: call("message_run", run=self.run(), text=self.text()),
                lambda: call("cancel_run", run=self.run(), reason=self.text(3)),
                lambda: call("worker_status"),
                lambda: call("run_inspect", run=self.run()),
                lambda: call("read", target=pick(("a.py", "none", "artifact:0123456789abcdef"))),
                lambda: call("record_fact", text=self.text(), value=self.text(3), pinned=pick((True, False))),
                lambda: call("correct_fact", fact=f"f{self.random.randint(1, 5)}", text=self.text()),
                lambda: call("retract_fact", fact=f"f{self.random.randint(1, 5)}", reason="wrong"),
                lambda: call(pick(("plan", "nonsense", "finish")), pick(("", "{", "[]", '{"a":1}', "null"))),
            )
        )()

    def worker_call(self) -> ScriptedCall:
        pick = self.random.choice
        return pick(
            (
                lambda: call(
                    "bash",
                    command=pick(("echo 2 >> a.py", "echo 3 > c.py", "false", "seq 900", "sleep 0.2", "rm -f a.py")),
                ),
                lambda: call("edit", path="a.py", old="x = 1", new="x = 2"),
                lambda: call("write", path=pick(("a.py", "d.py")), content=self.text()),
                lambda: call("read", path="a.py"),
                lambda: call("note", text=self.text(), value=pick((None, "7"))),
                lambda: call(
                    "submit",
                    status=pick(("completed", "completed", "failed", "blocked")),
                    summary=self.text(),
                    facts=[self.text()],
                ),
                lambda: call("submit", status="completed", summary=self.text()),
                lambda: call(pick(("delegate", "bash", "submit")), pick(("", "{", '{"status":"great"}'))),
            )
        )()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_I1_I2_I3_B048_whatever_models_do_the_session_ends_and_its_log_is_sound(bench: Bench, seed: int):
    chaos = Chaos(seed)
    stop_after = random.Random(seed).choice((0.3, 0.8, 1.5, None))
    settings = {
        "limits__steps": 90,
        "parallel": 3,
        "spine__policy": random.Random(seed).choice(("economic", "threshold")),
        "planner__model__window": 9_000,
        "planner__model__max_output_tokens": 500,
    }
    with ScriptedServer(brain=chaos) as server:
        ended = await stopped(bench, server, after_seconds=stop_after, **settings)
        for _ in range(3):
            if ended.outcome not in {"interrupted", "limit", "provider_error"}:
                break
            settings["limits__steps"] += 40
            ended = await bench.resume(server, **settings)
        assert server.count("breaks") == 0
    assert ended.outcome != "error", ended.record["error"]


async def stopped(bench: Bench, server: ScriptedServer, *, after_seconds: float | None, **settings):
    """Run, and ask to stop after a while."""
    stop = Stop()

    async def later() -> None:
        await anyio.sleep(after_seconds or 0)
        stop.request("SIGTERM")

    async with anyio.create_task_group() as group:
        if after_seconds is not None:
            group.start_soon(later)
        ended = await bench.run(server, stop=stop, **settings)
        group.cancel_scope.cancel()
    return ended
