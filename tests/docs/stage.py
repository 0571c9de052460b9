"""Where the commands of the documentation are run: a home with sessions, files to name, and a scripted model."""

import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.harness import SECONDS, Done, Shell, call, finishing, make_shell
from tests.docs.pages import Command
from xnagent.cli.arguments import COMMANDS
from xnagent.core.forking import Cut, cut_at
from xnagent.store.reading import read_events
from xnagent.store.sessions import list_sessions, sessions_folder
from xnagent.testing.server import ScriptedServer

QUESTION = "which port"
"""An objective with these words ends with a question."""
FORK_POINT = 101
"""What the pages say; the nearest place before it that the demo's log has is taken."""
KEYS = ("ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY", "MY_KEY", "OPENAI_API_KEY")
MODULES = ", ".join(command.module for command in COMMANDS.values())
DRIVER = f"""
import json, os, sys
from xnagent.cli.main import run
import {MODULES}
for line in sys.stdin:
    argv, variables, out, err = json.loads(line)
    child = os.fork()
    if child == 0:
        os.environ.update(variables)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        code = 99
        try:
            code = run(argv)
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
SCRIPT = {
    "planner": [
        {**call("finish", outcome="blocked", summary="A port is needed.", question="Which?"), "when": QUESTION},
        {**finishing()["planner"][0], "times": 0},
    ]
}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A shell in whose home the demo's session, a fork of it and a session with a question are kept."""

    shell: Shell
    driver: "subprocess.Popen[str]"
    words: Mapping[str, str]
    """What stands in a command for what is put there; longer ones first."""
    asking: str
    """A session that can be resumed."""

    def filled(self, text: str) -> str:
        """The command with everything in its place."""
        words = {**self.words, "SESSION": self.asking} if {"--message", "--max-usd"} & set(text.split()) else self.words
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    def run(self, command: Command, variables: Mapping[str, str]) -> Done:
        """The command to its end: in a fork of a process that has loaded everything, or by a real shell."""
        words = shlex.split(self.filled(command.text))
        named = dict(variables)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            named[name] = value
        target = Path(words[-1]) if words[-2:-1] == [">"] else None
        if words[0] != "xnagent" or {"|", "&&", ";"} & set(words):
            return self._by_a_shell(self.filled(command.text), named)
        return self._by_a_fork(words[1:-2] if target else words[1:], named, target=target)

    def _by_a_fork(self, argv: list[str], variables: Mapping[str, str], *, target: Path | None) -> Done:
        assert self.driver.stdin is not None
        assert self.driver.stdout is not None
        out = self.shell.repository / target if target else self.shell.folder / "out"
        err = self.shell.folder / "err"
        self.driver.stdin.write(json.dumps([argv, dict(variables), str(out), str(err)]) + "\n")
        self.driver.stdin.flush()
        code = int(self.driver.stdout.readline())
        return Done(code=code, out=out.read_text(errors="replace"), err=err.read_text(errors="replace"))

    def _by_a_shell(self, text: str, variables: Mapping[str, str]) -> Done:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.shell.repository,
            env={**self.shell.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Done(code=done.returncode, out=done.stdout, err=done.stderr)

    def until_ready(self, command: Command) -> Done:
        """A command that goes on until it is interrupted: it is, after its first line."""
        argv = shlex.split(self.filled(command.text))[1:]
        with self.shell.started(*argv, "--port", "0") as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest, err = process.communicate(timeout=SECONDS)
        return Done(code=process.returncode, out=(first + rest).decode(), err=err.decode())


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """A stage with everything that the pages name."""
    shell = make_shell(folder)
    programs = _programs(folder / "bin")
    variables = dict.fromkeys(KEYS, "key-of-nobody")
    shell = shell.with_variables(PATH=f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}", **variables)
    with ScriptedServer(SCRIPT, strict=False) as server, _driver(shell) as driver:
        _configure(folder, server.base_url)
        _made(shell.run("demo", "--home", str(shell.home), "-q"))
        (demo,) = list_sessions(sessions_folder(shell.home))
        cut = _cut(demo.path)
        fork = _made(shell.run("fork", str(demo.session), "--at", str(cut))).out.split()[0]
        asking = json.loads(shell.run("run", QUESTION, "--output", "json").out)["session"]
        _files(shell, str(demo.session))
        words = {
            "SESSION…": str(demo.session),
            "SESSION": str(demo.session),
            "OTHER": fork,
            f"--at {FORK_POINT}": f"--at {cut}",
            "https://api.anthropic.com": server.base_url,
            "https://…": server.base_url,
            "http://127.0.0.1:8080/v1": server.base_url,
            "…": "objective",
            " URL": f" {server.base_url}",
            "--model NAME": "--model mine",
            "DIR": "elsewhere",
        }
        yield Stage(shell=shell, driver=driver, words=words, asking=asking)


def _made(done: Done) -> Done:
    assert done.code == 0, done.err
    return done


@contextmanager
def _driver(shell: Shell) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        cwd=shell.repository,
        env=shell.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate(timeout=SECONDS)


def _programs(folder: Path) -> Path:
    folder.mkdir()
    program = folder / "xnagent"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m xnagent "$@"\n')
    program.chmod(0o755)
    return folder


def _configure(folder: Path, base_url: str) -> None:
    """The user's own settings: every model is the scripted one, whatever its name."""
    config = folder / ".config" / "xnagent" / "config.toml"
    config.parent.mkdir(parents=True)
    roles = "".join(
        f'[{role}.model]\nname = "deepseek-flash"\nbase_url = "{base_url}"\n' for role in ("planner", "worker")
    )
    config.write_text(f'[sandbox]\nmode = "auto"\n{roles}')


def _cut(path: Path) -> int:
    found = cut_at(tuple(read_events(path)), FORK_POINT)
    if isinstance(found, Cut):
        return FORK_POINT
    assert found.before is not None
    return found.before


def _files(shell: Shell, session: str) -> None:
    """Jobs, instances, recordings, and tests that pass."""
    here = shell.repository
    (here / "tests").mkdir()
    (here / "tests" / "test_parser.py").write_text("def test_parser():\n    pass\n")
    shell.git("add", ".")
    shell.git("commit", "-q", "-m", "add tests")
    commit = shell.git("rev-parse", "HEAD").strip()
    shell.git("clone", "-q", ".", "clones/OWNER__NAME")
    instance = {"instance_id": "OWNER__NAME-1", "repo": "OWNER/NAME", "base_commit": commit, "problem_statement": "x"}
    (here / "instances.jsonl").write_text(json.dumps(instance) + "\n")
    (here / "JOBS.jsonl").write_text(json.dumps({"id": "one", "objective": "do it"}) + "\n")
    (here / "folder").mkdir()
    (here / "elsewhere").mkdir()
    _made(shell.run("export", session, "--format", "atif", "-o", "trajectory.json"))
    recorded = {"id": "one", "messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}
    for name in ("runs.jsonl.gz", "folder/runs.jsonl.gz"):
        (here / name).write_bytes(gzip.compress(json.dumps(recorded).encode()))
