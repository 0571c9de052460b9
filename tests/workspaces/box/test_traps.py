"""What is easy to get wrong with a box, each kind of mistake shown not to be made."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.workspaces.box.conftest import ENVIRON
from xnagent.errors import WorkspaceError
from xnagent.workspaces.box.ladder import first_that_works, make_box, owner_for
from xnagent.workspaces.box.pins import pin, unpin
from xnagent.workspaces.box.sealing import Grounds, Rules
from xnagent.workspaces.box.visible import lenders, sight
from xnagent.workspaces.enclosure import enclosed
from xnagent.workspaces.processes import Family, members
from xnagent.workspaces.shell import ProcessShell
from xnagent.workspaces.spool import spool_at

SECRETS = {"OPENAI_API_KEY": "sk-test-1", "GH_TOKEN": "secret-t5", "BASH_ENV": "secret-t7", "LD_PRELOAD": "secret-t8"}
ACCOUNTS = Path("/etc/passwd")
ROOT = Path(__file__).parents[3]


def owner_of(path):
    return path.lstat().st_uid


def git(*arguments):
    line = ["git", "-c", "user.name=a", "-c", "user.email=b", *map(str, arguments)]
    subprocess.run(line, check=True, capture_output=True)


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


async def test_output_exit_code_folder_and_environment_are_as_without_a_box(ground):
    finished, output = await ground.run(
        "echo out; echo err >&2; echo again > /dev/stderr; echo more >> /dev/stdout; pwd; echo $HOME $TMPDIR; exit 3"
    )
    private = f"{ground.tree.scratch}/home {ground.tree.scratch}/tmp"
    assert output == f"out\nerr\nagain\nmore\n{ground.tree.root}\n{private}\n"
    assert (finished.exit_code, finished.ending) == (3, "exit")
    finished, output = await ground.run("yes | head -1; kill -9 $$")
    assert (finished.exit_code, output) == (137, "y\n")


async def test_what_was_written_lasts_to_the_next_command(ground):
    await ground.run("mkdir d; echo 1 > d/f; echo 2 > ~/g; echo 3 > $TMPDIR/h")
    assert (await ground.run("cat d/f ~/g $TMPDIR/h; rm -r d"))[1] == "1\n2\n3\n"
    assert not (ground.tree.root / "d").exists()


async def test_a_long_command_reaches_the_shell(ground):
    finished, output = await ground.run(f"x='{'y' * 300_000}'; echo ${{#x}}")
    assert (finished.exit_code, output) == (0, "300000\n")


async def test_A6_1_no_capability_is_left(ground):
    held = "Cap" if os.geteuid() == 0 else "Cap(Inh|Prm|Eff|Amb)"
    _, output = await ground.run(f"grep -E '{held}' /proc/self/status")
    assert {line.split()[1].strip("0") for line in output.splitlines()} == {""}


async def test_A6_3_B074_no_secret_is_in_any_environment_that_a_command_can_read(ground):
    ground.environ = {**SECRETS, **ENVIRON}
    command = "env; for file in /proc/[0-9]*/environ; do tr '\\0' '\\n' < $file; done 2> /dev/null; cat /proc/1/cmdline"
    _, output = await ground.run(command)
    assert "GIT_TERMINAL_PROMPT=0" in output
    assert not [value for value in SECRETS.values() if value in output]


async def test_A6_5_the_workspace_belongs_to_whoever_commands_run_as(ground):
    (ground.tree.root / "old").write_text("1")
    (ground.tree.root / "link").symlink_to(ACCOUNTS)
    before = owner_of(ACCOUNTS)
    finished, _ = await ground.run("echo 2 > old; echo new > new; chmod +x new; mkdir d; touch d/x")
    assert finished.exit_code == 0
    owner = owner_for(ground.kind, "test")
    expected = os.geteuid() if owner is None else owner
    paths = [ground.tree.root, *ground.tree.root.rglob("*")]
    assert {owner_of(path) for path in paths} == {expected}
    assert owner_of(ACCOUNTS) == before


async def test_A6_5_a_file_with_a_second_name_elsewhere_is_not_given_away(ground, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("x")
    os.link(elsewhere, ground.tree.root / "name")
    await ground.run("true")
    assert owner_of(elsewhere) == os.geteuid()


async def test_A6_6_a_box_outlives_the_thread_that_started_it(ground):
    ended = []
    box = ground.shell()._box
    spool = spool_at(ground.tree.scratch, "c1")
    async with enclosed(
        box, ground.tree, line=("sh", "-c", "sleep 0.5; exit 7"), spool=spool, shell="/bin/sh"
    ) as start:

        def begin():
            streams = {"stdin": start.stdin, "stdout": subprocess.DEVNULL, "pass_fds": start.descriptors}
            ended.append(subprocess.Popen(start.line, start_new_session=True, cwd=ground.tree.root, **streams))

        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
        assert await anyio.to_thread.run_sync(ended[0].wait) == 7


@pytest.mark.parametrize("has_hooks", [True, False])
async def test_A6_7_covers_of_missing_files_go_away_again(ground, has_hooks):
    root = ground.tree.root
    git("init", "-q", "--template=", root)
    if has_hooks:
        (root / ".git" / "hooks").mkdir()
    before = sorted(path.name for path in (root / ".git").iterdir())
    finished, output = await ground.run(
        "git status && echo x > a && git add a && git -c user.name=a -c user.email=b commit -qm x"
    )
    assert finished.exit_code == 0, output
    after = sorted(path.name for path in (root / ".git").iterdir())
    assert set(after) - set(before) <= {"COMMIT_EDITMSG", "index", "logs"}


def test_A6_7_nothing_is_made_or_covered_through_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    git_dir = tmp_path / "tree" / ".git"
    git_dir.mkdir(parents=True)
    for name in ("info", "hooks", "config"):
        (git_dir / name).symlink_to(outside)
    pins = pin(tmp_path / "tree")
    assert pins.fixed == (git_dir / "config.worktree",)
    unpin(pins)
    assert list(outside.iterdir()) == []
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".git").symlink_to(git_dir)
    assert pin(tmp_path / "other").git_dir is None


async def test_the_objects_that_a_tree_borrows_can_be_read_and_a_list_by_the_worker_shows_nothing(ground, tmp_path):
    source = tmp_path / "source"
    git("init", "-q", source)
    (source / "a").write_text("1\n")
    git("-C", source, "add", "a")
    git("-C", source, "commit", "-qm", "x")
    ground.tree.root.rmdir()
    git("clone", "-q", "--shared", source, ground.tree.root)
    shell = ground.shell(objects=(source / ".git" / "objects",))
    finished, output = await ground.run("git log --oneline | wc -l; git status --short", shell=shell)
    assert (finished.exit_code, output.split()) == (0, ["1"])
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("sk")
    lent = ground.tree.root / ".git" / "objects" / "info" / "alternates"
    lent.write_text(f"{lent.read_text()}{tmp_path}/secret\n")
    assert "sk" not in (await ground.run(f"cat {tmp_path}/secret/key", shell=shell))[1]
    assert lenders(source / ".git" / "objects") == (source / ".git" / "objects",)


async def test_a_users_skills_can_be_read_and_run_and_not_changed_and_may_be_gone(ground, tmp_path):
    skill = tmp_path / "skills" / "tidy"
    skill.mkdir(parents=True)
    (skill / "run.sh").write_text("echo tidied $(cat $(dirname $0)/list)\n")
    (skill / "list").write_text("all")
    (tmp_path / "skills" / "other").write_text("not shown")
    shell = ground.shell(skills=(skill, tmp_path / "gone"))
    command = f"sh {skill}/run.sh; cat {skill}/../other; echo x > {skill}/list; rm -f {skill}/list; touch {skill}/new"
    _, output = await ground.run(f"({command}) 2> /dev/null", shell=shell)
    assert output == "tidied all\n"
    assert sorted(path.name for path in skill.iterdir()) == ["list", "run.sh"]
    assert (skill / "list").read_text() == "all"


async def test_B033_what_is_left_goes_with_the_box_and_is_said(ground):
    finished, output = await ground.run("setsid sleep 300 & env -i setsid -f sleep 301; echo done")
    assert (finished.exit_code, finished.ending, output) == (0, "left-background", "done\n")
    finished, output = await ground.run("echo x > >(sleep 0.05; cat); true")
    assert (finished.ending, output) == ("exit", "x\n")


async def test_B034_a_command_may_clean_up_when_its_time_is_over(ground):
    command = "trap 'echo bye > said; exit 0' TERM; touch ready; sleep 300 & wait"
    finished, _ = await ground.run(command, timeout_seconds=3)
    assert finished.ending == "timeout"
    assert (ground.tree.root / "said").read_text() == "bye\n"
    finished, _ = await ground.run("trap '' TERM INT; setsid sleep 300 & sleep 300", timeout_seconds=0.5)
    assert finished.ending == "timeout"
    assert members(Family(mark=spool_at(ground.tree.scratch, "c2").mark)) == frozenset()


async def test_B049_cancelling_ends_the_box(ground):
    with anyio.move_on_after(0.5) as scope:
        await ground.run("trap '' TERM; sleep 300 & setsid sleep 300")
    assert scope.cancelled_caught
    assert members(Family(mark=spool_at(ground.tree.scratch, "c1").mark)) == frozenset()


ORCHESTRATOR = """
import os, sys, anyio
from pathlib import Path
from tests.workspaces.box.conftest import Ground
ground = object.__new__(Ground)
from xnagent.workspaces.folders import Tree
ground.tree, ground.kind, ground.count = Tree(root=Path(sys.argv[1]), scratch=Path(sys.argv[2])), sys.argv[3], 0
ground.environ = dict(PATH=os.environ["PATH"])
anyio.run(ground.run, "echo one; (setsid sleep 300 &) ; touch ready; sleep 300", 60)
"""


def run_and_kill(line, ready):
    environ = {"PATH": ENVIRON["PATH"], "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(line, cwd=ROOT, env=environ) as process:
        wait_for(ready.exists)
        process.send_signal(signal.SIGKILL)


async def test_a_box_ends_with_the_orchestrator_and_the_outcome_is_unknown(ground):
    root, scratch = ground.tree.root, ground.tree.scratch
    line = [sys.executable, "-c", ORCHESTRATOR, str(root), str(scratch), ground.kind]
    await anyio.to_thread.run_sync(run_and_kill, line, root / "ready")
    family = Family(mark=spool_at(scratch, "c1").mark)
    await anyio.to_thread.run_sync(lambda: wait_for(lambda: not members(family)))
    finished = await ProcessShell(ENVIRON).recover(ground.tree, "c1")
    assert (finished.exit_code, finished.ending) == (None, "signal")
    assert finished.output.read_text() == "one\n"


async def test_a_box_that_cannot_be_made_is_an_error_and_not_a_result(ground):
    there = sight(ENVIRON, has_network=False)
    grounds = Grounds(sight=replace(there, folders=(*there.folders, Path("/nonexistent/x"))), rules=Rules())
    shell = ProcessShell(ENVIRON, box=make_box(ground.kind, grounds, environ=ENVIRON))
    if ground.kind == "landlock":
        assert (await ground.run("exit 5", shell=shell))[0].exit_code == 5
        return
    with pytest.raises(WorkspaceError, match=r"the box could not be made: bwrap: .*nonexistent"):
        await ground.run("exit 5", shell=shell)


def test_the_ladder_takes_the_first_that_works(kind):
    assert first_that_works(ENVIRON) is not None
    assert first_that_works({"PATH": "/nonexistent"}) in {"landlock", None}
