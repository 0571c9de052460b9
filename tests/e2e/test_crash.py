"""Killed at any moment and taken up again: the same requests, nothing lost, nothing done twice unknowingly."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.e2e.bench import Bench, call, finish, on, reply, start, submit, task
from tests.e2e.command import begin, finished, kill, resume_line, run_line, session_of, wait_until
from tests.e2e.test_stopping import is_alive
from xnagent.core.events import FinishRequested, ResultApplied, SessionSettled
from xnagent.core.ids import SessionId
from xnagent.core.items import ToolResult
from xnagent.core.spine_events import ReplyReceived, RequestStarted, ToolStarted
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer


def sensible(view: RequestView) -> ReplySpec:
    """Does what is to be done next, as far as its history tells: a model without a memory of its own."""
    text = "\n".join(str(message.get("content")) for message in view.messages if message["role"] != "system")
    if view.role == "worker":
        if "Edited a.py" in text or "NO_MATCH" in text or "NOT_FOUND" in text:
            return submit(facts=["x is 2"]).reply
        return reply(
            call("bash", command="cat a.py"), call("edit", path="a.py", old="x = 1", new="x = 2"), text="I edit."
        )
    if "r1 settled: completed" in text or '"status":"completed"' in text:
        return finish().reply
    if '"path":"/tasks/fix"' in text or '"fix":' in text:
        return ReplySpec(text="Waiting.") if '"run":"r1"' in text or "/runs/r1" in text else call_delegate()
    return start(task("fix", checks=["grep -q 'x = 2' a.py"])).reply


def call_delegate() -> ReplySpec:
    return reply(call("delegate", task="fix"))


def truncate(path: Path, keep: int) -> None:
    """Make the log end after `keep` events, as if the process had been killed then."""
    with sqlite3.connect(path) as connection:
        for table in ("events",):
            connection.execute(f"DELETE FROM {table} WHERE seq > ?", (keep,))
    connection.close()


async def whole(folder: Path) -> Bench:
    """A session from its beginning to its end; the tree of its run is kept as it was when it settled."""
    bench = Bench(folder)

    def brain(view: RequestView) -> ReplySpec:
        if "r1 settled" in view.new_text:
            shutil.copytree(bench.work("runs"), folder / "runs")
        return sensible(view)

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, checks=("grep -q 'x = 2' a.py",))
    assert ended.code == 0
    shutil.copytree(folder / "runs", bench.work("runs"), dirs_exist_ok=True)
    return bench


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
async def test_B002_I3_a_log_that_ends_anywhere_is_taken_up_again(tmp_path: Path, part: int):
    """After every event of a session in turn: the requests stay valid and the session comes to the same end."""
    original = await whole(tmp_path / "original")
    ended = original.ended()
    count = len(ended.events)
    committed_with_next = {n for n in range(1, count) if ended.events[n - 1].at == ended.events[n].at}
    for keep in set(range(1 + part, count, 4)) - committed_with_next:
        bench = Bench(tmp_path / str(keep))
        shutil.copytree(original.host.home, bench.host.home)
        truncate(bench.path, keep)
        with ScriptedServer(brain=sensible) as server:
            resumed = await bench.resume(server)
        kind = ended.events[keep - 1].event.type
        assert (resumed.outcome, resumed.code) == ("completed", 0), (keep, kind, resumed.record)
        kept = [stored.event for stored in ended.events[:keep]]
        requests = [event for event in kept if isinstance(event, RequestStarted)]
        replies = [event for event in kept if isinstance(event, ReplyReceived)]
        if len(requests) > len(replies):
            again = resumed.of(RequestStarted)[len(requests)]
            lost = {event.request for event in requests} - {event.request for event in replies}
            assert again.request in lost
            assert again.sha256 in {event.sha256 for event in requests}


def rewriting(view: RequestView) -> ReplySpec:
    """As `sensible`, but the Worker reads a file and then replaces it."""
    if view.role == "planner":
        return sensible(view)
    steps = [
        reply(call("read", path="a.py")),
        reply(call("write", path="a.py", content="x = 2\n")),
        submit().reply,
    ]
    return steps[sum(message["role"] == "assistant" for message in view.messages)]


@pytest.mark.parametrize("content", ["x = 1\n", "x = 2\n"])
async def test_B046_what_was_read_before_a_crash_may_be_replaced_after_it(tmp_path: Path, content: str):
    """Killed between the intent of a write and its result, before or after the file was changed."""
    bench = Bench(tmp_path / "bench")

    def brain(view: RequestView) -> ReplySpec:
        if "r1 settled" in view.new_text:
            shutil.copytree(bench.work("runs"), tmp_path / "runs")
        return rewriting(view)

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server)
    begun = next(s.seq for s in ended.events if isinstance(s.event, ToolStarted) and s.event.tool == "write")
    truncate(bench.path, begun)
    shutil.copytree(tmp_path / "runs", bench.work("runs"), dirs_exist_ok=True)
    (bench.work("runs") / "r1" / "tree" / "a.py").write_text(content)
    bench.repository.joinpath("a.py").write_text("x = 1\n")
    with ScriptedServer(brain=rewriting) as server:
        resumed = await bench.resume(server)
    assert [result.code for result in resumed.results("r1", "write")] == ["ok"]
    assert (resumed.outcome, bench.read("a.py")) == ("completed", "x = 2\n")


async def test_what_the_planner_said_at_the_end_is_not_asked_again_after_a_crash(tmp_path: Path):
    """Killed after `finish`, and after the result was applied: nobody is asked, nothing is applied twice."""
    bench = await whole(tmp_path)
    ended = bench.ended()
    for kind in (ResultApplied, SessionSettled, FinishRequested):
        keep = next(stored.seq for stored in ended.events if isinstance(stored.event, kind)) - (kind is SessionSettled)
        keep += kind is FinishRequested
        truncate(bench.path, keep)
        with ScriptedServer(brain=sensible) as server:
            resumed = await bench.resume(server)
            assert server.bodies == []
        assert (resumed.outcome, resumed.code) == ("completed", 0)
        assert resumed.record["workspace"]["applied"] is True
        assert bench.read("a.py") == "x = 2\n"


def test_B002_B048_killed_in_a_command_it_says_so_once_and_does_not_run_it_again(tmp_path: Path):
    bench = Bench(tmp_path)
    pid, count = tmp_path / "pid", tmp_path / "count"
    command = f"echo run >> {count}; echo $$ > {pid}; sleep 300"

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "<state>" in view.new_text:
                return start(task("fix")).reply
            return finish().reply if "r1 settled: completed" in view.new_text else ReplySpec(text="Waiting.")
        if view.number == 1:
            two = [call("bash", command="echo 1"), call("bash", command=command), call("write", path="x", content="1")]
            return on(calls=two).reply
        return submit().reply

    with ScriptedServer(brain=brain) as server:
        process = begin(bench, run_line(bench, server, "--output", "json"))
        wait_until(lambda: pid.exists() and pid.read_text().strip() != "", process)
        kill(process)
        code, out, err = finished(begin(bench, resume_line(bench, "--output", "json")))
        assert code == 0, err
        assert not server.problems, server.problems
    bench.session = SessionId(session_of(bench))
    ended = bench.ended(server)
    assert count.read_text() == "run\n"
    assert not is_alive(pid)
    results = ended.results("r1")
    assert [result.code for result in results[:3]] == ["ok", "INTERRUPTED", "ok"]
    assert "It was not repeated" in results[1].text
    spine = ended.state.spines["r1"]
    assert sum(isinstance(item, ToolResult) for item in spine.items) == 4
    assert out.count('"type":"final"') == 1


def test_B049_nothing_is_left_behind_by_a_process_that_was_killed(tmp_path: Path):
    """Killed while the Planner's request is under way, three times: the same bytes each time."""
    bench = Bench(tmp_path)

    def brain(_view: RequestView) -> ReplySpec:
        return finish().reply if len(server.bodies) >= 3 else ReplySpec(fault=Fault(hang="start"))

    with ScriptedServer(brain=brain) as server:
        process = begin(bench, run_line(bench, server))
        for number in (1, 2, 3):
            wait_until(lambda number=number: len(server.bodies) >= number, process)
            kill(process)
            process = begin(bench, resume_line(bench))
        code, out, _ = finished(process)
    assert (code, out) == (0, "All done.\n")
    assert len(set(server.bodies)) == 1
    bench.session = SessionId(session_of(bench))
    ended = bench.ended(server)
    assert [event.request for event in ended.of(RequestStarted)] == [1] * 4
