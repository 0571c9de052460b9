"""Runs and sessions that are stopped from outside: by the Planner, by a signal."""

import os
import time
from contextlib import suppress
from pathlib import Path

import anyio

from tests.e2e.bench import Bench, bash, call, finish, on, scripted, start, submit, task, until
from xnagent.app.running import Stop
from xnagent.core.events import RunInterrupted, RunLaunched, RunSettled, SessionInterrupted
from xnagent.core.items import is_balanced
from xnagent.core.spine_events import ReplyReceived, RequestStarted
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer

POLL = ReplySpec(calls=(call("worker_status"),), delay_seconds=0.1)


def is_alive(pid_file: Path) -> bool:
    with suppress(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
        return "Z" not in Path(f"/proc/{int(pid_file.read_text())}/stat").read_text().rpartition(")")[2].split()[0]
    return False


class Scene:
    """Two Workers at work, one in a command and one in a stream, a third that waits for a place."""

    def __init__(self, bench: Bench) -> None:
        self.pid = bench.folder / "pid"
        self.asked: list[tuple[str, float]] = []
        self.cancelled_at = 0.0
        self.ended: set[str] = set()

    @property
    def is_set(self) -> bool:
        return self.pid.exists() and self.pid.read_text().strip() != "" and "two" in dict(self.asked)

    def worker(self, view: RequestView) -> ReplySpec:
        name = view.first_user.split('"')[1]
        self.asked.append((name, time.monotonic()))
        if name == "one":
            return bash(f"echo $$ > {self.pid}; trap '' TERM; sleep 300; sleep 300").reply
        return ReplySpec(fault=Fault(hang="stream")) if name == "two" else submit().reply

    def planner(self, view: RequestView) -> ReplySpec:
        self.ended.update(run for run in ("r1", "r2", "r3") if f"{run} settled: cancelled" in view.new_text)
        if "<state>" in view.new_text:
            return start(task("one"), task("two"), task("three")).reply
        if not self.cancelled_at and not self.is_set:
            return POLL
        if not self.cancelled_at:
            self.cancelled_at = time.monotonic()
            return on(calls=[call("cancel_run", run=run, reason="enough") for run in ("r1", "r2", "r3")]).reply
        return finish(outcome="failed").reply if len(self.ended) == 3 else ReplySpec(text="Waiting.")

    def __call__(self, view: RequestView) -> ReplySpec:
        return self.planner(view) if view.role == "planner" else self.worker(view)


async def test_B049_cancelled_runs_stop_within_five_seconds_and_send_nothing_more(bench: Bench):
    scene = Scene(bench)
    with ScriptedServer(brain=scene) as server:
        ended = await bench.run(server, parallel=2)
    assert time.monotonic() - scene.cancelled_at < 8
    assert not is_alive(scene.pid)
    assert [name for name, at in scene.asked if at > scene.cancelled_at] == []
    assert {run.status for run in ended.state.board.runs.values()} == {"cancelled"}
    assert {run.reason for run in ended.state.board.runs.values()} == {"enough"}
    assert sorted(event.run for event in ended.of(RunLaunched)) == ["r1", "r2"]
    stored = {e.event.run: e.at for e in ended.events if isinstance(e.event, RunSettled)}
    assert len(stored) == 3
    assert ended.results("r1")[0].code == "CANCELLED"
    assert "it may have had part of its effect" in ended.results("r1")[0].text
    assert ended.record["runs"]["cancelled"] == 3
    assert {one.status for one in ended.state.board.tasks.values()} == {"pending"}


async def test_a_planner_that_gives_up_ends_the_runs_that_work_and_those_that_wait(bench: Bench):
    scene = Scene(bench)

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker" or "<state>" in view.new_text or not scene.is_set:
            return scene(view)
        return finish(outcome="failed").reply

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, parallel=2)
    assert (ended.code, ended.record["runs"]["cancelled"]) == (3, 3)
    assert not is_alive(scene.pid)
    assert ended.run("r1").reason == "the Planner finished while it ran"
    assert ended.run("r3").reason == "the Planner finished before it began"


async def test_finish_is_refused_while_runs_are_active(bench: Bench):
    script = scripted(
        start(task("fix")),
        finish('"status":"queued"'),
        on("ACTIVE: r1 still active", text="I wait."),
        finish("r1 settled: completed"),
        workers={"fix": [bash(bench.wait_for("told")), submit()]},
    )
    first = script.planner[0].rules[1]
    assert first.when

    async def tell() -> None:
        await until(lambda: len(server.bodies) >= 4)
        (bench.folder / "told.flag").touch()

    with ScriptedServer(script) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(tell)
            ended = await bench.run(server)
        server.check()
    assert ended.code == 0


async def test_a_message_reaches_the_worker_before_its_next_step(bench: Bench):
    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker":
            if "From the Planner:\nStop after b.py." in view.new_text:
                return submit(summary="Heard you.").reply
            return bash(f"touch {bench.folder}/busy; {bench.wait_for('sent')}").reply
        if "<state>" in view.new_text:
            return start(task("fix")).reply
        if '"delivered"' in view.new_text:
            (bench.folder / "sent.flag").touch()
        if "r1 settled: completed" in view.new_text:
            return finish().reply
        if not (bench.folder / "busy").exists():
            return POLL
        sent = any('"delivered"' in str(message.get("content")) for message in view.messages)
        return (
            ReplySpec(text="Waiting.")
            if sent
            else on(calls=[call("message_run", run="r1", text="Stop after b.py.")]).reply
        )

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server)
    assert ended.code == 0
    assert ended.run("r1").summary == "Heard you."
    assert ended.told("r1", "message") == ["From the Planner:\nStop after b.py."]
    assert len(ended.replies("r1")) == 2


async def test_a_message_to_a_run_that_ended_is_refused(bench: Bench):
    script = scripted(
        start(task("fix")),
        on(
            "r1 settled", calls=[call("message_run", run="r1", text="Hello"), call("cancel_run", run="r1", reason="no")]
        ),
        finish("CLOSED: run r1 is completed already"),
        workers={"fix": [submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert [result.code for result in ended.results()[-3:]] == ["CLOSED", "CLOSED", "ok"]


async def _stopped(bench: Bench, server: ScriptedServer, *, ready, signal, **settings):
    """Run until `ready`, then ask to stop."""
    stop = Stop()

    async def watch() -> None:
        await until(ready)
        stop.request(signal)

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        ended = await bench.run(server, stop=stop, **settings)
        group.cancel_scope.cancel()
    return ended


async def test_B060_a_signal_interrupts_in_order_and_a_resumption_goes_on(bench: Bench):
    pid = bench.folder / "pid"
    script = scripted(
        start(task("one"), task("two"), task("three")),
        finish("r1 settled", outcome="completed"),
        finish("r2 settled", outcome="completed"),
        finish("r3 settled", outcome="completed"),
        workers={
            "one": [bash(f"echo $$ > {pid}; echo 'x = 2' > a.py; sleep 300"), submit("CANCELLED")],
            "two": [submit()],
            "three": [submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await _stopped(bench, server, ready=pid.exists, signal="SIGTERM", parallel=1)
        assert (ended.outcome, ended.code) == ("interrupted", 143)
        assert ended.record["error"]["class"] == "interrupted"
        assert not is_alive(pid)
        assert (ended.run("r1").status, ended.run("r2").status) == ("interrupted", "queued")
        assert len(ended.of(SessionInterrupted)) == 1
        assert bench.read("a.py") == "x = 1\n"
        resumed = await bench.resume(server, parallel=1)
    assert (resumed.outcome, resumed.code) == ("completed", 0)
    assert bench.read("a.py") == "x = 2\n"
    assert server.count("breaks") == 0


async def test_B060_a_signal_in_a_stream_of_the_planner_sends_the_same_request_again(bench: Bench):
    faults = iter([Fault(hang="stream")])

    def brain(view: RequestView) -> ReplySpec:
        fault = next(faults, None)
        return finish().reply if fault is None else ReplySpec(fault=fault)

    with ScriptedServer(brain=brain) as server:
        ended = await _stopped(bench, server, ready=lambda: len(server.bodies) == 1, signal="SIGINT")
        assert (ended.outcome, ended.code) == ("interrupted", 130)
        resumed = await bench.resume(server)
    assert resumed.code == 0
    assert server.bodies[0] == server.bodies[1]
    assert [event.request for event in resumed.of(RequestStarted)] == [1, 1]
    assert len(resumed.of(ReplyReceived)) == 1


async def test_B003_finished_calls_of_an_interrupted_answer_stay_as_they_are(bench: Bench):
    pid = bench.folder / "pid"
    calls = [call("bash", command=f"echo e{n}") for n in (1, 2)]
    calls += [call("bash", command=f"echo $$ > {pid}; sleep 300"), call("bash", command="touch never")]
    script = scripted(
        start(task("fix")),
        finish("r1 settled", outcome="completed"),
        workers={"fix": [on(calls=calls, text="I will edit four files."), submit("CANCELLED")]},
    )
    with ScriptedServer(script) as server:
        ended = await _stopped(bench, server, ready=pid.exists, signal="SIGINT")
        spine = ended.state.spines["r1"]
        assert is_balanced(spine.items)
        texts = [item.text for item in spine.items[1:] if not hasattr(item, "arguments")]
        resumed = await bench.resume(server)
        server.check()
    assert texts[0] == "I will edit four files."
    assert [text.split()[0] for text in texts[1:3]] == ["e1", "e2"]
    assert "stopped while it ran" in texts[3]
    assert "not executed" in texts[4]
    assert resumed.state.spines["r1"].items[: len(spine.items)] == spine.items
    assert len(resumed.of(RunInterrupted)) == 1
    assert "never" not in resumed.record["workspace"]["changed_files"]


async def test_B060_a_second_signal_shortens_the_wait(bench: Bench):
    stop = Stop()
    started = bench.folder / "started"
    script = scripted(finish("<state>"))

    async def watch() -> None:
        await until(started.exists)
        stop.request("SIGTERM")
        stop.request("SIGTERM")

    began = time.monotonic()
    with ScriptedServer(script) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            ended = await bench.run(
                server, stop=stop, checks=(f"touch {started}; sleep 300",), check_timeout_seconds=300
            )
    assert (ended.outcome, ended.code) == ("interrupted", 143)
    assert time.monotonic() - began < 15
