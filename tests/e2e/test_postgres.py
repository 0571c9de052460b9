"""Whole sessions whose log is in a real PostgreSQL server."""

import json
import sys
from pathlib import Path

import anyio
import psycopg
import pytest

from tests.cli.harness import Shell
from tests.e2e.bench import Bench, call, delegate, finish, plan, reply, submit, task, until
from tests.e2e.command import begin, finished, kill, run_line, wait_until
from tests.e2e.test_crash import sensible
from xnagent.app.forking import fork_session
from xnagent.app.replay import replay_session
from xnagent.core.events import RunSettled
from xnagent.store.postgres.places import sessions_in
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

CHECK = "grep -q 'x = 2' a.py"


@pytest.fixture
def url(database_server) -> str:
    return database_server.database()


def line(*words: str) -> list[str]:
    return [sys.executable, "-m", "xnagent", *words]


async def test_a_session_runs_to_its_end_while_the_server_crashes(database_server, url: str, tmp_path: Path):
    bench = Bench(tmp_path, store=sessions_in(url))
    with ScriptedServer(brain=sensible) as server:
        async with anyio.create_task_group() as group:

            async def disturb() -> None:
                await until(lambda: len(server.bodies) >= 3)
                database_server.crash()
                database_server.start()

            group.start_soon(disturb)
            ended = await bench.run(server, checks=(CHECK,))
    assert (ended.outcome, ended.code) == ("completed", 0)
    assert bench.read("a.py") == "x = 2\n"
    assert not list(bench.host.home.glob("sessions/*")), "nothing of it is kept in files"
    assert replay_session(bench.host, bench.session).problems == []


@pytest.mark.timeout(120)
def test_b002_a_killed_session_goes_on_in_another_process_and_replays_byte_for_byte(url: str, tmp_path: Path):
    bench = Bench(tmp_path, store=sessions_in(url))
    store = ("-s", f"store.url={url}")
    home = ("--home", str(bench.host.home))
    with ScriptedServer(brain=sensible) as server:
        process = begin(bench, run_line(bench, server, "--check", CHECK, *store))
        wait_until(lambda: len(server.bodies) >= 4, process)
        kill(process)
        (row,) = bench.host.sessions.rows()
        assert not row.is_live
        code, out, err = finished(begin(bench, line("resume", row.session, *home, *store, "--output", "json")))
    assert code == 0, err
    assert json.loads(out)["outcome"] == "completed"
    assert bench.read("a.py") == "x = 2\n"
    name = row.session
    shell = Shell(folder=bench.folder, extra={"XNAGENT_STORE__URL": url})
    done = shell.many(
        ["sessions", "--output", "json"],
        ["inspect", name, "--output", "json"],
        ["replay", name, "--output", "json"],
        ["request", name, "1"],
    )
    assert [one.code for one in done] == [0, 0, 0, 0], done
    sessions, inspected, replayed, request = done
    (listed,) = sessions.record["sessions"]
    assert (listed["session"], listed["status"], listed["path"]) == (name, "completed", None)
    assert inspected.record["final"]["outcome"] == "completed"
    assert replayed.record["problems"] == []
    assert replayed.record["requests"] >= 4
    assert request.out.encode() in server.bodies


@pytest.mark.timeout(120)
def test_B048_a_command_of_a_killed_process_has_no_effect_after_another_home_went_on(url: str, tmp_path: Path):
    """Unboxed, amid a command, and what it began in a session of its own: the next one looks, and does it once."""
    bench = Bench(tmp_path)
    began, effects, release = tmp_path / "began", tmp_path / "effects", tmp_path / "release"
    slow = f"while ! test -e {release}; do sleep 0.02; done; echo effect >> {effects}"
    daemon = f"setsid sh -c 'while ! test -e {release}; do sleep 0.02; done; echo daemon >> {effects}' & "

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "<state>" in view.new_text:
                return reply(plan(task("fix")), *delegate("fix"))
            return finish().reply if "r1 settled: completed" in view.new_text else ReplySpec(text="Waiting.")
        if "INTERRUPTED" in view.new_text:
            release.touch()
            look = f"sleep 0.3; grep -q effect {effects} || echo effect >> {effects}"
            return reply(call("bash", command=look))
        if view.number == 1:
            return reply(call("bash", command=f"{daemon}touch {began}; {slow}"))
        return submit().reply

    store = ("-s", f"store.url={url}")
    with ScriptedServer(brain=brain) as server:
        process = begin(bench, run_line(bench, server, *store))
        wait_until(began.exists, process)
        kill(process)
        (row,) = sessions_in(url).rows()
        away = ("--home", str(tmp_path / "away"))
        process = begin(bench, line("resume", row.session, *away, *store))
        told = iter(process.stderr.readline, b"")
        assert any(b"ended without a word" in text for text in told)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE xnagent.leases SET expires = clock_timestamp()")
        code, _, err = finished(process)
    assert code == 0, err
    assert effects.read_text() == "effect\n"


async def test_a_session_in_a_database_is_forked_there_and_goes_on(url: str, tmp_path: Path):
    bench = Bench(tmp_path, store=sessions_in(url))
    with ScriptedServer(brain=sensible) as server:
        origin = await bench.run(server, checks=(CHECK,), apply=False)
        cut = next(one.seq for one in origin.events if isinstance(one.event, RunSettled))
        fork = await fork_session(bench.host, bench.session, at=cut)
        bench.host.place(bench.session).forget()
        bench.session = fork.session
        ended = await bench.resume(server, checks=(CHECK,))
    assert (ended.outcome, ended.code) == ("completed", 0)
    assert ended.events[1:cut] == origin.events[1:cut]
    assert bench.read("a.py") == "x = 2\n"
    assert not list(bench.host.home.glob("sessions/*.db")), "nothing of it is kept in files"
