"""What counts is what the checks say, not what a Worker or Planner claims (B057)."""

import pytest

from tests.e2e.bench import Bench, bash, call, finish, git, on, reply, scripted, start, submit, task
from xnagent.core.events import CheckFinished, PatchTaken, RunSettled, RunSubmitted
from xnagent.testing.script import Rule
from xnagent.testing.server import ScriptedServer

WANTS_TWO = ["grep -q 'x = 2' a.py"]
GIVE_UP = finish("r1 settled: failed", outcome="failed", summary="It cannot be done.")
CLAIM = finish("r1 settled", summary="It is done.")
MAKE_TWO = on(calls=[call("edit", path="a.py", old="x = 1", new="x = 2")])
TEST_FILE = {"a.py": "x = 1\n", "check.sh": "grep -q 'x = 2' a.py\n"}


async def test_B057_a_task_whose_check_passes_is_merged_and_applied(bench: Bench):
    script = scripted(
        start(task("fix", checks=WANTS_TWO)),
        finish("r1 settled: completed"),
        workers={"fix": [MAKE_TWO, submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert (ended.outcome, ended.code, ended.record["verified"]) == ("completed", 0, True)
    assert ended.record["workspace"]["applied"] is True
    assert bench.read("a.py") == "x = 2\n"
    assert git("show", "xnagent/s-bench:a.py", folder=bench.repository) == "x = 2\n"


@pytest.mark.parametrize("end", [GIVE_UP, CLAIM], ids=["gives-up", "claims"])
@pytest.mark.parametrize(
    "worker",
    [
        pytest.param([submit(summary="All tests pass.")], id="no-change"),
        pytest.param([bash("echo 'x = 3' > a.py"), submit()], id="wrong-change"),
        pytest.param([on(text="Done!"), on(text="It is really done.")], id="two-texts"),
        pytest.param([on(), on()], id="two-empty-replies"),
        pytest.param([submit(status="failed", summary="I could not.")], id="honest"),
        pytest.param([submit(status="blocked", summary="Who decides?")], id="blocked"),
        pytest.param([bash("echo 'x = 2' > a.py; rm a.py"), submit()], id="deleted"),
    ],
)
async def test_B057_a_worker_that_claims_success_while_its_check_fails_never_yields_exit_0(
    bench: Bench, worker: list[Rule], end: Rule
):
    script = scripted(start(task("fix", checks=WANTS_TWO)), end, workers={"fix": worker})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert (ended.outcome, ended.code, ended.record["verified"]) == ("failed", 3, False)
    assert ended.run("r1").status == ended.task("fix").status == "failed"
    assert bench.read("a.py") == "x = 1\n"
    assert git("status", "--porcelain", folder=bench.repository) == ""
    assert ended.record["workspace"]["applied"] is False


async def test_B057_the_planner_reads_the_evidence_and_a_second_run_may_succeed(bench: Bench):
    again = on("check failed", calls=[call("delegate", task="fix", brief="Write 2, not 3.")])
    script = scripted(
        start(task("fix", checks=[*WANTS_TWO, "test -e README.md"])),
        again,
        finish("r2 settled: completed"),
        workers={
            "fix#1": [bash("echo 'x = 3' > a.py; echo WRONG"), submit()],
            "fix#2": [bash("echo 'x = 2' > a.py", "Write 2, not 3.", "r1, ended as failed"), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert ended.code == 0
    assert ended.record["runs"] == {"total": 2, "completed": 1, "failed": 1, "cancelled": 0}
    assert [(one.evidence.command, one.evidence.exit_code) for one in ended.of(CheckFinished)] == [
        ("grep -q 'x = 2' a.py", 1),
        ("test -e README.md", 0),
        ("grep -q 'x = 2' a.py", 0),
        ("test -e README.md", 0),
    ]


async def test_B057_a_check_that_never_ends_is_no_success(bench: Bench):
    script = scripted(start(task("fix", checks=["sleep 60"])), CLAIM, workers={"fix": [MAKE_TWO, submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server, check_timeout_seconds=0.5)
    assert (ended.outcome, ended.code) == ("failed", 3)
    assert ended.run("r1").evidence[0].exit_code is None
    assert "did not end by itself" in ended.run("r1").reason


async def test_a_check_that_changes_files_changes_nothing_of_the_result(bench: Bench):
    vandal = "echo 'x = 666' > a.py; echo more > made-by-check.txt"
    script = scripted(
        start(task("fix", checks=[vandal, "true"])), finish("r1 settled"), workers={"fix": [MAKE_TWO, submit()]}
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, checks=("echo 'x = 667' > a.py",))
    assert ended.code == 0
    assert bench.read("a.py") == "x = 2\n"
    assert ended.record["workspace"]["changed_files"] == ["a.py"]
    assert not (bench.repository / "made-by-check.txt").exists()


async def test_a_worker_that_changes_what_judges_it_is_flagged(tmp_path):
    bench = Bench(tmp_path, TEST_FILE)
    script = scripted(
        start(task("fix", checks=["sh check.sh"])),
        finish("r1 settled", "flags", "changed check.sh"),
        workers={"fix": [bash("echo true > check.sh"), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, checks=("grep -q 'x = 2' a.py",))
        server.check()
    assert ended.of(PatchTaken)[0].flags == ("changed check.sh, which the check `sh check.sh` names",)
    assert (ended.outcome, ended.code, ended.record["verified"]) == ("partial", 4, False)
    assert bench.read("check.sh") == TEST_FILE["check.sh"]


@pytest.mark.parametrize("where", ["task", "session"])
async def test_B057_the_final_checks_have_the_last_word(bench: Bench, where: str):
    """The task's own check is content; what the user asked for is not."""
    script = scripted(
        *([start(task("fix", checks=["true"]))] if where == "task" else []),
        finish(*(["r1 settled"] if where == "task" else ["<state>"])),
        workers={"fix": [MAKE_TWO, submit()]} if where == "task" else {},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, checks=("true", "grep -q 'x = 9' a.py"))
        server.check()
    assert (ended.outcome, ended.code) == (("partial", 4) if where == "task" else ("failed", 3))
    assert [one.evidence.exit_code for one in ended.of(CheckFinished) if one.run is None] == [0, 1]
    assert bench.read("a.py") == "x = 1\n"


async def test_a_session_without_tasks_and_checks_is_completed_and_not_verified(bench: Bench):
    with ScriptedServer(scripted(finish("<state>", summary="Nothing to do."))) as server:
        ended = await bench.run(server)
    assert (ended.code, ended.record["verified"], ended.record["summary"]) == (0, None, "Nothing to do.")
    assert ended.record["workspace"]["branch"] is None


async def test_B057_a_task_that_nobody_worked_on_is_no_success(bench: Bench):
    script = scripted(on("<state>", calls=[call("plan", tasks=[task("fix")])]), finish('"fix":"pending"'))
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert (ended.outcome, ended.code) == ("failed", 3)


async def test_a_dropped_task_no_longer_counts(bench: Bench):
    script = scripted(
        start(task("fix", checks=WANTS_TWO), task("more", checks=["false"])),
        on("r2 settled", calls=[call("plan", drop=["more"])]),
        finish("r1 settled", outcome="completed"),
        finish("dropped", outcome="completed"),
        workers={"fix": [MAKE_TWO, submit()], "more": [submit()]},
    )
    with ScriptedServer(script, brain=None) as server:
        ended = await bench.run(server)
    assert ended.record["tasks"]["dropped"] == 1
    assert (ended.outcome, ended.code) == ("completed", 0)


async def test_M118_a_run_has_a_cap_of_its_own_and_the_planner_is_told(bench: Bench):
    script = scripted(
        start(task("fix", checks=WANTS_TWO)),
        GIVE_UP,
        workers={"fix": [bash("true", times=0)]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, limits__run_steps=4)
    assert ended.code == 3
    assert ended.run("r1").reason == "step limit of the run reached (4) without a hand-in"
    assert ended.record["steps"]["worker"] == 4
    assert sum("This is your last step" in text for text in ended.told("r1", "nudge")) == 1


async def test_a_worker_that_only_talks_is_asked_once_for_its_hand_in(bench: Bench):
    worker = [MAKE_TWO, on(text="I think that is it."), on("Your next answer without a tool call", text="Yes: x is 2.")]
    script = scripted(start(task("fix", checks=WANTS_TWO)), finish("r1 settled: completed"), workers={"fix": worker})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert ended.code == 0
    assert ended.of(RunSubmitted)[0].summary == ended.run("r1").summary == "Yes: x is 2."
    assert len(ended.told("r1", "nudge")) == 1


async def test_a_planner_that_only_talks_is_asked_once_to_finish(bench: Bench):
    script = scripted(on("<state>", text="Well."), on("without calling a tool", text="Nothing to do here."), wait=None)
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert (ended.outcome, ended.code) == ("completed", 0)
    assert ended.record["summary"] == "Nothing to do here."
    assert ended.record["steps"]["planner"] == 2


async def test_a_planner_that_waits_is_woken_by_what_happens(bench: Bench):
    script = scripted(
        start(task("fix", checks=WANTS_TWO)),
        on(text="I wait.", times=0),
        finish("r1 settled: completed"),
        workers={"fix": [MAKE_TWO, submit()]},
        wait=None,
    )
    script = scripted(script.planner[0].rules[0], script.planner[0].rules[2], workers={"fix": [MAKE_TWO, submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert ended.code == 0
    assert ended.record["steps"]["planner"] == 3


async def test_empty_replies_of_the_planner_end_too(bench: Bench):
    with ScriptedServer(scripted(on(), on(), wait=None)) as server:
        ended = await bench.run(server)
    assert ended.record["steps"]["planner"] == 2
    assert ended.record["summary"] == "(empty reply)"
    assert reply().text == ""


async def test_a_run_that_settled_cannot_be_handed_in_again(bench: Bench):
    """Two `submit`s in one answer: the first one counts."""
    twice = on(
        calls=[call("submit", status="failed", summary="one"), call("submit", status="completed", summary="two")]
    )
    script = scripted(start(task("fix")), finish("r1 settled", outcome="failed"), workers={"fix": [twice]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert len(ended.of(RunSettled)) == 1
    assert ended.run("r1").summary == "one"
    assert ended.run("r1").status == "failed"
