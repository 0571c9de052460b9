"""Killed, the work folder deleted or the log alone carried elsewhere, and taken up again: the same end."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import Bench, call, delegate, finish, git, plan, reply, rewrite, submit, task
from tests.e2e.command import begin, finished, kill, resume_line, run_line, session_of, wait_until
from tests.e2e.test_crash import truncate
from xnagent.core.events import PatchMerged, RunLaunched, RunSubmitted, SessionStarted
from xnagent.core.ids import SessionId
from xnagent.core.tree_events import RunTreeRestored, RunTreeSaved
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer

MISSING = "may be missing"
BINARY = bytes(range(256)) * 40


def write(path: str, content: str) -> Any:
    return call("write", path=path, content=content)


def text_of(view: RequestView) -> str:
    return "\n".join(str(message.get("content")) for message in view.messages if message["role"] != "system")


def planner(view: RequestView) -> ReplySpec:
    """`one`, and when it is merged `two`."""
    text = text_of(view)
    if "run r2 settled: completed" in text:
        return finish().reply
    if "run r1 settled: completed" in text:
        return ReplySpec(text="Waiting.") if '"run":"r2"' in text or "/runs/r2" in text else reply(*delegate("two"))
    if '"run":"r1"' in text or "/runs/r1" in text:
        return ReplySpec(text="Waiting.")
    return reply(plan(task("one"), task("two")), *delegate("one"))


def one(view: RequestView) -> ReplySpec:
    """Changes a file that the user had changed, and removes one."""
    if view.number == 1:
        return reply(call("bash", command="echo one >> a.py; git rm -q --cached b.py; rm b.py; printf 'x\\0y' > bin"))
    return submit().reply


def two(view: RequestView) -> ReplySpec:
    """Writes, then makes something of what it wrote; where it is told that it may be gone, it writes again."""
    text = text_of(view)
    summed = "cat one.txt d/two.txt a.py > sum.txt; chmod +x sum.txt; ls"
    if MISSING in view.new_text:
        return reply(write("one.txt", "1\n"), write("d/two.txt", "2\n"), call("bash", command=summed))
    if view.number == 1:
        return reply(write("one.txt", "1\n"))
    if view.number == 2:
        return reply(write("d/two.txt", "2\n"))
    return submit().reply if "sum.txt" in text else reply(call("bash", command=summed))


class Model:
    """Plays both roles; request `hang` of the second run is never answered, once."""

    def __init__(self, hang: int = 0) -> None:
        self.hang = hang
        self.hangs = False

    def __call__(self, view: RequestView) -> ReplySpec:
        if view.role == "planner":
            return planner(view)
        if '<task id="one"' in view.first_user:
            return one(view)
        if view.number == self.hang and not self.hangs:
            self.hangs = True
            return ReplySpec(fault=Fault(hang="start"))
        return two(view)


def with_user_work(bench: Bench) -> None:
    """Uncommitted and untracked, staged and ignored, a link, a mode, bytes."""
    root = bench.repository
    (root / ".gitignore").write_text("*.log\n")
    (root / "a.py").write_text("x = 1\nmine = True\n")
    (root / "new file.txt").write_text("without an end")
    (root / "ümlaut\tand tab").write_text("é\r\n")
    (root / "bytes").write_bytes(BINARY)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("a.py")
    (root / "x.log").write_text("ignored")
    git("add", "bytes", folder=root)


def plain(bench: Bench) -> None:
    """No git repository at all."""
    shutil.rmtree(bench.repository / ".git")


def nothing(_bench: Bench) -> None:
    """A clean checkout."""


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files with mode and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(".git/") and (path.is_symlink() or path.is_file()):
            content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
            found[name] = (path.lstat().st_mode, content)
    return found


@pytest.fixture
def undisturbed(tmp_path: Path) -> Callable[[Callable[[Bench], None]], dict[str, tuple[int, bytes]]]:
    def run(prepare: Callable[[Bench], None]) -> dict[str, tuple[int, bytes]]:
        bench = Bench(tmp_path / "undisturbed")
        prepare(bench)
        with ScriptedServer(brain=Model()) as server:
            code, _, err = finished(begin(bench, run_line(bench, server)))
        assert code == 0, err
        return tree(bench.repository)

    return run


def crashed(bench: Bench, *, hang: int, save: str) -> Iterator[ScriptedServer]:
    """A session that was killed while the second run asked its `hang`th time."""
    model = Model(hang)
    with ScriptedServer(brain=model) as server:
        process = begin(bench, run_line(bench, server, settings={"workspace.save": save}))
        wait_until(lambda: model.hangs, process)
        kill(process)
        bench.session = SessionId(session_of(bench))
        yield server


@pytest.mark.parametrize(("prepare", "save"), [(with_user_work, "always"), (plain, "always"), (nothing, "auto")])
def test_b002_a_deleted_work_folder_is_made_again(
    tmp_path: Path, undisturbed: Any, prepare: Callable[[Bench], None], save: str
):
    """After a merge, in mid-run; the same final tree as without the crash, and a log that replays."""
    bench = Bench(tmp_path / "bench")
    prepare(bench)
    for server in crashed(bench, hang=3, save=save):
        shutil.rmtree(bench.work())
        code, _, err = finished(begin(bench, resume_line(bench)))
        assert code == 0, err
        ended = bench.ended(server)
    assert tree(bench.repository) == undisturbed(prepare)
    (restored,) = ended.of(RunTreeRestored)
    saves = ended.of(RunTreeSaved)
    told = ended.told("r2", "message")
    if save == "always":
        assert (restored.commit, restored.lost) == (saves[2].commit, ())
        assert [event.run for event in saves[:3]] == ["r1", "r2", "r2"]
        assert "All other changes of yours are there." in told[0]
    else:
        assert saves == []
        assert (restored.commit, restored.lost) == (ended.run("r2").base, (1, 2))
        assert "your steps 1 to 2 (d/two.txt, one.txt) may be missing" in told[0]
    assert ended.of(PatchMerged)[0].commit == ended.of(RunLaunched)[1].base
    assert (ended.of(SessionStarted)[0].snapshot is None) == (prepare is nothing)


def test_b002_a_command_cut_off_with_its_folder_is_not_run_again(tmp_path: Path):
    """Killed in a command: outside of the tree it had its effect, its spool is gone with the folder.

    That effect comes last: the command goes on without its session, and what it wrote into a folder that is being
    removed would stop that.
    """
    bench = Bench(tmp_path)
    count = tmp_path / "count"
    command = f"echo half > half.txt; echo run >> {count}; sleep 300"

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "<state>" in view.new_text:
                return reply(plan(task("fix")), *delegate("fix"))
            return finish().reply if "r1 settled: completed" in view.new_text else ReplySpec(text="Waiting.")
        if view.number == 1:
            return reply(write("whole.txt", "whole\n"))
        return reply(call("bash", command=command)) if view.number == 2 else submit().reply

    with ScriptedServer(brain=brain) as server:
        process = begin(bench, run_line(bench, server, settings={"workspace.save": "always"}))
        wait_until(count.exists, process)
        kill(process)
        shutil.rmtree(bench.host.home / "work")
        code, _, err = finished(begin(bench, resume_line(bench)))
        assert code == 0, err
        bench.session = SessionId(session_of(bench))
        ended = bench.ended(server)
    assert count.read_text() == "run\n"
    assert [result.code for result in ended.results("r1")] == ["ok", "INTERRUPTED", "ok"]
    assert bench.read("whole.txt") == "whole\n"
    assert not (bench.repository / "half.txt").exists()
    assert "your step 2 may be missing" in ended.told("r1", "message")[0]


def test_what_was_not_kept_is_said_and_the_session_can_still_go_on(tmp_path: Path):
    bench = Bench(tmp_path)
    with_user_work(bench)
    for _ in crashed(bench, hang=2, save="off"):
        shutil.copytree(bench.work(), tmp_path / "kept", symlinks=True)
        shutil.rmtree(bench.work())
        code, _, err = finished(begin(bench, resume_line(bench)))
        assert (code, "RESTORE_FAILED" in err, "workspace.save" in err) == (1, True, True)
        assert list(bench.work().glob("*.git")) == []
        shutil.copytree(tmp_path / "kept", bench.work(), symlinks=True, dirs_exist_ok=True)
        code, _, err = finished(begin(bench, resume_line(bench)))
        assert code == 0, err


async def test_a_handed_in_tree_that_is_gone_is_not_taken_for_an_unchanged_one(tmp_path: Path):
    """Handed in, not yet taken, nothing saved: the run fails instead of completing without its changes."""
    bench = Bench(tmp_path)

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "r1 settled: " in view.new_text:
                return finish(outcome="failed").reply
            planned = '"fix":' in view.new_text
            return ReplySpec(text="Waiting.") if planned else reply(plan(task("fix")), *delegate("fix"))
        return reply(write("x.txt", "x\n"), call("submit", status="completed", summary="ok"))

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server)
        handed_in = next(one.seq for one in ended.events if isinstance(one.event, RunSubmitted))
        truncate(bench.path, handed_in + 1)
    shutil.rmtree(bench.work())
    with ScriptedServer(brain=brain) as server:
        resumed = await bench.resume(server)
    assert resumed.run("r1").status == "failed"
    assert "folder was lost" in resumed.run("r1").reason
    assert resumed.of(PatchMerged) == []


async def test_a_tree_that_is_too_large_to_be_saved_stops_nobody(bench: Bench):
    """Its steps stay unsaved, so that after a crash the Worker is told of them."""
    with ScriptedServer(brain=Model()) as server:
        ended = await bench.run(server, workspace__save="always", workspace__save_bytes=1)
    assert (ended.outcome, ended.of(RunTreeSaved)) == ("completed", [])


async def test_a_saved_patch_that_is_not_in_the_log_counts_as_lost(bench: Bench):
    """The last save of a run under way is damaged: the run begins from its base again and is told so."""
    with ScriptedServer(brain=Model()) as server:
        ended = await bench.run(server, workspace__save="always")
        saved = [one.seq for one in ended.events if isinstance(one.event, RunTreeSaved) and one.event.run == "r2"]
        ticket = str(next(e.patch for e in ended.of(RunTreeSaved) if e.run == "r2"))
    truncate(bench.path, saved[1])
    rewrite(bench.path, "run_tree_saved", ticket, "artifact:" + "0" * 16, number=1)
    shutil.rmtree(bench.work())
    git("checkout", "-q", "-f", "main", folder=bench.repository)
    git("clean", "-qfd", folder=bench.repository)
    with ScriptedServer(brain=Model()) as server:
        resumed = await bench.resume(server)
    (restored,) = resumed.of(RunTreeRestored)
    assert (restored.commit, restored.lost) == (resumed.run("r2").base, (1, 2))
    assert MISSING in resumed.told("r2", "message")[0]
    assert resumed.outcome == "completed"
