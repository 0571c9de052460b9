"""Runs side by side and behind one another: who begins when, what is merged, what the Planner is told."""

import pytest

from tests.e2e.bench import Bench, bash, call, delegate, finish, on, plan, scripted, start, submit, task
from xnagent.core.events import PatchMerged, RunLaunched, RunSettled
from xnagent.core.spine_events import RequestFailed, RequestStarted
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer

PRICES = {"m": {"price": {"input_usd": 2, "output_usd": 10}}, "w": {"price": {"input_usd": 0.5, "output_usd": 2}}}


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def test_a_run_waits_for_its_dependency_and_starts_from_the_merged_head(bench: Bench):
    script = scripted(
        on("<state>", calls=[plan(task("one"), task("two", depends_on=["one"])), *delegate("two", "one")]),
        finish("r1 settled: completed"),
        workers={
            "one": [bash("echo 'x = 2' > a.py; sleep 0.3"), submit()],
            "two": [bash("cat a.py"), bash("echo seen > c.py", "x = 2"), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert ended.code == 0
    assert [event.run for event in ended.of(RunLaunched)] == ["r2", "r1"]
    merged = ended.of(PatchMerged)[0].commit
    assert ended.of(RunLaunched)[1].base == merged == ended.run("r1").base
    order = [stored.event for stored in ended.events if isinstance(stored.event, RunLaunched | RunSettled)]
    assert [(type(event).__name__, event.run) for event in order] == [
        ("RunLaunched", "r2"),
        ("RunSettled", "r2"),
        ("RunLaunched", "r1"),
        ("RunSettled", "r1"),
    ]
    assert '"waits_for":["one"]' in ended.results(tool="delegate")[0].text


async def test_a_run_whose_dependency_fails_never_begins_and_the_planner_is_asked(bench: Bench):
    script = scripted(
        on("<state>", calls=[plan(task("one"), task("two", depends_on=["one"])), *delegate("one", "two")]),
        finish("Runs that cannot begin: r2 waits for one", outcome="failed"),
        workers={"one": [submit(status="failed")]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert (ended.code, ended.run("r2").status) == (3, "cancelled")
    assert [event.run for event in ended.of(RunLaunched)] == ["r1"]


async def test_a_change_out_of_scope_is_not_merged(bench: Bench):
    script = scripted(
        start(task("fix", scope=["a.py", "docs/**"])),
        on("out of scope", calls=[*delegate("fix")]),
        finish("r2 settled: completed"),
        workers={
            "fix#1": [bash("echo 'x = 2' > a.py; echo 'y = 2' > b.py"), submit()],
            "fix#2": [bash("echo 'x = 2' > a.py; mkdir -p docs/deep; echo d > docs/deep/d.md"), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert ended.code == 0
    assert ended.run("r1").reason == "out of scope: changed b.py; allowed: a.py, docs/**"
    assert bench.read("b.py") == "y = 1\n"
    assert ended.record["workspace"]["changed_files"] == ["a.py", "docs/deep/d.md"]


async def test_B051_changes_of_two_workers_in_one_file_are_both_kept(tmp_path):
    bench = Bench(tmp_path, {"cfg.py": "a = 1\n\n\n\n\n\nb = 1\n"})
    script = scripted(
        start(task("one"), task("two")),
        finish("r1 settled", outcome="completed"),
        finish("r2 settled", outcome="completed"),
        workers={
            "one": [bash(f"{bench.wait_for('two')}; sed -i 's/a = 1/a = 2/' cfg.py"), submit()],
            "two": [bash(f"{bench.flag('two')}; {bench.wait_for_merge()}; sed -i 's/b = 1/b = 2/' cfg.py"), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, checks=("grep -q 'a = 2' cfg.py && grep -q 'b = 2' cfg.py",))
    assert (ended.code, ended.record["verified"]) == (0, True)
    assert bench.read("cfg.py") == "a = 2\n\n\n\n\n\nb = 2\n"


async def test_B051_a_merge_conflict_is_a_delta_that_names_paths(bench: Bench):
    script = scripted(
        start(task("one", scope=["a.py"]), task("two")),
        on("r2 settled: merge conflict", '"a.py"', calls=delegate("two")),
        finish("r3 settled: completed"),
        workers={
            "one": [bash(f"{bench.wait_for('two')}; echo 'x = 2' > a.py"), submit()],
            "two#1": [bash(f"{bench.flag('two')}; {bench.wait_for_merge()}; echo 'x = 3' > a.py"), submit()],
            "two#2": [bash("cat a.py", "Merge conflict in: a.py"), bash("echo 'x = 5' > a.py", "x = 2"), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert ended.code == 0
    assert ended.run("r2").conflicts == ("a.py",)
    assert bench.read("a.py") == "x = 5\n"
    conflicts = [text for text in ended.told() if "merge conflict" in text]
    assert len(conflicts) == 1
    assert '"path":"/runs/r2/' in conflicts[0]


async def test_a_merge_that_passes_alone_and_fails_together_is_not_merged(bench: Bench):
    script = scripted(
        start(task("one"), task("two", checks=["test ! -e c.py -o ! -e d.py"])),
        finish("after merging with what others changed", outcome="failed"),
        workers={
            "one": [bash(f"{bench.wait_for('two')}; echo > c.py"), submit()],
            "two": [bash(f"{bench.flag('two')}; {bench.wait_for_merge()}; echo > d.py"), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert (ended.outcome, ended.run("r2").status) == ("partial", "failed")


async def test_B047_a_worker_cannot_delegate(bench: Bench):
    nested = on(calls=[call("delegate", task="fix"), call("plan", tasks=[])])
    script = scripted(start(task("fix")), finish("r1 settled"), workers={"fix": [nested, submit("Do it yourself")]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert [result.code for result in ended.results("r1")[:2]] == ["UNKNOWN_TOOL"] * 2
    assert ended.record["runs"]["total"] == 1
    worker = next(exchange.request for exchange in server.exchanges if exchange.request.role == "worker")
    assert not {"delegate", "plan", "finish"} & set(worker.tools)


@pytest.mark.parametrize(
    ("fault", "attempts", "reason"),
    [
        (Fault(status=401, body={"error": {"message": "bad key"}}), 1, "authentication"),
        (Fault(status=503, body="overloaded"), 3, "overloaded"),
        (Fault(error_event={"message": "Internal", "code": 502}), 3, "server"),
        (Fault(cut_after=30), 3, "incomplete"),
    ],
    ids=["401", "503", "error-frame", "cut"],
)
async def test_B048_a_worker_that_dies_is_told_exactly_once(bench: Bench, fault: Fault, attempts: int, reason: str):
    script = scripted(
        start(task("one"), task("two"), task("three")),
        finish("r1 settled", outcome="failed"),
        workers={"one": [submit()], "two": [on(fault=fault, times=0)], "three": [submit()]},
    )
    ends = {"r1", "r2", "r3"}
    seen: set[str] = set()

    def brain(view) -> ReplySpec:
        if view.role == "worker":
            name = view.first_user.split('"')[1]
            return ReplySpec(fault=fault) if name == "two" else submit().reply
        seen.update(run for run in ends if f"{run} settled" in view.new_text)
        if "<state>" in view.new_text:
            return script.planner[0].rules[0].reply
        return finish(outcome="failed").reply if seen == ends else ReplySpec(text="Waiting.")

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server)
    run = ended.run("r2")
    assert run.status == "failed"
    assert run.reason.startswith(f"the model's provider failed ({reason})")
    assert [event.fault for event in ended.of(RequestFailed)] == [reason]
    assert sum("run r2 settled" in text for text in ended.told()) == 1
    assert sum(exchange.request.first_user.startswith('<task id="two"') for exchange in server.exchanges) == attempts
    assert ended.record["runs"] == {"total": 3, "completed": 2, "failed": 1, "cancelled": 0}
    assert (ended.outcome, ended.code) == ("partial", 4)


async def test_B050_M120_totals_hold_every_request_of_every_worker(bench: Bench):
    script = scripted(
        on(
            "<state>",
            calls=[plan(task("one"), task("two"), task("three")), *delegate("one", "two", "three")],
            usage=usage(1_000, 100),
        ),
        on(usage=usage(0, 0), text="Waiting.", times=0),
    )
    tokens = {"one": [(10_000, 1_000)], "two": [(20_000, 500), (4_000, 100)], "three": [(6_000, 0)]}
    given = {name: iter(numbers) for name, numbers in tokens.items()}
    ended_runs: set[str] = set()

    def brain(view) -> ReplySpec:
        if view.role == "worker":
            name = view.first_user.split('"')[1]
            number = next(given[name], None)
            if number is None:
                return ReplySpec(fault=Fault(status=400, body={"error": {"message": "no"}}))
            call_of = (
                call("bash", command="true") if name == "three" or number == (20_000, 500) else submit().reply.calls[0]
            )
            return ReplySpec(calls=(call_of,), usage=usage(*number))
        ended_runs.update(run for run in ("r1", "r2", "r3") if f"{run} settled" in view.new_text)
        if "<state>" in view.new_text:
            return script.planner[0].rules[0].reply
        if ended_runs == {"r1", "r2", "r3"}:
            return ReplySpec(calls=finish(outcome="failed").reply.calls, usage=usage(500, 10))
        return ReplySpec(text="Waiting.", usage=usage(100, 1))

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(
            server, models={**PRICES}, worker__model__name="w", worker__model__base_url=server.base_url
        )
    roles = ended.record["usage"]["by_role"]
    assert (roles["worker"]["input_tokens"], roles["worker"]["output_tokens"]) == (40_000, 1_600)
    waits = roles["planner"]["requests"] - 2
    assert (roles["planner"]["input_tokens"], roles["planner"]["output_tokens"]) == (1_500 + 100 * waits, 110 + waits)
    assert roles["worker"]["cost_usd"] == pytest.approx(0.0232)
    cost = roles["planner"]["cost_usd"] + roles["worker"]["cost_usd"]
    assert ended.record["usage"]["cost_usd"] == pytest.approx(cost)
    assert ended.record["usage"]["requests"] == len(ended.of(RequestStarted)) - 1
