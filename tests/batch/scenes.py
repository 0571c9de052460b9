"""Batches as scripts call them: a file of jobs, a file of results, a scripted model."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from tests.cli.harness import SECONDS, Shell, call, model

FINISH = call("finish", outcome="completed", summary="done")
FAIL = call("finish", outcome="failed", summary="no")
HANG = {"fault": {"hang": "start"}, "times": 0}
OK = {"planner": [{**FINISH, "times": 0}]}


def write_jobs(shell: Shell, *jobs: dict[str, object]) -> None:
    (shell.folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))


def results(shell: Shell) -> list[dict[str, object]]:
    path = shell.folder / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def batch(shell: Shell, base_url: str, *more: str) -> list[str]:
    files = (str(shell.folder / "jobs.jsonl"), "--out", str(shell.folder / "results.jsonl"))
    return ["batch", *files, *model(base_url), "--no-apply", *more]


def script(**sections: dict[str, object]) -> dict[str, object]:
    """Planner rules by a word of the objective."""
    return {"planner": [{"match": match, "steps": [step]} for match, step in sections.items()]}


def sessions(shell: Shell) -> list[str]:
    return sorted(path.stem for path in (shell.home / "sessions").glob("*.db"))


def wait_for(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def children_of(number: int) -> list[int]:
    """The processes that a process began."""
    try:
        return [
            int(child)
            for place in Path(f"/proc/{number}/task").glob("*/children")
            for child in place.read_text().split()
        ]
    except OSError:
        return []
