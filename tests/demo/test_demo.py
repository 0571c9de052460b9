"""`xnagent demo` as a person starts it; what it shows is read from the store, not from its text."""

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import pytest

from xnagent.app.forking import fork_session
from xnagent.app.host import Host
from xnagent.app.replay import replay_session, request_bytes
from xnagent.cli.console import STDERR, Console
from xnagent.cli.demo import judged, make_repository, with_python
from xnagent.config.places import shipped
from xnagent.core.events import CheckFinished, RunLaunched, RunSettled, Stored
from xnagent.core.fold import fold_all
from xnagent.core.forking import Cut, cut_at
from xnagent.core.ids import PLANNER
from xnagent.core.record import final_record
from xnagent.core.state import SessionState
from xnagent.store.reading import read_artifact, read_events
from xnagent.store.sessions import list_sessions, sessions_folder
from xnagent.testing.server import ScriptedServer

ROOT = Path(__file__).resolve().parent.parent.parent
MAX_CPU_SECONDS = 12.0
"""A session on two idle cores takes about as long on the clock; a busy machine must not fail it."""


@dataclass(frozen=True)
class Demo:
    folder: Path
    code: int
    stdout: str
    stderr: str
    cpu_seconds: float

    @property
    def database(self) -> Path:
        (row,) = list_sessions(sessions_folder(self.kept / "home"))
        return row.path

    @property
    def kept(self) -> Path:
        (folder,) = self.folder.glob("xnagent-demo-*")
        return folder

    @property
    def events(self) -> tuple[Stored, ...]:
        return tuple(read_events(self.database))

    @property
    def state(self) -> SessionState:
        return fold_all(stored.event for stored in self.events)


def environment(folder: Path) -> dict[str, str]:
    """As `env -i HOME=… PATH=…`, and the temporary folder where the test can look."""
    return {"HOME": str(folder), "PATH": os.environ.get("PATH", os.defpath), "TMPDIR": str(folder)}


def run_demo(folder: Path, *options: str) -> Demo:
    empty = folder / "empty"
    empty.mkdir()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "xnagent", "demo", *options],
        cwd=empty,
        env={**environment(folder), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert not list(empty.iterdir())
    return Demo(folder=folder, code=done.returncode, stdout=done.stdout, stderr=done.stderr, cpu_seconds=cpu)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return run_demo(tmp_path_factory.mktemp("demo"))


pytestmark = [pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.xdist_group("demo")]


def test_it_ends_verified_and_is_quick(demo: Demo):
    assert demo.code == 0, demo.stderr
    record = final_record(demo.state)
    assert (record["outcome"], record["verified"]) == ("completed", True)
    assert demo.cpu_seconds < MAX_CPU_SECONDS


def test_tasks_depend_on_each_other_and_all_are_completed(demo: Demo):
    tasks = demo.state.board.tasks.values()
    assert len(tasks) >= 4
    assert any(task.depends_on for task in tasks)
    assert {task.status for task in tasks} == {"completed"}


def test_two_runs_work_at_the_same_time(demo: Demo):
    at_work, most = set(), 0
    for stored in demo.events:
        match stored.event:
            case RunLaunched(run=run):
                at_work.add(run)
            case RunSettled(run=run):
                at_work.discard(run)
        most = max(most, len(at_work))
    assert most >= 2


def test_one_run_fails_its_check_and_the_task_is_done_again(demo: Demo):
    board = demo.state.board
    failed = [run for run in board.runs.values() if any(not evidence.has_passed for evidence in run.evidence)]
    assert len(failed) == 1
    assert (failed[0].status, failed[0].claim) == ("failed", "completed")
    later = board.runs[board.tasks[failed[0].task].runs[-1]]
    assert (later.run != failed[0].run, later.status) == (True, "completed")
    assert later.brief


def test_a_merge_conflict_is_resolved(demo: Demo):
    board = demo.state.board
    conflicts = [run for run in board.runs.values() if run.conflicts]
    assert len(conflicts) == 1
    again = board.runs[board.tasks[conflicts[0].task].runs[-1]]
    assert again.merged is not None
    assert again.base != conflicts[0].base


def test_a_fact_is_corrected(demo: Demo):
    corrected = [fact for fact in demo.state.board.facts.values() if fact.revision > 1]
    assert [fact.value for fact in corrected] == ["ROUND_HALF_EVEN"]


def test_the_planner_is_rebased_twice_with_receipts(demo: Demo):
    rebases = [rebase for rebase in demo.state.rebases if rebase.agent == PLANNER]
    assert len(rebases) >= 2
    for rebase in rebases:
        assert rebase.tokens_after < rebase.tokens_before
        assert rebase.price_usd is not None
        assert rebase.break_even_steps is not None
    assert not demo.state.breaks


def test_every_check_really_ran(demo: Demo):
    finished = [stored.event for stored in demo.events if isinstance(stored.event, CheckFinished)]
    judged_runs = {event.run for event in finished if event.run is not None}
    mergeable = {name for name, run in demo.state.board.runs.items() if not run.conflicts}
    assert mergeable <= judged_runs <= set(demo.state.board.runs)
    assert len(mergeable) == len(demo.state.board.runs) - 1
    assert demo.state.checks
    for event in finished:
        output = read_artifact(demo.database, event.evidence.output) or b""
        assert b"Ran " in output


def test_most_of_what_is_sent_was_in_the_cache_and_has_a_price(demo: Demo):
    for totals in demo.state.totals.values():
        assert totals.usage.cached_tokens > totals.usage.input_tokens / 2
        assert totals.cost_usd > 0


def test_it_can_be_replayed(demo: Demo):
    found = replay_session(Host(home=demo.kept / "home", environ={}), demo.database.stem)
    assert found.problems == []
    assert found.requests == demo.state.request_count


def test_it_can_be_forked_between_its_calls_and_each_fork_replays_clean(demo: Demo, tmp_path: Path):
    host, session = Host(home=tmp_path, environ={}), demo.database.stem
    shutil.copytree(demo.database.parent, tmp_path / "sessions")
    events = demo.events
    for seq in range(40, len(events), 45):
        found = cut_at(events, seq)
        at = found.seq if isinstance(found, Cut) else found.before
        fork = anyio.run(partial(fork_session, host, session, at=at))
        assert replay_session(host, fork.session).first is None
        assert [one.event for one in host.place(fork.session).events()][1:at] == [one.event for one in events[1:at]]


def test_no_request_ends_with_what_the_model_said_last(demo: Demo):
    events = demo.events
    for number in range(1, demo.state.request_count + 1):
        messages = json.loads(request_bytes(events, number))["messages"]
        assert messages[-1]["role"] in {"user", "tool"}, f"request {number}"


def test_nothing_is_left_but_the_result(demo: Demo):
    repository = demo.kept / "tally"
    tests = run_python(repository, "-m", "unittest", "discover", "-q", "-s", "tests", "-t", ".")
    assert tests.returncode == 0, tests.stderr
    assert not [*demo.kept.glob("home/work/*/runs/*"), *demo.kept.glob("home/work/*/checks/*")]
    original = {path.name: path.read_bytes() for path in shipped("demo/tally/tests").glob("*.py")}
    assert {path.name: path.read_bytes() for path in repository.glob("tests/*.py")} == original


def test_it_shows_the_tables_and_says_what_was_scripted(demo: Demo):
    for heading in ("tasks (", "rebases (", "runs (", "facts (", "deltas (", "spine (", "cost\n", "cached share"):
        assert heading in demo.stdout
    assert '"scripted" in configs/models.toml' in demo.stdout
    assert "The model's replies were scripted" in demo.stdout
    assert "Everything else was real" in demo.stdout
    assert f"xnagent inspect {demo.database.stem} --home {demo.kept / 'home'}" in demo.stdout
    assert str(demo.kept) in demo.stderr


def test_again_as_json_with_a_home_of_its_own(demo: Demo, tmp_path: Path):
    home = tmp_path / "home"
    again = run_demo(tmp_path, "--output", "json", "--home", str(home))
    assert again.code == 0, again.stderr
    (line,) = again.stdout.splitlines()
    record = json.loads(line)
    assert (record["type"], record["verified"], record["exit_code"]) == ("final", True, 0)
    assert [row.session for row in list_sessions(sessions_folder(home))] == [record["session"]]
    assert not (again.kept / "home").exists()
    assert "The model's replies were scripted" in again.stderr


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=30, check=False
    )


def test_the_package_begins_as_one_commit_with_failing_tests(tmp_path: Path):
    repository = tmp_path / "tally"
    anyio.run(partial(make_repository, repository, with_python(environment(tmp_path), spare=tmp_path / "bin")))
    git = partial(subprocess.run, cwd=repository, env=environment(tmp_path), capture_output=True, text=True, check=True)
    assert git(["git", "log", "--oneline"]).stdout.count("\n") == 1
    assert git(["git", "status", "--short"]).stdout == ""
    for name in ("money", "ledger", "columns", "shares", "cli"):
        assert run_python(repository, "-m", "unittest", "-q", f"tests.test_{name}").returncode != 0


def test_checks_find_this_python_first(tmp_path: Path):
    path = with_python({"PATH": "/nowhere"}, spare=tmp_path / "bin")["PATH"]
    assert path.endswith(f"{os.pathsep}/nowhere")
    found = shutil.which("python3", path=path)
    assert found is not None
    assert Path(found).resolve() == Path(sys.executable).resolve()


def test_what_the_script_did_not_expect_fails_the_demo(capfd: pytest.CaptureFixture[str]):
    with ScriptedServer({"planner": [{"text": "never asked"}]}) as server:
        assert judged(server, 0, console=Console(STDERR)) == 1
        assert judged(server, 4, console=Console(STDERR)) == 4
    assert "was used 0 of 1 times" in capfd.readouterr().err


@pytest.mark.timeout(300)
def test_a_slice_of_the_kill_campaign_survives(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "kill-campaign"), "--seed", "31", "--kills", "2", "--jobs", "2"],
        cwd=tmp_path,
        env={**environment(tmp_path), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "2 of 2 kills survived" in done.stdout
