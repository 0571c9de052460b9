"""Worker processes: they end with their batch, whatever ended it, and the batch goes on where they stopped."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.batch.scenes import HANG, OK, batch, children_of, results, script, sessions, wait_for, write_jobs
from tests.cli.harness import SECONDS, Shell, make_shell
from xnagent.batch.processes import WorkerFailedError, WorkerProcesses
from xnagent.batch.stopping import BatchStop
from xnagent.errors import first_cause
from xnagent.testing.server import ScriptedServer

MORE = ("--processes", "2", "-j", "2", "--calls-at-once", "8")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = make_shell(tmp_path)
    write_jobs(shell, {"id": "a", "objective": "apple"}, {"id": "b", "objective": "pear"})
    return shell


def is_running(number: int) -> bool:
    """Whether the process is there and is no zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_B060_B048d_workers_end_with_their_batch_and_it_goes_on(shell: Shell, number: int, code: int):
    with (
        ScriptedServer(script(apple=HANG, pear=HANG)) as server,
        shell.started(*batch(shell, server.base_url, *MORE)) as process,
    ):
        wait_for(lambda: len(server.exchanges) >= 2)
        workers = children_of(process.pid)
        assert len(workers) == 2
        process.send_signal(number)
        process.communicate(timeout=SECONDS)
        wait_for(lambda: not any(map(is_running, workers)))
    assert process.returncode == code
    assert results(shell) == []
    before = sessions(shell)
    with ScriptedServer(OK, strict=False) as server:
        done = shell.run(*batch(shell, server.base_url, *MORE, "--output", "json"))
    assert (done.code, done.record["completed"]) == (0, 2)
    assert (sorted(line["id"] for line in results(shell)), sessions(shell)) == (["a", "b"], before)


async def test_workers_that_cannot_work_are_told_instead_of_begun_for_ever():
    workers = WorkerProcesses(
        commands=[[sys.executable, "-c", "raise SystemExit(3)"]], stop=BatchStop(), environ=os.environ
    )
    with anyio.fail_after(SECONDS), pytest.raises(ExceptionGroup) as caught:
        await workers.work(anyio.Event())
    assert isinstance(first_cause(caught.value), WorkerFailedError)
    assert not workers.running


async def test_a_worker_that_is_killed_is_replaced_and_one_that_will_not_end_is_made_to(tmp_path: Path):
    mark = tmp_path / "mark"
    deaf = (
        f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(mark)!r}, 'a').write('x'); time.sleep(600)"
    )
    workers = WorkerProcesses(
        commands=[[sys.executable, "-c", deaf]], stop=BatchStop(), environ=os.environ, closing_seconds=0.1
    )
    closing = anyio.Event()

    def has_begun(count: int) -> bool:
        return bool(workers.running) and mark.exists() and len(mark.read_text()) == count

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(workers.work, closing)
            for count in (1, 2):
                await anyio.to_thread.run_sync(wait_for, partial(has_begun, count))
                (process,) = workers.running
                if count == 1:
                    process.kill()
            closing.set()


def test_a_worker_needs_a_queue(shell: Shell):
    done = shell.run("worker", "--queue", str(shell.folder / "nowhere.db"))
    assert (done.code, "NO_QUEUE" in done.err) == (2, True)
