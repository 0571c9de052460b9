"""Every end of a session, whatever stdin is and stdout carries: its code, one last record, in time (B057, B059).

The suite runs a covering array (each outcome with each stdin and each format, each stdin with each format); all 108
combinations are run by `scripts/outcome-matrix`.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import Bench, call, finish, on, rewrite, start, submit, task
from tests.e2e.command import begin, finished, records, resume_line, run_line, session_of, wait_until
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer

CODES = {
    "completed": 0,
    "usage": 2,
    "failed": 3,
    "partial": 4,
    "blocked": 5,
    "limit": 6,
    "deadline": 7,
    "provider-retry": 8,
    "provider-final": 9,
    "prefix": 10,
    "SIGINT": 130,
    "SIGTERM": 143,
}
STDINS = ("null", "closed-pipe", "silent-pipe")
FORMATS = ("text", "json", "jsonl")
NAMED = {
    "usage": "error",
    "provider-retry": "provider_error",
    "provider-final": "provider_error",
    "prefix": "prefix_broken",
}
NAMED |= {"SIGINT": "interrupted", "SIGTERM": "interrupted"}
OPTIONS = {
    "usage": ["--no-such-option"],
    "limit": ["--max-steps", "1"],
    "deadline": ["--deadline", "1"],
    "provider-retry": ["-s", "retry.max_attempts=1"],
}
FAULTS = {
    "provider-retry": Fault(status=503, body="busy"),
    "provider-final": Fault(status=401, body={"error": {"message": "bad key"}}),
    **dict.fromkeys(("deadline", "SIGINT", "SIGTERM"), Fault(hang="stream")),
}


def combinations() -> list[tuple[str, str, str]]:
    """Outcome, stdin and format."""
    if os.environ.get("XNAGENT_OUTCOMES") == "all":
        return [(outcome, stdin, form) for outcome in CODES for stdin in STDINS for form in FORMATS]
    return [
        (outcome, stdin, FORMATS[(number + shift) % len(FORMATS)])
        for shift, outcome in enumerate(CODES)
        for number, stdin in enumerate(STDINS)
    ]


def brain(outcome: str):
    def answer(view: RequestView) -> ReplySpec:
        if outcome in FAULTS:
            return ReplySpec(fault=FAULTS[outcome])
        if outcome == "partial":
            if view.role == "worker":
                return submit().reply
            if "<state>" in view.new_text:
                return start(task("one")).reply
            return finish(outcome="failed").reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")
        if outcome in {"limit", "prefix"}:
            return on(calls=[call("glob", pattern="*")]).reply
        asks = {"question": "Which?"} if outcome == "blocked" else {}
        return finish(outcome=outcome, summary="This is how it went.", **asks).reply

    return answer


def prepared(bench: Bench, server: ScriptedServer, outcome: str) -> list[str]:
    """The command line; for a broken prefix that of a session whose stored system text somebody has changed."""
    line = run_line(bench, server, *OPTIONS.get(outcome, ()))
    if outcome != "prefix":
        return line
    code, _, err = finished(begin(bench, [*line, "--max-steps", "1"]))
    assert code == CODES["limit"], err
    bench.session = session_of(bench)
    rewrite(bench.path, "manifest_recorded", "You are the Planner", "You are the Planer")
    return resume_line(bench, "--max-steps", "9")


def stdin_of(kind: str) -> tuple[int, int | None]:
    """A descriptor for the process, and one that is held open meanwhile."""
    if kind == "null":
        return subprocess.DEVNULL, None
    reader, writer = os.pipe()
    if kind == "closed-pipe":
        os.close(writer)
        return reader, None
    return reader, writer


def run_once(bench: Bench, server: ScriptedServer, *, outcome: str, stdin: str, form: str) -> tuple[int, str, str]:
    line = [*prepared(bench, server, outcome), "--output", form]
    sent = len(server.bodies)
    reader, writer = stdin_of(stdin)
    process = begin(bench, line, stdin=reader)
    try:
        if outcome.startswith("SIG"):
            wait_until(lambda: len(server.bodies) > sent, process)
            time.sleep(0.1)
            process.send_signal(getattr(signal, outcome))
        return finished(process)
    finally:
        for descriptor in {reader, writer} - {None, subprocess.DEVNULL}:
            os.close(descriptor)


@pytest.mark.parametrize(("outcome", "stdin", "form"), combinations())
def test_B057_B059_B060_each_end_has_its_code_and_one_last_record(tmp_path: Path, outcome: str, stdin: str, form: str):
    bench = Bench(tmp_path)
    with ScriptedServer(brain=brain(outcome)) as server:
        code, out, err = run_once(bench, server, outcome=outcome, stdin=stdin, form=form)
    assert code == CODES[outcome], err
    if form == "text":
        assert out == ("This is how it went.\n" if outcome == "completed" else "")
        assert err.strip()
        return
    lines = records(out)
    check_record(lines[-1], outcome=outcome)
    assert [line["type"] for line in lines].count("final") == 1
    if form == "json":
        assert len(lines) == 1
    elif outcome not in {"usage", "prefix"}:
        assert lines[0]["type"] == "session_started"
        assert [line["seq"] for line in lines[:-1]] == list(range(1, len(lines)))


def check_record(record: dict[str, Any], *, outcome: str) -> None:
    assert record["type"] == "final"
    assert (record["outcome"], record["exit_code"]) == (NAMED.get(outcome, outcome), CODES[outcome])
    has_error = outcome not in {"completed", "failed", "partial", "blocked"}
    assert (record["error"] is not None) == has_error
    assert record["question"] == ("Which?" if outcome == "blocked" else None)
    assert json.dumps(record)
