"""The command line as people and scripts call it: real processes, real streams, a scripted model."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
XNAGENT = (sys.executable, "-m", "xnagent")
SECONDS = 50
TESTED = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START", "COVERAGE_FILE")

DRIVER = """
import json, os, sys, tempfile
from xnagent.cli.main import run
import xnagent.cli.run, xnagent.cli.resume, xnagent.cli.batch, xnagent.cli.inspect, xnagent.cli.doctor
for line in sys.stdin:
    argv = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = 99
            try:
                code = run(argv)
            except SystemExit as exit:
                code = exit.code or 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        print(json.dumps([code, out.read().decode(), err.read().decode()]), flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a process ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """stdout, each line an object."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> dict[str, Any]:
        """The one object on stdout."""
        (record,) = self.lines
        return record


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A process that waits for command lines and runs each in a fork of itself."""

    process: subprocess.Popen[str]

    def many(self, *calls: Sequence[str]) -> list[Done]:
        """The command lines, one after the other."""
        return [self._one(call) for call in calls]

    def _one(self, call: Sequence[str]) -> Done:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(list(call)) + "\n")
        self.process.stdin.flush()
        code, out, err = json.loads(self.process.stdout.readline())
        return Done(code=code, out=out, err=err)


@dataclass(frozen=True, kw_only=True)
class Shell:
    """A clean environment with a home and a repository of its own."""

    folder: Path
    extra: Mapping[str, str]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def repository(self) -> Path:
        return self.folder / "repo"

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in TESTED if name in os.environ}
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XNAGENT_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            **kept,
            **self.extra,
        }

    def with_variables(self, **extra: str) -> "Shell":
        return Shell(folder=self.folder, extra={**self.extra, **extra})

    def run(self, *arguments: str, stdin: bytes | None = None) -> Done:
        """One process to its end."""
        done = subprocess.run(
            [*XNAGENT, *arguments],
            cwd=self.repository,
            env=self.environ,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return Done(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    def many(self, *calls: Sequence[str]) -> list[Done]:
        """Several command lines, each in a process of its own that is forked from one: quick."""
        done = subprocess.run(
            [sys.executable, "-c", DRIVER],
            cwd=self.repository,
            env=self.environ,
            input="".join(json.dumps(list(call)) + "\n" for call in calls).encode(),
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        parts = [json.loads(line) for line in done.stdout.splitlines()]
        return [Done(code=code, out=out, err=err) for code, out, err in parts]

    @contextmanager
    def prompt(self) -> Iterator["Prompt"]:
        """As `many`, one call after the other, as long as somebody asks."""
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            cwd=self.repository,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield Prompt(process=process)
        finally:
            process.communicate(timeout=SECONDS)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process that goes on beside the test, and is gone after it."""
        process = subprocess.Popen(
            [*XNAGENT, *arguments],
            cwd=self.repository,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=SECONDS)

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.repository, capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout


def make_shell(folder: Path) -> Shell:
    """A shell whose repository has one commit."""
    shell = Shell(folder=folder, extra={})
    shell.repository.mkdir(parents=True)
    shell.git("init", "-q", "-b", "main")
    (shell.repository / "cfg.py").write_text("a = 1\n")
    shell.git("add", ".")
    shell.git("commit", "-q", "-m", "begin")
    return shell


def call(name: str, **arguments: object) -> dict[str, object]:
    """One reply that is one tool call."""
    return {"calls": [{"name": name, "arguments": arguments}]}


def finishing(summary: str = "All done.", outcome: str = "completed", **more: object) -> dict[str, object]:
    """A script whose Planner finishes at once."""
    return {"planner": [call("finish", outcome=outcome, summary=summary, **more)]}


def working(checks: Sequence[str] = ("grep -q 2 cfg.py",), summary: str = "All done.") -> dict[str, object]:
    """A script with one task that changes one file."""
    return {
        "planner": [
            call("plan", tasks=[{"id": "one", "title": "One", "objective": "set a to 2", "checks": list(checks)}]),
            call("delegate", task="one"),
            {**call("finish", outcome="completed", summary=summary), "when": "settled"},
        ],
        "planner_wait": "Waiting.",
        "worker": [
            call("edit", path="cfg.py", old="a = 1", new="a = 2"),
            call("submit", status="completed", summary="did it"),
        ],
    }


def hanging() -> dict[str, object]:
    """A script whose model never answers."""
    return {"planner": [{"fault": {"hang": "start"}, "times": 0}]}


def model(base_url: str) -> tuple[str, ...]:
    """The options that lead to a scripted server."""
    return ("--model", "scripted", "--base-url", base_url)
