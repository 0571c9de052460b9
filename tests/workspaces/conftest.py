"""A user's repository on disk, a session beside it, and a workspace for commands."""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from xnagent.core.ids import SessionId
from xnagent.ports import Command
from xnagent.workspaces.folders import Tree
from xnagent.workspaces.repositories import SessionWorkspaces
from xnagent.workspaces.shell import ProcessShell

AT = "2026-11-30T12:00:00.000Z"
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@dataclass
class User:
    """Somebody's folder, and git as they would run it."""

    root: Path
    home: Path

    def git(self, *arguments, stdin=None, cwd=None):
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "u",
            "GIT_AUTHOR_EMAIL": "u@localhost",
            "GIT_COMMITTER_NAME": "u",
            "GIT_COMMITTER_EMAIL": "u@localhost",
            "GIT_AUTHOR_DATE": "@1700000000 +0000",
            "GIT_COMMITTER_DATE": "@1700000000 +0000",
        }
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.root, env=env, input=stdin, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def write(self, **files):
        """`a__b_txt` is a/b.txt."""
        for name, text in files.items():
            self.put(name.replace("__", "/").replace("_", "."), text)

    def put(self, path, content):
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, message="c"):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


def fingerprint(folder):
    """Path, kind, mode and content of everything in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = ("link", path.readlink().as_posix())
        elif path.is_file():
            found[name] = (oct(path.stat().st_mode), hashlib.sha256(path.read_bytes()).hexdigest())
        else:
            found[name] = ("folder", oct(path.stat().st_mode))
    return found


@pytest.fixture
def prints():
    return fingerprint


@pytest.fixture
def at():
    return AT


@pytest.fixture
def user(tmp_path):
    root, home = tmp_path.resolve() / "user", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    return User(root=root, home=home)


@pytest.fixture
def repo(user):
    """With one commit: a.txt, b.txt, d/c.txt, run.sh, a link, and an ignored file beside them."""
    user.git("init", "-q", "-b", "main")
    user.write(a_txt="a1\na2\na3\n", b_txt="b\n", d__c_txt="c\n", run_sh="#!/bin/sh\n")
    (user.root / "run.sh").chmod(0o755)
    (user.root / "link").symlink_to("a.txt")
    user.put(".gitignore", "*.log\nbuild/\n")
    user.commit("first")
    user.put("x.log", "ignored")
    return user


@pytest.fixture
def open_session(tmp_path, user):
    def build(repository=None, name="s-1", environ=None):
        return SessionWorkspaces(
            repository or user.root,
            tmp_path / "work" / name,
            session=SessionId(name),
            environ={**ENVIRON, "HOME": str(user.home), **(environ or {})},
        )

    return build


@pytest.fixture
def session(open_session):
    return open_session()


@pytest.fixture
def integration(tmp_path):
    """Git on the session's integration repository."""

    def run(*arguments, name="s-1"):
        folder = tmp_path / "work" / name / "integration.git"
        done = subprocess.run(["git", f"--git-dir={folder}", *arguments], capture_output=True, check=True)
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    return run


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path.resolve() / "ws"
    (folder / "tree").mkdir(parents=True)
    (folder / "scratch").mkdir()
    return Tree(root=folder / "tree", scratch=folder / "scratch")


@pytest.fixture
def run(workspace):
    """Run one command and return how it ended, with its output."""
    count = iter(range(1, 1000))

    async def start(command, timeout_seconds=20, environ=None, passed=()):
        shell = ProcessShell(environ or {**ENVIRON}, passed=passed)
        spool = f"c{next(count)}"
        finished = await shell.run(workspace, Command(command=command, timeout_seconds=timeout_seconds, spool=spool))
        return finished, finished.output.read_bytes()

    return start
