"""Whole batches: one line for each job, and only the jobs without a line when it runs again (B061)."""

import signal
from pathlib import Path

import pytest

from tests.batch.scenes import FAIL, FINISH, HANG, OK, batch, results, script, sessions, wait_for, write_jobs
from tests.cli.harness import SECONDS, Shell, finishing, make_shell, model
from xnagent.testing.server import ScriptedServer

DENIED = {"fault": {"status": 401, "body": {"error": {"message": "bad key"}}}, "times": 0}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return make_shell(tmp_path)


def test_B061_every_job_gets_one_line_and_none_runs_twice(shell: Shell):
    write_jobs(
        shell,
        {"id": "good", "objective": "apple"},
        {"id": "failing", "objective": "pear"},
        {"id": "denied", "objective": "plum"},
        {"id": "nowhere", "objective": "fig", "repo": "missing"},
        {"objective": "cherry"},
    )
    with ScriptedServer(script(apple=FINISH, pear=FAIL, plum=DENIED, cherry=FINISH)) as server:
        first, second = shell.many(
            batch(shell, server.base_url, "-j", "2", "--output", "jsonl"), batch(shell, server.base_url)
        )
        assert server.problems == []
    lines = {line["id"]: line for line in results(shell)}
    assert len(lines) == len(results(shell)) == 5
    assert (first.code, second.code) == (4, 4)
    assert [
        (lines[name]["outcome"], lines[name]["exit_code"]) for name in ("good", "failing", "denied", "nowhere")
    ] == [
        ("completed", 0),
        ("failed", 3),
        ("provider_error", 9),
        ("error", 2),
    ]
    assert lines["denied"]["error"]["message"]
    assert [line.get("id") for line in first.lines[:-1]] == [line["id"] for line in results(shell)]
    spent = sum(line["usage"]["cost_usd"] for line in results(shell))
    tokens = sum((line["usage"][name] or 0) for line in results(shell) for name in ("input_tokens", "output_tokens"))
    assert first.lines[-1] == {
        "type": "batch",
        "total": 5,
        "completed": 2,
        "failed": 3,
        "unfinished": 0,
        "signal": None,
        "stopped_by": None,
        "cost_usd": pytest.approx(spent),
        "tokens": tokens,
        "exit_code": 4,
    }
    assert second.out == ""
    assert "5 of them have a result already" in second.err
    assert not (shell.folder / "results.jsonl.batch").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_B061_a_batch_that_was_stopped_goes_on_with_its_sessions(shell: Shell, number: int, code: int):
    write_jobs(
        shell, {"id": "a", "objective": "apple"}, {"id": "b", "objective": "pear"}, {"id": "c", "objective": "fig"}
    )
    with (
        ScriptedServer(script(apple=FINISH, pear=HANG)) as server,
        shell.started(*batch(shell, server.base_url)) as process,
    ):
        wait_for(lambda: len(server.exchanges) >= 2)
        process.send_signal(number)
        process.communicate(timeout=SECONDS)
    assert process.returncode == code
    assert [line["id"] for line in results(shell)] == ["a"]
    before = sorted(path.name for path in (shell.home / "sessions").glob("*.db"))
    with (shell.folder / "results.jsonl").open("ab") as file:
        file.write(b'{"id":"b","outc')
    with ScriptedServer(OK, strict=False) as server:
        done = shell.run(*batch(shell, server.base_url, "--output", "json"))
    after = sorted(path.name for path in (shell.home / "sessions").glob("*.db"))
    assert (done.code, done.record["completed"]) == (0, 3)
    assert "was torn" in done.err
    assert [line["id"] for line in results(shell)] == ["a", "b", "c"]
    assert len(before) == 2
    assert set(before) < set(after)
    assert len(after) == 3


def test_a_batch_refuses_what_cannot_work_before_any_job(shell: Shell):
    write_jobs(shell, {"objective": "apple"}, {"objectiv": "pear"})
    out = str(shell.folder / "results.jsonl")
    with ScriptedServer(finishing()) as server:
        calls = (
            batch(shell, server.base_url),
            batch(shell, server.base_url, "--ephemeral"),
            ["batch", out, "--out", out, *model(server.base_url)],
            ["batch", "jobs.jsonl", *model(server.base_url)],
        )
        wrong, ephemeral, same, without_out = shell.many(*calls)
        assert server.exchanges == []
    assert [done.code for done in (wrong, ephemeral, same, without_out)] == [2, 2, 2, 2]
    assert "jobs.jsonl:2" in wrong.err
    assert not Path(out).exists()


def test_failed_jobs_are_run_again_on_demand_and_changed_lines_begin_anew(shell: Shell):
    jobs = [{"id": "a", "objective": "apple"}, {"id": "b", "objective": "pear"}, {"id": "c", "objective": "fig"}]
    write_jobs(shell, *jobs)
    with ScriptedServer(script(apple=FINISH, pear=FAIL, fig=FINISH)) as server:
        first = shell.run(*batch(shell, server.base_url))
    write_jobs(shell, jobs[0], jobs[1], {"id": "d", "objective": "date"})
    with ScriptedServer(OK, strict=False) as server:
        second = shell.run(*batch(shell, server.base_url))
        write_jobs(shell, {"id": "a", "objective": "apricot"}, jobs[1])
        third = shell.run(*batch(shell, server.base_url, "--retry-failed", "--output", "json"))
        fourth = shell.run(*batch(shell, server.base_url))
    assert [done.code for done in (first, second, third, fourth)] == [4, 4, 0, 0]
    assert "JOBS_REMOVED: c" in second.err
    assert "JOBS_CHANGED" not in second.err
    assert "JOBS_CHANGED: a" in third.err
    assert "JOBS_RETRIED: b" in third.err
    assert third.record["cost_usd"] == pytest.approx(sum(line["usage"]["cost_usd"] for line in results(shell)))
    assert [(line["id"], line["exit_code"]) for line in results(shell)] == [
        ("a", 0),
        ("b", 3),
        ("c", 0),
        ("d", 0),
        ("a", 0),
        ("b", 0),
    ]
    assert len({line["session"] for line in results(shell)}) == len(sessions(shell)) == 6


def test_higher_priorities_begin_first(shell: Shell):
    write_jobs(shell, {"id": "a", "objective": "x"}, {"id": "b", "objective": "y", "priority": 1})
    with ScriptedServer(OK, strict=False) as server:
        assert shell.run(*batch(shell, server.base_url)).code == 0
    assert [line["id"] for line in results(shell)] == ["b", "a"]


def test_a_batch_that_loses_its_queue_loses_nothing(shell: Shell):
    write_jobs(shell, {"id": "a", "objective": "apple"}, {"id": "b", "objective": "pear"})
    with (
        ScriptedServer(script(apple=FINISH, pear=HANG)) as server,
        shell.started(*batch(shell, server.base_url)) as process,
    ):
        wait_for(lambda: len(server.exchanges) >= 2)
        (queue,) = (shell.home / "queues").glob("*.db")
        queue.unlink()
        _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert b"nothing is lost" in told
    before = sessions(shell)
    with ScriptedServer(OK, strict=False) as server:
        assert shell.run(*batch(shell, server.base_url)).code == 0
    assert ([line["id"] for line in results(shell)], sessions(shell)) == (["a", "b"], before)
    assert not list((shell.home / "queues").iterdir())
