"""Limits are kept, said so, and lifted by a resumption."""

import pytest

from tests.e2e.bench import Bench, bash, call, finish, on, plan, scripted, start, submit, task
from xnagent.core.events import LimitReached, RunLaunched
from xnagent.core.spine_events import RebaseRefused, RequestStarted, SpineRebased
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer

THREE = [call("glob", pattern="*"), call("read", target="a.py"), call("record_fact", text="one")]
CHEAP = {"m": {"price": {"input_usd": 1.0, "output_usd": 4.0}}}
OVERFLOW = Fault(
    status=400,
    body={"error": {"message": "too long", "code": "context_length_exceeded", "type": "invalid_request_error"}},
)


async def test_B006_calls_that_are_pending_at_the_step_limit_are_not_executed_and_have_results(bench: Bench):
    script = scripted(on("<state>", calls=THREE), finish("not executed: step limit reached"))
    with ScriptedServer(script) as server:
        ended = await bench.run(server, limits__steps=1)
        assert (ended.outcome, ended.code) == ("limit", 6)
        assert [result.text for result in ended.results()] == ["LIMIT: not executed: step limit reached (1)"] * 3
        assert len(server.bodies) == 1
        assert not ended.state.board.facts
        assert ended.record["error"] == {"class": "limit_steps", "message": "step limit reached: 1"}
        resumed = await bench.resume(server, limits__steps=10)
        server.check()
    assert (resumed.outcome, resumed.code) == ("completed", 0)
    assert server.count("breaks") == 0


async def test_B006_a_worker_at_the_step_limit_leaves_a_run_that_can_go_on(bench: Bench):
    worker = [
        bash("echo 'x = 2' > a.py; echo ONE"),
        bash("echo two > c.py; echo TWO", "ONE"),
        submit("LIMIT: not executed"),
    ]
    script = scripted(start(task("fix")), finish("r1 settled"), workers={"fix": worker})
    with ScriptedServer(script) as server:
        ended = await bench.run(server, limits__steps=4)
        assert (ended.code, ended.run("r1").status) == (6, "interrupted")
        assert ended.results("r1")[-1].code == "LIMIT"
        resumed = await bench.resume(server, limits__steps=100)
        server.check()
    assert resumed.code == 0
    assert resumed.record["workspace"]["changed_files"] == ["a.py"]


async def test_the_limit_of_runs_ends_the_session(bench: Bench):
    script = scripted(
        start(task("one"), task("two"), task("three")),
        finish("run limit", outcome="failed"),
        workers={"one": [bash("sleep 60")], "two": [bash("sleep 60")]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, limits__runs=2)
    assert (ended.outcome, ended.code) == ("limit", 6)
    assert ended.record["error"] == {"class": "limit_runs", "message": "run limit reached: 2"}
    assert ended.record["runs"]["total"] == 2
    assert len(ended.of(RunLaunched)) <= 2


@pytest.mark.parametrize("limit", [20_000, 40_000, 60_000])
async def test_B050_the_token_limit_is_never_passed_whoever_asks(bench: Bench, limit: int):
    def brain(view) -> ReplySpec:
        if view.role == "worker":
            return bash("true").reply
        if "<state>" in view.new_text:
            return start(*(task(name) for name in ("one", "two", "three", "four"))).reply
        return ReplySpec(text="Waiting.")

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, limits__tokens=limit, planner__model__max_output_tokens=500)
    usage = ended.record["usage"]
    assert (ended.outcome, ended.code) == ("limit", 6)
    assert usage["input_tokens"] + usage["output_tokens"] <= limit
    assert server.books.input_tokens + server.books.output_tokens <= limit
    assert "token limit" in ended.record["error"]["message"]


async def test_B050_the_money_limit_is_never_passed(bench: Bench):
    def brain(view) -> ReplySpec:
        if view.role == "worker":
            return bash("true").reply
        if "<state>" in view.new_text:
            return start(*(task(name) for name in ("one", "two", "three"))).reply
        return ReplySpec(text="Waiting.")

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, limits__usd=0.05, models=CHEAP, planner__model__max_output_tokens=500)
    assert (ended.outcome, ended.code) == ("limit", 6)
    assert 0 < ended.record["usage"]["cost_usd"] <= 0.05
    assert "money limit" in ended.record["error"]["message"]


async def test_a_money_limit_without_a_price_sends_nothing(bench: Bench):
    with ScriptedServer(brain=lambda _view: ReplySpec(text="Hello.")) as server:
        ended = await bench.run(server, limits__usd=5.0)
    assert (ended.code, len(server.bodies)) == (6, 0)
    assert "needs a price" in ended.record["error"]["message"]


@pytest.mark.parametrize("where", ["stream", "bash", "check", "retry"])
async def test_a_deadline_ends_whatever_is_under_way(bench: Bench, where: str):
    """In a model's stream, in a command, in a final check, in a pause before a retry."""
    hang = {"stream": Fault(hang="stream"), "retry": Fault(status=429, headers={"Retry-After": "60"})}
    quick = finish("<state>")
    script = scripted(
        *(
            [on("<state>", fault=hang[where])]
            if where in hang
            else [start(task("fix"))]
            if where == "bash"
            else [quick]
        ),
        workers={"fix": [bash("sleep 300")]} if where == "bash" else {},
    )
    checks = ("sleep 300",) if where == "check" else ()
    with ScriptedServer(script) as server:
        ended = await bench.run(server, limits__deadline_seconds=2.5, checks=checks, check_timeout_seconds=300)
    assert (ended.outcome, ended.code) == ("deadline", 7)
    assert ended.record["error"] == {"class": "limit_deadline", "message": "deadline reached: 2.5 s"}
    assert ended.record["duration_seconds"] < 10


async def test_a_session_that_met_its_deadline_in_the_final_check_is_finished_by_a_resumption(bench: Bench):
    """The Planner is not asked again: what it said stands, only the check was cut short."""
    script = scripted(finish("<state>"))
    with ScriptedServer(script) as server:
        flag = bench.folder / "there.flag"
        check = f"test -e '{flag}' || sleep 300"
        ended = await bench.run(server, limits__deadline_seconds=2, checks=(check,), check_timeout_seconds=300)
        assert (ended.code, ended.record["verified"]) == (7, False)
        flag.touch()
        resumed = await bench.resume(server)
    assert (resumed.code, resumed.record["verified"]) == (0, True)
    assert len(server.bodies) == 1


async def test_B029_M118_a_context_that_cannot_shrink_ends_the_session(bench: Bench):
    """System text, tools and objective alone are more than what fits."""
    script = scripted(on("<state>", calls=[call("record_fact", text="f" * 400)], times=0), wait=None)
    with ScriptedServer(script) as server:
        ended = await bench.run(
            server, "Do it. " * 900, planner__model__window=6_500, planner__model__max_output_tokens=500
        )
    assert (ended.outcome, ended.code) == ("limit", 6)
    assert len(server.bodies) <= 4
    assert ended.record["error"]["class"] == "context_exhausted"
    message = ended.record["error"]["message"]
    assert "system and tools take" in message
    assert "objective" in message


async def test_B029_a_spine_that_fills_up_with_what_must_stay_ends_too(bench: Bench):
    """Each fact is pinned and stays in every checkpoint, until nothing more fits."""

    def brain(view) -> ReplySpec:
        return on(calls=[call("record_fact", text="word " * 180, pinned=True)] * 2).reply

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, planner__model__window=9_000, planner__model__max_output_tokens=500)
    assert (ended.outcome, ended.code) == ("limit", 6)
    assert ended.record["error"]["class"] == "context_exhausted"
    refused = ended.of(RebaseRefused)
    assert len(refused) <= len(ended.of(RequestStarted)) + 2


async def test_B029_a_workers_context_that_cannot_shrink_fails_the_run_only(bench: Bench):
    script = scripted(
        start(task("fix", objective="Explain. " * 2_000)),
        finish("context exhausted", outcome="failed"),
        workers={"fix": []},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, worker__model__window=6_000, worker__model__max_output_tokens=500)
        server.check()
    assert (ended.code, ended.run("r1").status) == (3, "failed")
    assert "context exhausted" in ended.run("r1").reason


@pytest.mark.parametrize("times", [1, 2])
async def test_M71_an_overflow_told_by_the_provider_is_cured_once(bench: Bench, times: int):
    """One rebase and one more try; a second overflow in a row ends the session. The window is smaller than we think."""
    taken = {"faults": 0}

    def brain(view) -> ReplySpec:
        if view.number < 4:
            return ReplySpec(calls=(call("glob", pattern="*"),), text="thinking " * 600)
        if taken["faults"] < times:
            taken["faults"] += 1
            return ReplySpec(fault=OVERFLOW)
        return finish().reply

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server)
    assert [event.cause for event in ended.of(SpineRebased)] == ["overflow"]
    if times == 1:
        assert (ended.outcome, ended.code, server.count("rebases")) == ("completed", 0, 1)
    else:
        assert (ended.outcome, ended.code) == ("limit", 6)
        assert ended.record["error"]["class"] == "context_exhausted"
    assert len(server.bodies) == 5


async def test_limits_that_were_not_met_are_not_mentioned(bench: Bench):
    script = scripted(
        on("<state>", calls=[plan(task("fix"))]), finish("pending", outcome="failed"), workers={"fix": [submit()]}
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, limits__steps=2, limits__tokens=100_000)
    assert not ended.of(LimitReached)
    assert ended.code == 3
