"""The orchestrator is killed while a command runs; a later one finds out what became of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xnagent.ports import Command
from xnagent.workspaces.processes import Family, members
from xnagent.workspaces.shell import ProcessShell
from xnagent.workspaces.spool import spool_at

ORCHESTRATOR = """
import os, sys, anyio
from pathlib import Path
from xnagent.ports import Command
from xnagent.workspaces.folders import Tree
from xnagent.workspaces.shell import ProcessShell
workspace = Tree(root=Path(sys.argv[1]), scratch=Path(sys.argv[2]))
command = Command(command=sys.argv[3], timeout_seconds=60, spool="c1")
anyio.run(ProcessShell({"PATH": os.environ["PATH"]}, is_tied=bool(sys.argv[4:])).run, workspace, command)
"""


def wait_for(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


@pytest.fixture
def killed(workspace):
    """Start a command in an orchestrator of its own, and kill that when the file `ready` is there."""

    def start(command, *tied):
        arguments = [sys.executable, "-c", ORCHESTRATOR, str(workspace.root), str(workspace.scratch), command, *tied]
        process = subprocess.Popen(arguments, cwd=Path(__file__).parents[2])
        wait_for((workspace.root / "ready").exists)
        process.send_signal(signal.SIGKILL)
        process.wait()

    return start


@pytest.fixture
def shell():
    return ProcessShell({"PATH": os.environ["PATH"]})


def left(workspace):
    mark = spool_at(workspace.scratch, "c1").mark
    return members(Family(mark=mark)) | members(Family(mark=f"{mark}-output"))


async def test_a_command_that_went_on_to_its_end(workspace, shell, killed):
    killed("echo one; touch ready; sleep 0.5; echo two; exit 7")
    wait_for((workspace.scratch / "c1.rc").exists)
    finished = await shell.recover(workspace, "c1")
    assert (finished.exit_code, finished.ending) == (7, "exit")
    assert finished.output.read_bytes() == b"one\ntwo\n"
    assert 0.3 < finished.duration_seconds < 10
    assert left(workspace) == frozenset()


async def test_a_command_that_still_runs_is_stopped(workspace, shell, killed):
    killed('trap "" TERM; echo one; sleep 300 & setsid sleep 301 & touch ready; wait')
    assert left(workspace)
    finished = await shell.recover(workspace, "c1")
    assert (finished.exit_code, finished.ending) == (None, "signal")
    assert finished.output.read_bytes() == b"one\n"
    assert left(workspace) == frozenset()
    again = await shell.recover(workspace, "c1")
    assert (again.exit_code, again.ending) == (None, "signal")


async def test_B048_a_tied_command_ends_with_its_process_whatever_it_did_to_stay(workspace, shell, killed):
    """Its shell ignores signals, one child has a session of its own, another one no marker; how it ended is unknown."""
    children = "sleep 300 & setsid sleep 301 & env -i sleep 302 & setsid sh -c 'sleep 303; sleep 304' &"
    killed(f'trap "" TERM HUP; echo one; {children} touch ready; wait; touch late', "tied")
    family = spool_at(workspace.scratch, "c1").family()
    assert family.leader is not None
    wait_for(lambda: not members(family))
    wait_for(lambda: not left(workspace))
    assert not (workspace.root / "late").exists()
    finished = await shell.recover(workspace, "c1")
    assert (finished.exit_code, finished.ending, finished.output.read_bytes()) == (None, "signal", b"one\n")


@pytest.mark.parametrize(("command", "code"), [("echo one; exit 7", 7), ("kill -9 $PPID; sleep 300", None)])
async def test_a_tied_command_ends_like_any_other(workspace, command, code):
    """By itself, or because its wrapper is killed; nothing of it is left."""
    shell = ProcessShell({"PATH": os.environ["PATH"]}, is_tied=True)
    finished = await shell.run(workspace, Command(command=command, timeout_seconds=20, spool="c1"))
    assert finished.exit_code == code
    assert left(workspace) == frozenset()
    leader = spool_at(workspace.scratch, "c1").leader()
    assert members(Family(mark="none", leader=leader)) == frozenset()


async def test_a_tied_command_that_takes_too_long_is_stopped(workspace):
    shell = ProcessShell({"PATH": os.environ["PATH"]}, is_tied=True)
    command = Command(command="trap '' TERM; sleep 300 & setsid sleep 301 & wait", timeout_seconds=0.3, spool="c1")
    finished = await shell.run(workspace, command)
    assert (finished.exit_code, finished.ending) == (None, "timeout")
    assert members(Family(mark="none", leader=spool_at(workspace.scratch, "c1").leader())) == frozenset()
    assert left(workspace) == frozenset()


async def test_what_it_left_in_the_background_is_stopped(workspace, shell, killed):
    killed("sleep 300 & sleep 0.3; touch ready; exit 5")
    wait_for((workspace.scratch / "c1.rc").exists)
    finished = await shell.recover(workspace, "c1")
    assert (finished.exit_code, finished.ending) == (5, "left-background")
    assert left(workspace) == frozenset()


async def test_much_output_is_whole_after_a_crash(workspace, shell, killed):
    killed("touch ready; yes | head -c 30000000; echo; echo end; exit 0")
    wait_for((workspace.scratch / "c1.rc").exists)
    finished = await shell.recover(workspace, "c1")
    assert finished.exit_code == 0
    assert finished.output.read_bytes().endswith(b"\nend\n")
    assert finished.omitted_bytes == 30_000_000 + len("\nend\n") - 16 * 1024 * 1024


async def test_a_command_that_never_began(workspace, shell):
    assert await shell.recover(workspace, "c1") is None


@pytest.fixture
def bystander():
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def line_of(number, later):
    """The line of `/proc/N/stat` with a start that is so many ticks later."""
    head, _, rest = Path(f"/proc/{number}/stat").read_text().rpartition(") ")
    fields = rest.split()
    fields[19] = str(int(fields[19]) + later)
    return f"{head}) {' '.join(fields)}\n"


@pytest.mark.parametrize(("later", "is_stopped"), [(0, True), (1, False)])
async def test_only_the_process_that_was_recorded_is_stopped(workspace, shell, bystander, later, is_stopped):
    (workspace.scratch / "c1.run").write_text(line_of(bystander.pid, later))
    finished = await shell.recover(workspace, "c1")
    assert (finished.exit_code, finished.ending) == (None, "signal")
    assert (bystander.poll() is not None) == is_stopped


@pytest.mark.parametrize("code", [0, 7])
async def test_a_shell_that_has_written_its_result_and_not_ended_yet_left_nothing(workspace, shell, bystander, code):
    (workspace.scratch / "c1.run").write_text(line_of(bystander.pid, 0))
    (workspace.scratch / "c1.rc").write_text(f"{code}\n")
    finished = await shell.recover(workspace, "c1")
    assert (finished.exit_code, finished.ending) == (code, "exit")
    assert bystander.poll() is not None


@pytest.mark.parametrize("text", ["", "nonsense", "12 (x) S 1", "x (y) S " + "1 " * 30])
async def test_a_damaged_record_names_nobody(workspace, shell, text):
    (workspace.scratch / "c1.run").write_text(text)
    finished = await shell.recover(workspace, "c1")
    assert (finished.exit_code, finished.ending, finished.duration_seconds) == (None, "signal", 0.0)
