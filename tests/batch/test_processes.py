"""Worker processes: they end with their batch, whatever ended it, and the batch goes on where they stopped."""

import signal
from pathlib import Path

import pytest

from tests.batch.scenes import HANG, OK, batch, children_of, results, script, sessions, wait_for, write_jobs
from tests.cli.harness import SECONDS, Shell, make_shell
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


@pytest.mark.parametrize(
    ("signals", "code"), [((signal.SIGKILL,), -9), ((signal.SIGINT,), 130), ((signal.SIGTERM, signal.SIGTERM), 143)]
)
def test_B060_B048d_workers_end_with_their_batch_and_it_goes_on(shell: Shell, signals: tuple[int, ...], code: int):
    with (
        ScriptedServer(script(apple=HANG, pear=HANG)) as server,
        shell.started(*batch(shell, server.base_url, *MORE)) as process,
    ):
        wait_for(lambda: len(server.exchanges) >= 2)
        workers = children_of(process.pid)
        assert len(workers) == 2
        for number in signals:
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


def test_a_worker_needs_a_queue(shell: Shell):
    done = shell.run("worker", "--queue", str(shell.folder / "nowhere.db"))
    assert (done.code, "NO_QUEUE" in done.err) == (2, True)
