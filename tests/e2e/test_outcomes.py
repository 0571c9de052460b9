"""Every end of `run`, `resume`, `batch`, `worker`, whatever stdin is and stdout carries: its code, one record, in time.

One generated table (B057, B059, B060). The suite runs a slice: each command with each outcome, each stdin with each
format. All 675 cells are run by `scripts/outcome-matrix`.
"""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.bench import Bench, call, finish, on, rewrite, server_settings, start, submit, task
from tests.e2e.command import begin, finished, records, resume_line, run_line, wait_until
from tests.e2e.disks import read_only
from tests.temporal_server import free_port
from xnagent.app.running import SessionSpec, Stop, run_session
from xnagent.batch.assignment import Assignment
from xnagent.batch.engine import JobNews, JobOrder, JobSettled
from xnagent.batch.queue import Queue, remove
from xnagent.core.ids import SessionId
from xnagent.store.reading import read_state
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
    "SIGHUP": 143,
    "no-queue": 2,
    "unreachable": 2,
    "read-only": 2,
    "over": 0,
}
COMMANDS = ("run", "resume", "batch")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
STDINS = ("null", "closed", "closed-pipe", "silent-pipe", "terminal")
FORMATS = ("text", "json", "jsonl")
LIMIT_SECONDS = 50
NAMED = {
    "usage": "error",
    "provider-retry": "provider_error",
    "provider-final": "provider_error",
    "prefix": "prefix_broken",
}
NAMED |= dict.fromkeys(SIGNALS, "interrupted")
NAMED |= dict.fromkeys(("no-queue", "unreachable", "read-only"), "error")
OPTIONS = {
    "usage": ["--no-such-option"],
    "limit": ["--max-steps", "1"],
    "deadline": ["--deadline", "1"],
    "provider-retry": ["-s", "retry.max_attempts=1"],
}
FAULTS = {
    "provider-retry": Fault(status=503, body="busy"),
    "provider-final": Fault(status=401, body={"error": {"message": "bad key"}}),
    **dict.fromkeys(("deadline", *SIGNALS), Fault(hang="stream")),
}
ALONE = dict.fromkeys(("no-queue", "unreachable", "read-only", "over"), ("worker",)) | {"prefix": ("resume",)}
"""Outcomes that only a worker can have, or only a session with a past."""
SHARED = dict.fromkeys(("usage", *SIGNALS), (*COMMANDS, "worker"))


@dataclass(frozen=True)
class Cell:
    command: str
    outcome: str
    stdin: str
    form: str

    @property
    def code(self) -> int:
        """A batch of one job: 3 for whatever its job came to, unless the batch itself was stopped or refused."""
        code = CODES[self.outcome]
        is_own = self.outcome in {"completed", "usage"} or self.outcome.startswith("SIG")
        return code if self.command != "batch" or is_own else 3

    def __str__(self) -> str:
        return f"{self.command}-{self.outcome}-{self.stdin}-{self.form}"


def table() -> list[Cell]:
    """All cells; or as many as commands with outcomes, each stdin with each format among them."""
    able = {**dict.fromkeys(CODES, COMMANDS), **SHARED, **ALONE}
    pairs = [(command, outcome) for outcome in CODES for command in able[outcome]]
    if os.environ.get("XNAGENT_OUTCOMES") == "all":
        return [Cell(*pair, stdin, form) for pair in pairs for stdin in STDINS for form in FORMATS]
    return [
        Cell(*pair, STDINS[number % len(STDINS)], FORMATS[number % len(FORMATS)]) for number, pair in enumerate(pairs)
    ]


def brain(outcome: str) -> Callable[[RequestView], ReplySpec]:
    def answer(view: RequestView) -> ReplySpec:
        if outcome in FAULTS:
            return ReplySpec(fault=FAULTS[outcome])
        if outcome == "partial":
            if view.role == "worker":
                return submit().reply
            if "r1 settled" in view.new_text:
                return finish(outcome="failed").reply
            return ReplySpec(text="Waiting.") if "queued" in view.new_text else start(task("one")).reply
        if outcome in {"limit", "prefix"}:
            return on(calls=[call("glob", pattern="*")]).reply
        asks = {"question": "Which?"} if outcome == "blocked" else {}
        said = "completed" if outcome == "over" else outcome
        return finish(outcome=said, summary="This is how it went.", **asks).reply

    return answer


def prepared(bench: Bench, server: ScriptedServer, cell: Cell) -> list[str]:
    """The command line; `resume` gets a session that met its step limit, made in this process."""
    options = OPTIONS.get(cell.outcome, [])
    if cell.command == "run":
        return run_line(bench, server, *options)
    if cell.command == "batch":
        jobs = bench.folder / "jobs.jsonl"
        jobs.write_text('{"id":"a","objective":"Make it so."}\n')
        line = run_line(bench, server, *options)
        place = line.index("run")
        return [*line[:place], "batch", str(jobs), "--out", str(bench.folder / "results.jsonl"), *line[place + 2 :]]
    if cell.command == "worker":
        return worker_line(bench, server, cell.outcome)
    anyio.run(interrupted, bench)
    if cell.outcome == "prefix":
        rewrite(bench.path, "manifest_recorded", "You are the Planner", "You are the Planer")
    quick = ["-s", "retry.max_attempts=2", "-s", "limits.steps=9", "--base-url", server.base_url]
    return resume_line(bench, *quick, *(["--max-steps", "2"] if cell.outcome == "limit" else options))


def queue_of(bench: Bench) -> Queue:
    """The queue that the worker is at."""
    return Queue(path=bench.folder / "queue.db")


def submit_job(bench: Bench, server: ScriptedServer, job: str) -> None:
    """As a batch does it."""
    work = Assignment(
        session=SessionId(f"s-{job}"),
        objective="x",
        repository=str(bench.repository),
        commit=None,
        settings=server_settings(server.base_url),
    )
    queue_of(bench).submit([JobOrder(job=job, payload=work.dump())])


def worker_line(bench: Bench, server: ScriptedServer, outcome: str, *, job: str = "job") -> list[str]:
    """A worker at a queue with one job."""
    line = [sys.executable, "-m", "xnagent", "worker", "--home", str(bench.host.home), *OPTIONS.get(outcome, [])]
    if outcome == "unreachable":
        return [*line, "--engine", "temporal", "--address", f"127.0.0.1:{free_port()}"]
    if outcome != "no-queue":
        queue_of(bench).create()
        submit_job(bench, server, job)
    return [*line, "--queue", str(queue_of(bench).path)]


def until_done(queue: Queue, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait for the job's result, as its batch does; the final record of its session."""
    news: list[JobNews] = []

    def is_done() -> bool:
        news.extend(queue.collect(now=time.monotonic()))
        return bool(news)

    wait_until(is_done, process)
    assert isinstance(news[0], JobSettled)
    return json.loads(news[0].result)["record"]


async def interrupted(bench: Bench) -> None:
    """One step, which looks around."""
    with ScriptedServer(brain=lambda _view: on(calls=[call("glob", pattern="*")]).reply) as server:
        settings = server_settings(server.base_url, limits__steps=1)
        spec = SessionSpec(
            objective="Make it so.", repository=bench.repository, settings=settings, session=SessionId("s-bench")
        )
        await run_session(bench.host, spec, stop=Stop())


@contextmanager
def stdin_of(kind: str) -> Iterator[int]:
    """A descriptor for the process; the other end is held open meanwhile, if there is one."""
    if kind in {"null", "closed"}:
        yield subprocess.DEVNULL
        return
    other, own = pty.openpty() if kind == "terminal" else os.pipe()[::-1]
    held = {own, other}
    if kind == "closed-pipe":
        os.close(other)
        held.discard(other)
    try:
        yield own
    finally:
        for descriptor in held:
            os.close(descriptor)


def run_once(bench: Bench, server: ScriptedServer, cell: Cell) -> tuple[int, str, str]:
    line = [*prepared(bench, server, cell), "--output", cell.form]
    if cell.stdin == "closed":
        line = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *line]
    place = read_only(bench.host.home) if cell.outcome == "read-only" else nullcontext()
    with stdin_of(cell.stdin) as stdin, place:
        process = begin(bench, line, stdin=stdin)
        if cell.outcome == "over":
            until_done(queue_of(bench), process)
            remove(queue_of(bench).path)
        if cell.outcome in SIGNALS:
            wait_until(lambda: len(server.bodies) > 0, process)
            time.sleep(0.1)
            process.send_signal(getattr(signal, cell.outcome))
        return finished(process, limit_seconds=LIMIT_SECONDS)


@pytest.fixture(autouse=True)
def hangup_is_heeded() -> Iterator[None]:
    """Also where the tests themselves run under `nohup`, which children inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("cell", table(), ids=str)
def test_B057_B059_B060_each_end_has_its_code_and_one_last_record(tmp_path: Path, cell: Cell):
    bench = Bench(tmp_path)
    with ScriptedServer(brain=brain(cell.outcome)) as server:
        code, out, err = run_once(bench, server, cell)
    assert code == cell.code, err
    assert "Traceback" not in err
    if cell.command == "batch":
        check_batch(bench, cell, out=out)
    elif cell.command == "worker":
        check_worker(bench, cell, out=out)
    elif cell.form == "text":
        assert out == ("This is how it went.\n" if cell.outcome == "completed" else "")
        assert err.strip()
    else:
        check_lines(records(out), cell)


def check_lines(lines: list[dict[str, Any]], cell: Cell) -> None:
    check_record(lines[-1], outcome=cell.outcome)
    assert [line["type"] for line in lines].count("final") == 1
    if cell.form == "json":
        assert len(lines) == 1
    elif CODES[cell.outcome] != 2:
        assert lines[0]["type"] == ("session_started" if cell.command == "run" else "session_resumed")
        first = lines[0]["seq"]
        assert [line["seq"] for line in lines[:-1]] == list(range(first, first + len(lines) - 1))


def check_batch(bench: Bench, cell: Cell, *, out: str) -> None:
    """One synced line for a job that ended; a job that was interrupted has none and goes on another time."""
    path = bench.folder / "results.jsonl"
    lines = records(path.read_text()) if path.exists() else []
    if cell.outcome == "usage" or cell.outcome.startswith("SIG"):
        assert lines == []
    else:
        (line,) = lines
        assert line["id"] == "a"
        check_record(line, outcome=cell.outcome)
    if cell.form == "text":
        assert out == ""
    else:
        assert records(out)[-1]["exit_code"] == cell.code


def check_worker(bench: Bench, cell: Cell, *, out: str) -> None:
    """It prints nothing but why it refused; the session of a job that it gave up can go on."""
    if CODES[cell.outcome] == 2 and cell.form != "text":
        check_lines(records(out), cell)
    else:
        assert out == ""
    sessions = [read_state(path) for path in bench.host.home.glob("sessions/*.db")]
    ends = [state.settled.outcome for state in sessions if state.settled is not None]
    wanted: dict[str, list[str]] = {"over": ["completed"], **{name: ["interrupted"] for name in SIGNALS}}
    assert ends == wanted.get(cell.outcome, [])
    assert len(sessions) == len(ends)
    if cell.outcome in SIGNALS:
        assert queue_of(bench).claim("another worker", count=1, now=time.monotonic()), "it was handed back"
    assert not queue_of(bench).path.exists() or cell.outcome not in {"over", "no-queue"}


def check_record(record: dict[str, Any], *, outcome: str) -> None:
    assert record["type"] == "final"
    assert (record["outcome"], record["exit_code"]) == (NAMED.get(outcome, outcome), CODES[outcome])
    has_error = outcome not in {"completed", "failed", "partial", "blocked"}
    assert (record["error"] is not None) == has_error
    assert record["question"] == ("Which?" if outcome == "blocked" else None)
    assert json.dumps(record)


def test_the_slice_covers_what_it_says():
    cells = table()
    assert {(cell.stdin, cell.form) for cell in cells} == {(stdin, form) for stdin in STDINS for form in FORMATS}
    assert {cell.outcome for cell in cells} == set(CODES)
