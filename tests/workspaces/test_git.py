"""Running git: bounded, with an environment of ours, and clear about what is wrong."""

import os
import time
from pathlib import Path

import anyio
import pytest

from xnagent.errors import UsageError, WorkspaceError
from xnagent.workspaces.git import Git, few, git_version, require_git, shown

ENVIRON = {"PATH": os.environ["PATH"]}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def fake_git(tmp_path):
    """A PATH whose git is this script."""

    def make(script):
        program = tmp_path / "bin/git"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return {"PATH": f"{program.parent}:{os.environ['PATH']}"}

    return make


async def test_the_version(fake_git):
    assert (await git_version(ENVIRON))[0] == 2
    assert await git_version({"PATH": "/nonexistent"}) is None
    assert await git_version(fake_git("echo git version 2.43.0.windows.1")) == (2, 43, 0, 1)


async def test_git_that_is_missing_or_too_old(fake_git):
    with pytest.raises(UsageError, match=r"install git 2\.38 or newer"):
        await require_git({"PATH": "/nonexistent"})
    with pytest.raises(UsageError, match=r"git 2\.37\.9 is too old; install git 2\.38 or newer"):
        await require_git(fake_git("echo git version 2.37.9"))
    with pytest.raises(UsageError, match="not found"):
        await Git(environ={"PATH": "/nonexistent"}).run("status")


async def test_an_error_is_gits_own_line(tmp_path):
    with pytest.raises(WorkspaceError, match="git rev-parse: fatal: not a git repository"):
        await Git(environ=ENVIRON, git_dir=tmp_path).run("rev-parse", "HEAD")
    with pytest.raises(WorkspaceError, match="cannot run in"):
        await Git(environ=ENVIRON, git_dir=tmp_path / "gone").run("rev-parse", "HEAD")


async def test_the_environment_is_ours(fake_git):
    environ = {**fake_git("env"), "GIT_DIR": "/x", "GIT_EXTERNAL_DIFF": "evil", "API_KEY": "k", "HOME": "/home/user"}
    lines = set((await Git(environ=environ).text("x")).splitlines())
    assert not [line for line in lines if line.startswith(("GIT_DIR", "GIT_EXTERNAL", "API_KEY", "HOME"))]
    assert {"GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C"} <= lines


async def test_output_is_bounded(fake_git):
    git = Git(environ=fake_git("yes"))
    answer = await git.run("x", can_be_cut=True, limit_bytes=100_000)
    assert answer.is_cut
    assert len(answer.output) == 100_000
    with pytest.raises(WorkspaceError, match="larger than 100000 bytes"):
        await git.run("x", limit_bytes=100_000)


async def test_input_that_is_not_read_does_not_hang(fake_git):
    assert (await Git(environ=fake_git("exit 0")).run("x", stdin=b"y" * 1_000_000)).code == 0


async def test_cancelling_ends_git(fake_git, tmp_path):
    git = Git(environ=fake_git(f"echo $$ > {tmp_path}/pid; exec sleep 300"))
    began = time.monotonic()
    with anyio.move_on_after(0.5):
        await git.run("x")
    assert time.monotonic() - began < 5
    assert not is_running((tmp_path / "pid").read_text())


def is_running(number):
    return Path(f"/proc/{number.strip()}/exe").exists()


def test_names_for_people():
    assert shown(os.fsdecode(b"caf\xe9")) == "caf\ufffd"
    assert few(tuple("abc")) == "a, b, c"
    assert few(tuple("abcdefghijkl")).endswith("j and 2 more")
