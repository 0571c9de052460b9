"""Commands as process groups: they end, leave nothing behind, and get nothing they should not have."""

import json
import os
import resource
import threading
import time
from pathlib import Path

import anyio
import pytest

from xnagent.errors import WorkspaceError
from xnagent.ports import Command
from xnagent.workspaces.processes import Family, members
from xnagent.workspaces.shell import ProcessShell
from xnagent.workspaces.spool import spool_at


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def is_alive(number):
    try:
        return Path(f"/proc/{int(number)}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, ValueError):
        return False


def count_descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def nothing_is_left(workspace, spool):
    mark = spool_at(workspace.scratch, spool).mark
    return not members(Family(mark=mark)) and not members(Family(mark=f"{mark}-output"))


async def test_output_is_merged_in_order_and_the_exit_code_kept(run, workspace):
    finished, output = await run("echo out; echo err >&2; echo again > /dev/stderr; pwd; exit 3")
    assert output.decode() == f"out\nerr\nagain\n{workspace.root}\n"
    assert (finished.exit_code, finished.ending, finished.omitted_bytes) == (3, "exit", 0)
    assert finished.output == workspace.scratch / "c1.out"
    assert finished.output.stat().st_mode & 0o777 == 0o600
    assert 0 < finished.duration_seconds < 10


@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & echo done",
        "(while :; do echo tick; sleep 0.1; done) & sleep 0.3; echo done",
        "nohup sleep 301 > /dev/null 2>&1 & sleep 0.1; echo done",
        "setsid -f sleep 302; echo done",
        "setsid -f bash -c 'trap \"\" TERM HUP; sleep 303; sleep 1'; echo done",
        "(sleep 304 &) ; disown -a; echo done",
    ],
)
async def test_B033_what_is_left_in_the_background_is_stopped_and_said(run, workspace, command):
    began = time.monotonic()
    finished, output = await run(command, timeout_seconds=60)
    assert time.monotonic() - began < 4
    assert (finished.exit_code, finished.ending) == (0, "left-background")
    assert b"done\n" in output
    assert nothing_is_left(workspace, "c1")


async def test_B033_what_is_just_ending_is_not_background_work(run):
    finished, output = await run("echo x > >(sleep 0.05; cat); true")
    assert finished.ending == "exit"
    assert output == b"x\n"


STUBBORN = 'trap "" TERM INT HUP; echo before; sleep 300 & echo $! > pids; trap "" TERM; wait'


async def test_B034_a_time_limit_ends_the_whole_tree(run, workspace):
    began = time.monotonic()
    finished, output = await run(f"bash -c '{STUBBORN}'", timeout_seconds=1)
    assert 1 <= time.monotonic() - began < 5
    assert (finished.exit_code, finished.ending) == (None, "timeout")
    assert output == b"before\n"
    assert not is_alive((workspace.root / "pids").read_text())
    assert nothing_is_left(workspace, "c1")


async def test_B034_daemons_that_left_the_group_are_found(run, workspace):
    command = "setsid bash -c 'echo $$ > one; setsid sleep 300 & echo $! > two; wait' & env -i setsid sleep 301 & wait"
    finished, _ = await run(command, timeout_seconds=0.5)
    assert finished.ending == "timeout"
    assert not any(is_alive((workspace.root / name).read_text()) for name in ("one", "two"))


async def test_B034_a_well_behaved_command_may_clean_up(run, workspace):
    finished, _ = await run("trap 'echo bye > said; exit 0' TERM; sleep 300 & wait", timeout_seconds=0.5)
    assert finished.ending == "timeout"
    assert (workspace.root / "said").read_text() == "bye\n"


@pytest.mark.parametrize("command", ["sleep 300", f"bash -c '{STUBBORN}'"])
async def test_B049_B060_cancelling_ends_the_tree_first(run, workspace, command):
    began = time.monotonic()
    with anyio.move_on_after(0.5) as scope:
        await run(command, timeout_seconds=60)
    assert scope.cancelled_caught
    assert time.monotonic() - began < 5
    assert nothing_is_left(workspace, "c1")
    recovered = await ProcessShell({"PATH": os.environ["PATH"]}).recover(workspace, "c1")
    assert (recovered.exit_code, recovered.ending) == (None, "signal")


async def test_B035_a_prompt_is_answered_with_nothing(run):
    finished, output = await run('read -p "y/N " a; echo "got=[$a] rc=$?"')
    assert output == b"got=[] rc=1\n"
    heredoc = "cat <<'EOF' > f\nhello\nEOF\npython3 -c 'print(repr(__import__(\"sys\").stdin.read()))'; cat f"
    finished, output = await run(heredoc)
    assert output == b"''\nhello\n"
    finished, output = await run("git clone https://localhost:1/private.git")
    assert finished.exit_code not in (0, None)


@pytest.mark.parametrize("text", [r"head\xff\xf0tail\n", r"a\x00b\n", r"\xe9t\xe9\n"])
async def test_B036_bytes_are_kept_as_they_are(run, text):
    _, output = await run(f"printf '{text}'")
    assert output == text.encode().decode("unicode_escape").encode("latin-1")


async def test_B037_very_much_output(run, workspace):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    finished, output = await run("yes | head -c 200000000; echo; echo the end", timeout_seconds=60)
    assert (finished.exit_code, finished.ending) == (0, "exit")
    assert finished.duration_seconds < 20
    assert output.startswith(b"y\ny\n")
    assert output.endswith(b"\nthe end\n")
    marker = f"\n[… {finished.omitted_bytes} bytes omitted …]\n".encode()
    assert len(output) - len(marker) + finished.omitted_bytes == 200_000_000 + len("\nthe end\n")
    assert len(output) < 17 * 1024 * 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    assert sorted(path.name for path in workspace.scratch.glob("c1.*")) == ["c1.out", "c1.rc", "c1.run"]


async def test_B037_output_without_end(run):
    finished, output = await run("yes", timeout_seconds=0.5)
    assert finished.ending == "timeout"
    assert len(output) < 17 * 1024 * 1024


async def test_B038_a_folder_that_vanishes_does_not_matter_to_the_next_command(run, workspace):
    await run("mkdir -p d && cd d && pwd")
    await run(f'rm -rf "{workspace.root}/d"')
    _, output = await run("echo alive; pwd")
    assert output.decode() == f"alive\n{workspace.root}\n"
    assert (await run("cd d; rmdir .; rm -rf ../d; pwd"))[0].exit_code is not None


async def test_B038_a_workspace_that_is_gone_is_an_error(run, workspace):
    workspace.root.rmdir()
    with pytest.raises(WorkspaceError, match="is gone"):
        await run("echo alive")


async def test_B039_neither_folder_nor_environment_last(run, workspace):
    (workspace.root / "sub").mkdir()
    await run("cd sub && export FOO=1 && f() { echo hi; } && pwd")
    _, output = await run('pwd; echo "FOO=[$FOO]"; type f')
    assert output.decode().startswith(f"{workspace.root}\nFOO=[]\n")
    assert b"hi" not in output


SECRETS = {
    "OPENAI_API_KEY": "sk-test-1",
    "ANTHROPIC_API_KEY": "sk-test-2",
    "XNAGENT_API_KEY": "sk-test-3",
    "AWS_SECRET_ACCESS_KEY": "secret-t4",
    "GH_TOKEN": "secret-t5",
    "MY_SERVICE_PASSWORD": "secret-t6",
    "BASH_ENV": "/tmp/secret-t7",
    "LD_PRELOAD": "secret-t8",
    "GIT_CONFIG_PARAMETERS": "secret-t9",
}


async def test_B074_no_secret_reaches_a_command(run, workspace):
    environ = {**SECRETS, "PATH": os.environ["PATH"], "HOME": "/home/user", "LANG": "de_DE.UTF-8", "USER": "me"}
    command = (
        "env; printenv XNAGENT_API_KEY; (env > bg) & wait; cat bg; tr '\\0' '\\n' < /proc/self/environ;"
        " tr '\\0' '\\n' < /proc/$PPID/environ; git config --list; env -0 | cat"
    )
    _, output = await run(command, environ=environ)
    assert not [value for value in SECRETS.values() if value.encode() in output]
    lines = output.decode().split("\n")
    assert f"PATH={os.environ['PATH']}" in lines
    assert f"HOME={workspace.scratch}/home" in lines
    assert {"LANG=C.UTF-8", "USER=me", "PAGER=cat", "GIT_TERMINAL_PROMPT=0", "NO_COLOR=1", "CI=1"} <= set(lines)


async def test_B074_a_variable_is_passed_on_purpose(run):
    environ = {**SECRETS, "PATH": os.environ["PATH"], "HOME": "/home/user"}
    _, output = await run(
        "echo $GH_TOKEN $HOME $OPENAI_API_KEY", environ=environ, passed=("GH_TOKEN", "HOME", "NOT_SET")
    )
    assert output == b"secret-t5 /home/user\n"


async def test_the_home_and_temporary_folders_are_private_and_there(run, workspace):
    _, output = await run("echo x > ~/kept; mktemp; cd; pwd")
    assert output.decode().splitlines()[-1] == str(workspace.scratch / "home")
    assert output.startswith(str(workspace.scratch / "tmp").encode())
    assert (await run("cat ~/kept"))[1] == b"x\n"


async def test_git_does_not_walk_up_out_of_the_workspace(run, workspace):
    (workspace.root.parent / ".git").mkdir()
    finished, output = await run("git init -q ..; git rev-parse --show-toplevel")
    assert finished.exit_code == 128
    assert b"not a git repository" in output


async def test_a_command_killed_by_a_signal(run):
    assert (await run("kill -9 $$"))[0].exit_code == 137
    finished, _ = await run("kill -9 $PPID; sleep 5")
    assert (finished.exit_code, finished.ending) == (None, "signal")
    finished, output = await run("yes | head -1; false | true; echo $?")
    assert output == b"y\n0\n"


async def test_a_command_longer_than_an_argument_may_be(run):
    finished, output = await run(f"x='{'y' * 300_000}'; echo ${{#x}}")
    assert (finished.exit_code, output) == (0, b"300000\n")


async def test_commands_and_spools_that_cannot_be(run, workspace):
    with pytest.raises(WorkspaceError, match="NUL"):
        await run("echo a\0b")
    shell = ProcessShell({"PATH": os.environ["PATH"]})
    for name in ("", "../x", "a/b", ".hidden"):
        with pytest.raises(WorkspaceError, match="cannot name a spool"):
            await shell.run(workspace, Command(command="true", timeout_seconds=1, spool=name))
    with pytest.raises(WorkspaceError, match="install bash"):
        await run("true", environ={"PATH": "/nonexistent"})


async def test_a_plain_sh_is_enough(run, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "head", "tail", "dd", "mv", "sleep"):
        found = next(p for p in (Path("/bin") / name, Path("/usr/bin") / name) if p.exists())
        (folder / name).symlink_to(found.resolve())
    finished, output = await run("echo hi; exit 4", environ={"PATH": str(folder)})
    assert (finished.exit_code, finished.ending, output) == (4, "exit", b"hi\n")


async def test_many_at_once_do_not_disturb_each_other(run):
    results = {}

    async def one(number):
        results[number] = await run(f"sleep 0.2; echo {number}; exit {number}")

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(one, number)
    assert {number: (done.exit_code, output) for number, (done, output) in results.items()} == {
        number: (number, f"{number}\n".encode()) for number in range(8)
    }


async def test_a_run_leaves_no_descriptor_and_no_thread(run):
    await run("true")
    before = count_descriptors()
    for _ in range(5):
        await run("echo x")
    assert count_descriptors() <= before + 1
    assert threading.active_count() < 20


async def test_the_output_can_be_stored(run):
    _, output = await run("head -c 4096 /dev/urandom")
    assert json.dumps(output.decode("utf-8", "replace")).encode()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_broken_off_commands_are_waited_for_by_nobody_but_the_event_loop(workspace, caplog):
    """asyncio said "Unknown child process pid" when something else had taken the exit status."""
    shell = ProcessShell(os.environ)
    for number in range(6):
        with anyio.move_on_after(0.1):
            await shell.run(workspace, Command(command="sleep 300", timeout_seconds=60, spool=f"c{number}"))
    assert [record.message for record in caplog.records if record.name == "asyncio" and record.levelno > 20] == []
