"""Ends that nobody plans: streams, disks and homes that fail, clocks that jump, processes that are killed."""

import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.bench import Bench, bash, call, finish, on, reply, scripted, start, submit, task
from tests.e2e.command import begin, environment, finished, kill, records, resume_line, run_line, session_of, wait_until
from tests.e2e.disks import make_read_only, mounted
from tests.e2e.test_outcomes import queue_of, submit_job, until_done, worker_line
from tests.e2e.test_stopping import is_alive
from xnagent.app.host import SystemClock
from xnagent.batch.queue import remove
from xnagent.core.events import SessionInterrupted
from xnagent.core.ids import SessionId
from xnagent.store.lock import is_held
from xnagent.store.reading import read_events, read_state
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer


def done(bench: Bench, server: ScriptedServer | None = None):
    """The one session, checked as after every session."""
    bench.session = SessionId(session_of(bench))
    return bench.ended(server)


def shell_line(words: list[str], tail: str) -> list[str]:
    return ["bash", "-c", f"{shlex.join(words)} {tail}"]


def command_of(name: str, bench: Bench, server: ScriptedServer) -> list[str]:
    """The command line of a session that completes at once, as `run`, `resume` or `batch` has it."""
    if name == "run":
        return [*run_line(bench, server), "--output", "jsonl"]
    if name == "resume":
        code, _, err = finished(begin(bench, run_line(bench, server)))
        assert code == 0, err
        return [*resume_line(bench, "--message", "More."), "--output", "jsonl"]
    jobs = bench.folder / "jobs.jsonl"
    jobs.write_text('{"id":"a","objective":"x"}\n')
    line = run_line(bench, server, "--output", "jsonl")
    place = line.index("run")
    return [*line[:place], "batch", str(jobs), "--out", str(bench.folder / "out.jsonl"), *line[place + 2 :]]


STREAMS = {
    "head": "| head -c 1 > /dev/null; exit ${PIPESTATUS[0]}",
    "nobody": "| true; exit ${PIPESTATUS[0]}",
    "full": "> /dev/full",
    "all-closed": "<&- >&- 2>&-",
    "stderr-full": "2> /dev/full",
}
CELLS = list(zip(("run", "resume", "batch", "run", "batch"), STREAMS, strict=True))


@pytest.mark.parametrize(("command", "stream"), CELLS)
def test_B057_B058_an_output_that_nobody_takes_changes_no_session(tmp_path: Path, command: str, stream: str):
    """A slice of commands x streams: the session settles, its code is what it came to, and nothing is raised."""
    bench = Bench(tmp_path)
    with ScriptedServer(brain=lambda _view: finish().reply) as server:
        line = command_of(command, bench, server)
        code, _, err = finished(begin(bench, shell_line(line, STREAMS[stream])))
        assert code == 0, err
        assert done(bench, server).outcome == "completed"
    assert "Traceback" not in err
    assert "Broken pipe" not in err
    assert ("STDOUT_FAILED" in err) == (stream == "full")


@pytest.mark.parametrize("stream", ["full", "all-closed"])
def test_B058_a_worker_does_its_job_whatever_its_streams_are(tmp_path: Path, stream: str):
    bench = Bench(tmp_path)
    with ScriptedServer(brain=lambda _view: finish().reply) as server:
        line = worker_line(bench, server, "over")
        process = begin(bench, shell_line(line, STREAMS[stream]))
        assert until_done(queue_of(bench), process)["outcome"] == "completed"
        remove(queue_of(bench).path)
        code, _, err = finished(process)
        assert (code, "Traceback" in err) == (0, False), err
        assert done(bench, server).outcome == "completed"


def test_a_worker_whose_disk_is_full_says_so_of_the_job_and_does_the_next_one(tmp_path: Path):
    bench = Bench(tmp_path)
    ballast = bench.host.home / "ballast"
    with mounted(bench.host.home, "8m"), ScriptedServer(brain=lambda _view: finish().reply) as server:
        process = begin(bench, worker_line(bench, server, "over", job="other"))
        assert until_done(queue_of(bench), process)["outcome"] == "completed"
        fill(ballast)
        submit_job(bench, server, "job")
        record = until_done(queue_of(bench), process)
        assert (record["outcome"], record["exit_code"]) == ("error", 1)
        assert "No space" in record["error"]["message"] or "full" in record["error"]["message"]
        ballast.unlink()
        submit_job(bench, server, "third")
        assert until_done(queue_of(bench), process)["outcome"] == "completed"
        remove(queue_of(bench).path)
        code, _, err = finished(process)
        assert (code, "Traceback" in err) == (0, False), err


async def test_B058_readers_of_sessions_say_when_their_output_did_not_fit(bench: Bench):
    """`inspect`, `request`, help: 0 if the reader went away, 1 if the disk is full; no noise."""
    with ScriptedServer(scripted(finish("<state>"))) as server:
        await bench.run(server)
    name = bench.session
    home = ["--home", str(bench.host.home)]
    for words in (["inspect", name, "--events", "--json", *home], ["request", name, "1", *home], ["run", "--help"]):
        line = shlex.join([sys.executable, "-m", "xnagent", *words])
        both = f"{line} | true; gone=${{PIPESTATUS[0]}}; {line} > /dev/full; echo $gone $?"
        _, out, err = finished(begin(bench, ["bash", "-c", both]))
        assert out == "0 1\n", words
        assert err.count("\n") <= 1, err
        assert "Exception" not in err


def fill(place: Path) -> None:
    with suppress(OSError), place.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("moment", ["begin", "planner", "worker"])
def test_a_full_disk_ends_the_session_loudly_and_it_goes_on_when_there_is_room(tmp_path: Path, moment: str):
    bench = Bench(tmp_path)
    ballast = bench.host.home / "ballast"

    def brain(view: RequestView) -> ReplySpec:
        if moment == view.role and not ballast.exists() and not freed:
            fill(ballast)
        if view.role == "worker":
            return submit().reply if view.number > 1 else reply(call("write", path="n.txt", content="n\n" * 9_000))
        if "<state>" in view.new_text:
            return start(task("fix")).reply
        return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")

    freed = False
    with mounted(bench.host.home, "8m"), ScriptedServer(brain=brain) as server:
        if moment == "begin":
            fill(ballast)
        code, out, err = finished(begin(bench, run_line(bench, server, "--output", "json")))
        (record,) = records(out)
        assert (code, record["outcome"], record["exit_code"]) == (1, "error", 1), err
        assert "Traceback" not in err
        assert "No space" in err or "full" in err
        ballast.unlink()
        freed = True
        if moment == "begin":
            assert list(bench.host.home.glob("sessions/*.db")) == []
            return
        code, _, err = finished(begin(bench, resume_line(bench)))
        assert code == 0, err
        assert done(bench, server).outcome == "completed"


async def test_a_read_only_home_can_be_read_and_is_refused_for_everything_else(bench: Bench):
    home, name = bench.host.home, bench.session
    with mounted(home, "8m"), ScriptedServer(brain=lambda _view: finish().reply) as server:
        await bench.run(server)
        make_read_only(home)
        for line in (run_line(bench, server), resume_line(bench, "--message", "x")):
            code, out, err = finished(begin(bench, line))
            assert (code, out) == (2, ""), err
            assert "HOME_UNUSABLE" in err
        line = [sys.executable, "-m", "xnagent", "inspect", name, "--home", str(home)]
        code, out, err = finished(begin(bench, line))
        assert (code, err) == (0, "")
        assert name in out


def test_B053_a_second_writer_is_told_who_holds_the_session(tmp_path: Path):
    bench = Bench(tmp_path)
    with ScriptedServer(brain=lambda _view: ReplySpec(fault=Fault(hang="start"))) as server:
        first = begin(bench, run_line(bench, server))
        wait_until(lambda: len(server.bodies) > 0, first)
        code, out, err = finished(begin(bench, resume_line(bench, "--output", "json")))
        (record,) = records(out)
        assert (code, record["exit_code"], record["error"]["class"]) == (2, 2, "StoreBusyError")
        assert f"pid {first.pid} on" in err
        assert f"xnagent cancel {session_of(bench)}" in err
        assert first.poll() is None
        kill(first)


class JumpingClock(SystemClock):
    """A wall clock that somebody sets, a day forth or back, each time it is read."""

    def __init__(self) -> None:
        self.days = 0

    def now(self) -> str:
        self.days = -1 if self.days > 0 else 1
        moment = datetime.now(UTC) + timedelta(days=self.days)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def test_a_clock_that_jumps_moves_no_deadline_and_no_duration(bench: Bench):
    bench.host = replace(bench.host, clock=JumpingClock())
    script = scripted(start(task("fix")), finish("r1 settled"), workers={"fix": [bash("echo hello"), submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server, limits__deadline_seconds=40, check_timeout_seconds=30)
        server.check()
        assert (ended.outcome, ended.code) == ("completed", 0)
        assert 0 < ended.record["duration_seconds"] < 40
        assert all(0 <= event.duration_seconds < 40 for event in ended.replies())
        stamps = [stored.at for stored in ended.events]
        assert stamps != sorted(stamps)
    hanging = Bench(bench.folder / "hanging")
    hanging.host = replace(hanging.host, clock=JumpingClock())
    with ScriptedServer(brain=lambda _view: ReplySpec(fault=Fault(hang="stream"))) as server:
        ended = await hanging.run(server, limits__deadline_seconds=1)
    assert (ended.outcome, ended.code) == ("deadline", 7)
    assert ended.record["duration_seconds"] >= 1


KILLED = {
    "shell": "kill -9 $$",
    "group": "kill -9 0; sleep 300",
    "wrapper": "grep -aq place= /proc/$PPID/cmdline && kill -9 $PPID; sleep 300",
    "child": "sleep 300 & kill -9 $!; wait $!",
}


@pytest.mark.parametrize("victim", KILLED)
async def test_B034_B048_a_command_that_is_killed_from_outside_has_one_result(bench: Bench, victim: str):
    """As the kernel does it when memory is short: the shell, its wrapper, the whole group, a child."""
    script = scripted(start(task("fix")), finish("r1 settled"), workers={"fix": [bash(KILLED[victim]), submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert ended.outcome == "completed"
    (result, _) = ended.results("r1")
    assert "137" in result.text or result.exit_code is None


def worker_in_command(bench: Bench, pid: Path):
    """A Planner with one Worker whose command does not want to stop."""

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker":
            stubborn = f"echo $$ > {pid}; trap '' TERM INT HUP; sleep 300; sleep 300"
            return bash(stubborn).reply if view.number == 1 else submit().reply
        if "<state>" in view.new_text:
            return start(task("fix")).reply
        return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")

    return brain


def is_written(pid: Path) -> bool:
    return pid.exists() and pid.read_text().strip() != ""


def test_B060_killed_while_it_closes_after_a_sigterm_nothing_is_lost(tmp_path: Path):
    """What a CI runner does: SIGTERM, and SIGKILL before the closing is done."""
    bench = Bench(tmp_path)
    pid = tmp_path / "pid"
    with ScriptedServer(brain=worker_in_command(bench, pid)) as server:
        process = begin(bench, run_line(bench, server))
        wait_until(lambda: is_written(pid), process)
        bench.session = SessionId(session_of(bench))
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: read_state(bench.path).interrupted is not None, process)
        kill(process)
        assert read_state(bench.path).settled is None
        code, _, err = finished(begin(bench, resume_line(bench)))
        assert code == 0, err
        ended = done(bench, server)
    assert not is_alive(pid)
    assert ended.of(SessionInterrupted)[0].signal == "SIGTERM"
    assert [result.code for result in ended.results("r1")] == ["INTERRUPTED", "ok"]


def test_B060_a_terminal_that_is_closed_ends_the_session_in_order(tmp_path: Path):
    """All three streams are the terminal; SIGHUP comes from the kernel, and stderr is gone as well."""
    bench = Bench(tmp_path)
    pid = tmp_path / "pid"
    with ScriptedServer(brain=worker_in_command(bench, pid)) as server:
        terminal, own = pty.openpty()
        # Also where the tests themselves run under `nohup`, which children inherit.
        line = ["setsid", "--ctty", "env", "--default-signal=HUP", *run_line(bench, server)]
        process = begin(bench, line, stdin=own, stdout=own, stderr=own)
        os.close(own)
        wait_until(lambda: os.read(terminal, 65_536) != b"" and is_written(pid), process)
        os.close(terminal)
        assert process.wait(timeout=50) == 143
        ended = done(bench, server)
    assert (ended.outcome, ended.code) == ("interrupted", 143)
    assert not is_alive(pid)


def test_a_process_whose_parent_is_gone_goes_on_also_after_a_hangup_that_nohup_ignores(tmp_path: Path):
    bench = Bench(tmp_path)
    gate = bench.folder / "go"

    def brain(_view: RequestView) -> ReplySpec:
        return finish().reply if gate.exists() else on(calls=[call("glob", pattern="*")]).reply

    with ScriptedServer(brain=brain) as server:
        line = shlex.join(["nohup", *run_line(bench, server)])
        parent = subprocess.Popen(
            ["bash", "-c", f"{line} > /dev/null 2>&1 & echo $!; wait"],
            env=environment(bench),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        child = int(parent.stdout.readline())
        wait_until(lambda: len(server.bodies) > 0, parent)
        kill(parent)
        os.kill(child, signal.SIGHUP)
        bench.session = SessionId(session_of(bench))
        gate.touch()
        deadline = time.monotonic() + 40
        while is_held(bench.path) and time.monotonic() < deadline:
            time.sleep(0.02)
        ended = done(bench, server)
    assert (ended.outcome, ended.code) == ("completed", 0)
    assert not [stored for stored in read_events(bench.path) if isinstance(stored.event, SessionInterrupted)]
