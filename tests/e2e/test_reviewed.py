"""What a reader found: cancels, finishes and limits that meet a crash or each other."""

import json

from tests.e2e.bench import Bench, call, delegate, finish, on, plan, reply, scripted, start, submit, task
from tests.e2e.test_crash import truncate
from xnagent.core.events import FinishRequested, LimitReached, RunCancelRequested
from xnagent.core.spine_events import ToolFinished
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec, Script
from xnagent.testing.server import ScriptedServer


async def test_B049_a_cancel_that_a_crash_outruns_still_ends_the_command_and_balances_the_history(bench: Bench):
    script = scripted(
        start(task("a")),
        on("r1", calls=[call("cancel_run", run="r1", reason="no more")]),
        finish("r1 settled: cancelled", outcome="failed"),
        workers={"a": [on(calls=[call("bash", command="sleep 30")])]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    asked = next(stored.seq for stored in ended.events if isinstance(stored.event, RunCancelRequested))
    begun = [stored.seq for stored in ended.events[:asked] if stored.event.type == "tool_started"]
    truncate(bench.path, asked + 1)
    again = scripted(finish("r1 settled: cancelled", outcome="failed"))
    with ScriptedServer(again) as server:
        resumed = await bench.resume(server)
    assert resumed.run("r1").status == "cancelled"
    assert begun == [] or [result.code for result in resumed.results("r1")] == ["CANCELLED"]


async def test_I3_calls_after_finish_are_closed_also_when_a_crash_came_between(bench: Bench):
    last = reply(call("finish", outcome="failed", summary="no"), call("plan", tasks=[task("z")]))
    with ScriptedServer(Script(), brain=lambda _view: last) as server:
        ended = await bench.run(server)
    first = next(stored.seq for stored in ended.events if isinstance(stored.event, FinishRequested))
    truncate(bench.path, first + 1)
    with ScriptedServer(Script(), brain=lambda _view: last) as server:
        resumed = await bench.resume(server)
        assert server.bodies == []
    assert [event.code for event in resumed.of(ToolFinished)] == ["ok", "CLOSED"]
    assert not resumed.state.board.tasks


async def test_B026_the_deadline_holds_after_another_limit_was_met(bench: Bench):
    """A Worker meets the step limit while the Planner's answer is late."""

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker":
            return reply(call("glob", pattern="*"))
        return start(task("a")).reply if view.number == 1 else ReplySpec(text="Late.", delay_seconds=15)

    with ScriptedServer(Script(), brain=brain) as server:
        ended = await bench.run(server, limits__steps=4, limits__deadline_seconds=3)
    assert [event.limit for event in ended.of(LimitReached)][-1] == "deadline"
    assert (ended.outcome, ended.code) == ("deadline", 7)
    assert ended.record["duration_seconds"] < 10


async def test_a_model_that_nobody_knows_fails_the_run_and_not_the_session(bench: Bench):
    script = scripted(
        on("<state>", calls=[plan(task("a")), *delegate("a", model="gpt-nonsense")]),
        finish("r1 settled: failed", outcome="failed"),
    )
    with ScriptedServer(script) as server:
        table = {"m": {"base_url": server.base_url}}
        ended = await bench.run(server, planner__model__base_url=None, models=table)
    assert (ended.outcome, ended.run("r1").status) == ("failed", "failed")
    assert "MODEL_UNKNOWN" in ended.run("r1").reason


async def test_a_session_that_goes_on_brings_its_second_result_home_too(bench: Bench):
    def script(content: str, run: str) -> Script:
        done = finish(f"run {run} settled: completed")
        again = on(calls=[plan(task("a")), *delegate("a")])
        steps = [
            on(calls=[call("read", path="a.py")]),
            on(calls=[call("write", path="a.py", content=content)]),
            submit(),
        ]
        return scripted(again, done, workers={"a": steps})

    with ScriptedServer(script("x = 2\n", "r1")) as server:
        first = await bench.run(server)
    assert first.record["workspace"]["applied"] is True
    with ScriptedServer(script("x = 3\n", "r2")) as server:
        second = await bench.resume(server, "Make it three.")
    assert second.outcome == "completed"
    assert (bench.read("a.py"), second.record["workspace"]["applied"]) == ("x = 3\n", True)
    assert json.dumps(second.record)
