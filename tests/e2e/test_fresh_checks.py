"""Checks run on a fresh checkout of the merged result: what only the Worker's own tree has cannot help them (B057)."""

import pytest

from tests.e2e.bench import Bench, bash, delegate, finish, git, on, plan, scripted, start, submit, task
from xnagent.core.events import CheckFinished, PatchMerged, PatchTaken
from xnagent.testing.server import ScriptedServer

IGNORING = {"a.py": "x = 1\n", ".gitignore": "built/\n*.done\n", "checks/all.py": "raise SystemExit(1)\n"}
EDIT = "echo 'x = 2' > a.py"
GIVE_UP = finish("r1 settled: failed", outcome="failed", summary="It cannot be done.")


@pytest.mark.parametrize(
    ("trick", "check", "told"),
    [
        ("mkdir built; touch built/ok", "test -e built/ok", "because git ignores them: built/)"),
        ("touch all.done", "test -e all.done", "because git ignores them: all.done)"),
        ('touch "$HOME/ok"', 'test -e "$HOME/ok"', ""),
        ('touch "$TMPDIR/ok"', 'test -e "$TMPDIR/ok"', ""),
        ("git tag ok", "git rev-parse -q --verify refs/tags/ok", ""),
        ("git config my.ok 1", "git config my.ok", ""),
        ("echo ok > .git/info/ok", "test -e .git/info/ok", ""),
    ],
    ids=["ignored-folder", "ignored-file", "home", "temporary", "tag", "setting", "git-folder"],
)
async def test_B057_a_check_that_passes_only_beside_the_result_fails(tmp_path, trick: str, check: str, told: str):
    bench = Bench(tmp_path, IGNORING)
    honest = bash(f"{EDIT}; {trick}; {check} > /dev/null && echo PASSED-HERE")
    script = scripted(start(task("fix", checks=[check])), GIVE_UP, workers={"fix": [honest, submit("PASSED-HERE")]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert (ended.outcome, ended.code, ended.run("r1").status) == ("failed", 3, "failed")
    assert ended.run("r1").reason.startswith(f"check failed: `{check}`")
    assert told in ended.run("r1").reason
    assert ended.of(PatchMerged) == []
    assert bench.read("a.py") == "x = 1\n"


async def test_a_worker_that_rewrites_what_the_check_runs_is_flagged_to_the_planner(tmp_path):
    """It counts, for the task may have been to write it; the Planner is told and the user's own check decides."""
    bench = Bench(tmp_path, IGNORING)
    liar = bash("echo 'raise SystemExit(0)' > checks/all.py")
    flag = "changed checks/all.py, which the check `python3 -m checks.all` names"
    script = scripted(
        start(task("fix", checks=["python3 -m checks.all"])),
        finish("r1 settled: completed", "flags", flag),
        workers={"fix": [liar, submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, checks=("grep -q 'x = 2' a.py",))
        server.check()
    assert ended.of(PatchTaken)[0].flags == (flag,)
    assert (ended.outcome, ended.code, ended.record["verified"]) == ("partial", 4, False)
    assert bench.read("checks/all.py") == IGNORING["checks/all.py"]


def fails_until(bench: Bench, times: int) -> str:
    """A check that fails so many times, for a reason outside the tree."""
    count = f"'{bench.folder}/count'"
    return f"echo try >> {count}; n=$(wc -l < {count}); echo number $n; [ $n -gt {times} ]"


async def test_a_flaky_check_is_told_apart_by_one_more_try_and_flagged(bench: Bench):
    check = fails_until(bench, 1)
    script = scripted(
        start(task("fix", checks=["true", check, "test -e a.py"])),
        finish("r1 settled: completed", "flaky", "passed when run again"),
        workers={"fix": [bash(EDIT), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert (ended.outcome, ended.code, ended.record["verified"]) == ("completed", 0, True)
    found = [event.evidence for event in ended.of(CheckFinished)]
    assert [one.is_flaky for one in found] == [False, True, False]
    assert [one.command for one in found] == ["true", check, "test -e a.py"]
    place = bench.host.place(bench.session)
    assert place.artifact(found[1].failed_output) == b"number 1\n"
    assert place.artifact(found[1].output) == b"number 2\n"


async def test_a_check_that_fails_twice_has_failed_and_is_tried_no_more(bench: Bench):
    check = fails_until(bench, 5)
    script = scripted(start(task("fix", checks=[check])), GIVE_UP, workers={"fix": [bash(EDIT), submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert ended.code == 3
    assert (bench.folder / "count").read_text().count("try") == 2
    [evidence] = [event.evidence for event in ended.of(CheckFinished)]
    assert (evidence.has_passed, evidence.is_flaky, evidence.tail) == (False, False, "number 1\n")


async def test_a_second_try_does_not_find_what_the_first_one_left(bench: Bench):
    """Otherwise any check that makes what it misses would pass."""
    check = "test -e made || { touch made; exit 1; }"
    script = scripted(start(task("fix", checks=[check])), GIVE_UP, workers={"fix": [bash(EDIT), submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert (ended.code, ended.run("r1").status) == (3, "failed")


async def test_the_last_check_of_a_session_is_tried_once_more_too(bench: Bench):
    check = fails_until(bench, 1)
    script = scripted(start(task("fix")), finish("r1 settled"), workers={"fix": [bash(EDIT), submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server, checks=(check,))
    assert (ended.outcome, ended.code, ended.record["verified"]) == ("completed", 0, True)
    assert ended.state.checks[check].is_flaky


async def test_one_run_is_merged_and_checked_once(bench: Bench):
    script = scripted(
        start(task("fix", checks=[fails_until(bench, 0)])),
        finish("r1 settled"),
        workers={"fix": [bash(EDIT), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert ended.code == 0
    assert (bench.folder / "count").read_text() == "try\n"


async def test_a_head_that_moves_while_checks_run_makes_them_run_again(bench: Bench):
    """The second time the queue is held, so that nothing can come in between again."""
    there = f"git --git-dir='{bench.work('integration.git')}' cat-file -e integration:other"
    waits = f"for n in $(seq 400); do {there} 2> /dev/null && break; sleep 0.05; done"
    check = f"{bench.flag('checking')}; {fails_until(bench, 0)} && {waits}; ls"
    script = scripted(
        start(task("fix", checks=[check]), task("other")),
        finish("r1 settled: completed"),
        workers={
            "fix": [bash(EDIT), submit()],
            "other": [bash(f"{bench.wait_for('checking')}; echo > other"), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert ended.code == 0
    assert (bench.folder / "count").read_text() == "try\ntry\n"
    assert "other" in ended.run("r1").evidence[0].tail.split()
    assert git("show", "--format=", "--name-only", "xnagent/s-bench", folder=bench.repository) == "a.py\n"
    assert (bench.repository / "other").exists()


async def test_a_revision_while_a_run_works_does_not_change_what_judges_it(bench: Bench):
    """The Planner is told so in the answer to its call."""
    first, other = task("fix", checks=["grep -q 'x = 2' a.py"]), task("fix", checks=["false"])
    script = scripted(
        on("<state>", calls=[plan(first), *delegate("fix"), plan(other)]),
        finish("r1 settled: completed"),
        workers={"fix": [bash(EDIT), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert ["r1 keeps the checks" in result.text for result in ended.results(tool="plan")] == [False, True]
    assert (ended.run("r1").checks, ended.task("fix").checks) == (tuple(first["checks"]), tuple(other["checks"]))
    assert ended.run("r1").status == "completed"
