"""I1 on the bytes: a long session with many runs, killed three times, checked by the server that got the requests."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.bench import Bench, call, finish, on, submit, task
from tests.e2e.command import begin, finished, kill, resume_line, run_line, session_of, wait_until
from xnagent.core.ids import SessionId
from xnagent.core.spine_events import RequestStarted, SpineRebased
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

STEPS, RUNS, BATCH = 300, 40, 8
FILES = {f"f{number}.txt": f"{number}\n" for number in range(1, RUNS + 1)}


class LongBrain:
    """A Planner of 300 steps that delegates 40 tasks, eight at a time; Workers of three steps."""

    def __init__(self) -> None:
        self.steps = 0
        self.delegated = 0
        self.workers: Counter[str] = Counter()

    def __call__(self, view: RequestView) -> ReplySpec:
        return self.worker(view) if view.role == "worker" else self.planner(view)

    def worker(self, view: RequestView) -> ReplySpec:
        number = view.first_user.split('"')[1].removeprefix("t")
        self.workers[number] += 1
        done = [str(message.get("content")) for message in view.messages if message["role"] == "tool"]
        if not done:
            return on(calls=[call("read", path=f"f{number}.txt")]).reply
        if not any("Edited" in text for text in done):
            return on(calls=[call("edit", path=f"f{number}.txt", old=number, new=f"{number} done")]).reply
        return submit(summary=f"f{number} is done. " + "So it is. " * 8).reply

    def planner(self, view: RequestView) -> ReplySpec:
        self.steps += 1
        if self.delegated < RUNS and self.steps > 1 + 6 * self.delegated:
            names = [f"t{number}" for number in range(self.delegated + 1, self.delegated + 1 + BATCH)]
            self.delegated += BATCH
            tasks = [task(name, scope=[f"f{name[1:]}.txt"], checks=[f"grep -q done f{name[1:]}.txt"]) for name in names]
            return on(calls=[call("plan", tasks=tasks), *(call("delegate", task=name) for name in names)]).reply
        if self.steps < STEPS:
            return on(
                calls=[call("glob", pattern=f"f{self.steps % 40}*")], text=f"Step {self.steps}. " + "Hm. " * 30
            ).reply
        if "ACTIVE" in view.new_text:
            return ReplySpec(text="I wait.")
        return finish().reply


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_I1_M1_M15_M35_300_steps_and_40_runs_killed_three_times_never_break_a_prefix(tmp_path: Path):
    bench, brain = Bench(tmp_path, FILES), LongBrain()
    settings = {"parallel": BATCH, "planner.model.window": 24_000, "planner.model.max_output_tokens": 500}
    began = time.monotonic()
    with ScriptedServer(brain=brain) as server:
        process = begin(bench, run_line(bench, server, "--output", "json", "--no-apply", settings=settings))
        for kills in (60, 150, 240):
            wait_until(lambda kills=kills: brain.steps >= kills, process)
            kill(process)
            process = begin(bench, resume_line(bench, "--output", "json"))
        code, out, err = finished(process)
        assert not server.problems, server.problems
    record = json.loads(out)
    assert (code, record["outcome"]) == (0, "completed"), err
    bench.session = SessionId(session_of(bench))
    ended = bench.ended(server)
    assert record["tasks"] == {"total": RUNS, "completed": RUNS, "failed": 0, "dropped": 0}
    assert record["steps"]["planner"] >= STEPS
    rebases = ended.of(SpineRebased)
    assert len(rebases) >= 3
    assert (server.count("breaks"), record["spine"]["breaks"]) == (0, 0)
    assert server.count("rebases") == len(rebases)
    assert server.count("extensions") >= STEPS + 2 * RUNS - len(rebases) - 1
    assert set(record["workspace"]["changed_files"]) == set(FILES)
    assert len({event.request for event in ended.of(RequestStarted)}) == record["usage"]["requests"]
    assert time.monotonic() - began < 120
