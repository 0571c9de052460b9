"""`--engine temporal` as people call it: what is refused, what is done, what goes on elsewhere."""

import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import temporal_server
from tests.batch.scenes import HANG, OK, batch, results, script, sessions, wait_for, write_jobs
from tests.cli.harness import SECONDS, Shell, make_shell
from xnagent.testing.server import ScriptedServer

pytestmark = pytest.mark.timeout(200)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = make_shell(tmp_path)
    write_jobs(shell, {"id": "a", "objective": "apple"}, {"id": "b", "objective": "pear"})
    return shell


def engine(server: temporal_server.Server, shell: Shell) -> tuple[str, ...]:
    return ("--engine", "temporal", "--address", server.address, "--task-queue", shell.folder.name)


def test_what_an_engine_does_not_have_is_refused(shell: Shell):
    jobs = batch(shell, "http://127.0.0.1:1")
    many = shell.many(
        [*jobs, "--address", "127.0.0.1:1"],
        ["worker", "--engine", "temporal", "--queue", "q.db"],
        ["worker"],
        [*jobs, "--engine", "temporal", "--address", f"127.0.0.1:{temporal_server.free_port()}"],
    )
    assert [done.code for done in many] == [2, 2, 2, 2]
    told = ("--address is for --engine temporal", "--queue is for --engine local", "which jobs?", "ENGINE_UNREACHABLE")
    assert [word in done.err for word, done in zip(told, many, strict=True)] == [True] * 4
    assert (results(shell), sessions(shell)) == ([], [])


def test_a_missing_extra_is_named_with_the_command_that_brings_it(shell: Shell):
    hidden = shell.folder / "hidden" / "temporalio"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('No module named temporalio')")
    without = shell.with_variables(PYTHONPATH=f"{hidden.parent}:{shell.environ['PYTHONPATH']}")
    for line in (["worker"], batch(shell, "http://127.0.0.1:1")):
        done = without.run(*line, "--engine", "temporal")
        assert (done.code, "pip install 'xnagent[temporal]'" in done.err) == (2, True), done.err
    assert sessions(shell) == []


def test_M91_a_batch_over_temporal_and_again(temporal_server: temporal_server.Server, shell: Shell):
    with ScriptedServer(OK, strict=False) as server:
        line = batch(shell, server.base_url, *engine(temporal_server, shell), "--processes", "1", "--output", "json")
        first, again = shell.run(*line), shell.run(*line)
    assert (first.code, first.record["completed"]) == (0, 2), first.err
    assert (again.code, again.record["completed"], len(sessions(shell))) == (0, 2, 2)
    assert sorted(line["id"] for line in results(shell)) == ["a", "b"]


def test_B061_a_batch_that_is_killed_and_a_worker_that_is_stopped_hand_the_session_on(
    temporal_server: temporal_server.Server, shell: Shell
):
    write_jobs(shell, {"id": "a", "objective": "apple"})
    options = engine(temporal_server, shell)
    with ScriptedServer(script(apple=HANG)) as server:
        line = batch(shell, server.base_url, *options)
        with shell.started("worker", *options) as worker:
            with shell.started(*line):
                wait_for(lambda: server.exchanges)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=SECONDS) == 143
        before = sessions(shell)
    assert (len(before), results(shell)) == (1, [])
    port = urlsplit(server.base_url).port
    with ScriptedServer(OK, strict=False, port=port) as again, shell.started("worker", *options):
        done = shell.run(*batch(shell, again.base_url, *options), "--output", "json")
    assert (done.code, done.record["completed"], sessions(shell)) == (0, 1, before), done.err


def test_M91_interrupted_sessions_end_in_order_and_go_on(temporal_server: temporal_server.Server, shell: Shell):
    options = (*engine(temporal_server, shell), "--processes", "1", "-j", "2", "--lease-seconds", "5")
    with (
        ScriptedServer(script(apple=HANG, pear=HANG)) as server,
        shell.started(*batch(shell, server.base_url, *options)) as process,
    ):
        wait_for(lambda: server.exchanges and len(sessions(shell)) == 2)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=SECONDS)
    assert (process.returncode, results(shell)) == (130, []), told.decode()
    before = sessions(shell)
    with ScriptedServer(OK, strict=False) as server:
        done = shell.run(*batch(shell, server.base_url, *options))
    assert (done.code, sessions(shell)) == (0, before), done.err
    assert sorted(line["id"] for line in results(shell)) == ["a", "b"]
