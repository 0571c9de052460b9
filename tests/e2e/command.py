"""`python -m xnagent …` as a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.e2e.bench import Bench
from xnagent.testing.server import ScriptedServer

ROOT = Path(__file__).parents[2]
QUICK = {
    "retry.first_wait_seconds": "0.01",
    "retry.max_wait_seconds": "0.05",
    "retry.max_attempts": "2",
    "limits.deadline_seconds": "55",
    "prefix": "strict",
    "sandbox.mode": "off",
}


def environment(bench: Bench) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith(("COVERAGE", "LANG", "LC_"))}
    return {**kept, "PATH": os.environ["PATH"], "HOME": str(bench.folder), "PYTHONPATH": str(ROOT)}


def run_line(bench: Bench, server: ScriptedServer, *more: str, settings: Mapping[str, Any] | None = None) -> list[str]:
    """The command line of a new session."""
    chosen = {**QUICK, **(settings or {})}
    options = [word for key, value in chosen.items() for word in ("-s", f"{key}={value}")]
    place = ["-C", str(bench.repository), "--home", str(bench.host.home)]
    model = ["--model", "m", "--base-url", server.base_url]
    return [sys.executable, "-m", "xnagent", "run", "Make it so.", *place, *model, *options, *more]


def resume_line(bench: Bench, *more: str) -> list[str]:
    """The command line that takes the one session up again."""
    return [sys.executable, "-m", "xnagent", "resume", session_of(bench), "--home", str(bench.host.home), *more]


def session_of(bench: Bench) -> str:
    """The id of the only session."""
    return next((bench.host.home / "sessions").glob("*.db")).stem


def begin(bench: Bench, line: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    """Start it; the caller ends it."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(line, env=environment(bench), **{**quiet, **streams})


def finished(process: subprocess.Popen[bytes], *, limit_seconds: float = 50) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; killed when it takes too long."""
    try:
        out, err = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"it did not end within {limit_seconds} s:\n{err.decode()}") from None
    return process.returncode, out.decode("utf-8"), err.decode("utf-8", "replace")


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], *, limit_seconds: float = 40) -> None:
    """Poll; an error if the process ended before."""
    deadline = time.monotonic() + limit_seconds
    while not condition():
        assert process.poll() is None, finished(process)
        assert time.monotonic() < deadline
        time.sleep(0.01)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL, and wait."""
    with suppress(ProcessLookupError):
        process.kill()
    process.communicate()


def records(out: str) -> list[dict[str, Any]]:
    """The lines of a JSON or JSON Lines output."""
    return [json.loads(line) for line in out.splitlines()]
