"""Money is foreseen, reserved for runs and never spent beyond the cap, whatever a provider reports."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.e2e.bench import FILES, Bench, Ended, bash, delegate, finish, on, plan, scripted, start, submit, task
from xnagent.app.replay import replay_session
from xnagent.core.events import RunLaunched, RunSettled, RunStarted, SessionStarted
from xnagent.core.ids import RunId
from xnagent.core.limits import spent_tokens
from xnagent.core.spine_events import ReplyReceived
from xnagent.core.text import Json
from xnagent.inspect.foreseen import outcome_line, session_outcome
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

PRICED: dict[str, Any] = {"m": {"price": {"input_usd": 1.0, "cached_usd": 0.1, "output_usd": 4.0}}}
OUTPUT = 500
HEAD_CHARACTERS = 12_000
"""Of system text and tools, about."""
SEEDS = [int(seed) for seed in os.environ.get("XNAGENT_CAP_SEEDS", "1 2").split()]
"""More of them with a variable: each is a session of a second."""
WIRES = ("chat", "responses", "messages")
NAMES = ("one", "two", "three")


def order_of(ended: Ended) -> list[str]:
    """Beginnings and ends of runs in the order of the log."""
    kinds = {RunLaunched: "+", RunSettled: "-"}
    return [
        f"{kinds[type(stored.event)]}{stored.event.run}"
        for stored in ended.events
        if isinstance(stored.event, RunLaunched | RunSettled)
    ]


def three_runs(worker: str = "true"):
    return scripted(
        start(*(task(name) for name in NAMES)),
        finish("r3 settled"),
        workers={name: [bash(worker), submit()] for name in NAMES},
    )


async def test_runs_that_can_be_paid_beside_each_other_are_not_held_up(bench: Bench):
    with ScriptedServer(three_runs()) as server:
        ended = await bench.run(server, models=PRICED, limits__usd=50.0)
    assert (ended.code, ended.record["runs"]["completed"]) == (0, 3)
    assert not any("waits_because" in result.text for result in ended.results(tool="delegate"))
    forecasts = [event.forecast for event in ended.of(RunStarted)]
    assert all(one.low.cost_usd < one.likely.cost_usd < one.high.cost_usd for one in forecasts)
    assert all(one.samples == 0 for one in forecasts)


async def test_a_run_that_cannot_be_paid_beside_others_waits_for_their_end_and_the_planner_reads_why(bench: Bench):
    """The limit pays for one likely run, not for two: they go one after the other, by themselves, and all end."""
    with ScriptedServer(three_runs()) as server:
        ended = await bench.run(
            server, models=PRICED, limits__usd=0.07, planner__model__max_output_tokens=OUTPUT, parallel=4
        )
        server.check()
    assert (ended.code, ended.record["runs"]["completed"]) == (0, 3)
    assert order_of(ended) == ["+r1", "-r1", "+r2", "-r2", "+r3", "-r3"]
    first, second, third = (json.loads(result.text) for result in ended.results(tool="delegate"))
    assert "waits_because" not in first
    assert second["waits_because"].startswith("it likely costs $")
    assert "is free while r1 work" in second["waits_because"]
    assert "while r1, r2 work" in third["waits_because"]
    assert ended.record["usage"]["cost_usd"] <= 0.07
    assert replay_session(bench.host, bench.session).problems == []


async def test_a_run_whose_first_request_cannot_be_paid_is_refused_and_the_planner_can_still_finish(bench: Bench):
    script = scripted(
        on("<state>", calls=[plan(task("one")), *delegate("one")]),
        finish("UNPAID: not started", outcome="failed", summary="Too little money."),
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(
            server,
            models={**PRICED, "w": {"price": {"input_usd": 500.0, "output_usd": 4.0}}},
            worker__model__name="w",
            limits__usd=0.2,
            planner__model__max_output_tokens=OUTPUT,
        )
        server.check()
    assert (ended.outcome, ended.record["runs"]["total"]) == ("failed", 0)
    (refused,) = ended.results(tool="delegate")
    assert refused.code == "UNPAID"
    assert "its first request may cost $" in refused.text


async def test_what_the_project_tells_is_foreseen_for_planner_and_runs(tmp_path):
    async def low(name: str, **files: str) -> tuple[int, int]:
        (tmp_path / name).mkdir()
        with ScriptedServer(three_runs()) as server:
            ended = await Bench(tmp_path / name, {**FILES, **files}).run(server)
        run = ended.of(RunStarted)[0]
        return ended.state.started.forecast.low.input_tokens, run.forecast.low.input_tokens

    without, told = await low("without"), await low("told", **{"AGENTS.md": "Follow the rules. " * 500})
    assert all(more - less > 4 * 2_500 for less, more in zip(without, told, strict=True)), "four steps at least"


async def test_what_a_session_and_its_runs_used_is_held_against_the_forecast(bench: Bench):
    with ScriptedServer(three_runs()) as server:
        ended = await bench.run(server, models=PRICED)
    (started,) = ended.of(SessionStarted)
    assert started.forecast.likely.requests > 8
    found = session_outcome(ended.state)
    assert found["cost_usd"] == pytest.approx(ended.record["usage"]["cost_usd"])
    assert found["error_share"] == pytest.approx(found["cost_usd"] / started.forecast.likely.cost_usd - 1, abs=1e-3)
    assert [run["run"] for run in found["runs"]] == ["r1", "r2", "r3"]
    assert all(-1 < run["error_share"] < 1 for run in found["runs"])
    line = outcome_line(ended.state)
    assert line.startswith("forecast: $")
    assert line.endswith("than likely")


async def test_the_runs_of_a_session_teach_what_the_next_one_will_cost(bench: Bench, tmp_path):
    """Five runs of two steps each: the sixth is foreseen as one of two steps, not by assumption."""
    names = [f"t{n}" for n in range(6)]
    script = scripted(
        start(*(task(name) for name in names[:5])),
        on("r5 settled", calls=[plan(task("t5")), *delegate("t5")]),
        finish("r6 settled"),
        workers={name: [bash("true"), submit()] for name in names},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, models=PRICED, parallel=1)
    forecast = ended.run("r6").forecast
    assert forecast.samples == 5
    assert [one.requests for one in (forecast.low, forecast.likely, forecast.high)] == [2, 2, 2]
    used = ended.state.uses[RunId("r6")]
    assert forecast.low.cost_usd * 0.5 <= used.cost_usd <= forecast.high.cost_usd * 1.5


def reported(wire: str, size: int, output: int) -> Mapping[str, Json]:
    """The usage as the wire says it."""
    names = ("prompt_tokens", "completion_tokens") if wire == "chat" else ("input_tokens", "output_tokens")
    return dict(zip(names, (size, output), strict=True))


class Adversary:
    """Counts up to three times of what we estimate, writes as much as it may, and now and then does not tell."""

    def __init__(self, wire: str, seed: int, *, share: float | None = None) -> None:
        self.wire, self.random = wire, Random(seed)
        self.share = share or self.random.uniform(0.3, 0.8)
        """Tokens for a character; we expect 0.3."""
        self.silence = self.random.choice([0.0, 0.3])
        self.patience = self.random.choice([0.0, 0.5])

    def __call__(self, view) -> ReplySpec:
        size = int((len(json.dumps(view.messages)) + HEAD_CHARACTERS) * self.share)
        usage = {} if self.random.random() < self.silence else reported(self.wire, size, OUTPUT)
        return replace(self.answer(view), usage=usage)

    def answer(self, view) -> ReplySpec:
        """Many short runs: most requests are the first of a Worker, of which nothing was counted yet."""
        if view.role == "worker":
            goes_on = self.random.random() < self.patience
            return (bash(f"echo {self.random.random()}") if goes_on else submit(status="failed")).reply
        if "<state>" in view.new_text and view.number == 1:
            return start(*(task(name) for name in NAMES)).reply
        again = re.findall(r"settled: failed \(task (\w+)\)", view.new_text)
        return ReplySpec(text="" if again else "Waiting.", calls=tuple(delegate(*dict.fromkeys(again))))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_cap_holds_whatever_a_provider_reports(bench: Bench, wire: str, seed: int):
    """Never more than the cap by more than one request's output; money with odd seeds, tokens with even ones."""
    limit = {"limits__usd": 0.15} if seed % 2 else {"limits__tokens": 120_000}
    with ScriptedServer(brain=Adversary(wire, seed)) as server:
        ended = await bench.run(
            server, models=PRICED, planner__model__wire=wire, planner__model__max_output_tokens=OUTPUT, **limit
        )
    assert ended.outcome in {"limit", "failed"}
    assert len(ended.of(ReplyReceived)) > 5
    usage = ended.record["usage"]
    if seed % 2:
        assert 0.05 < usage["cost_usd"] <= 0.15 + OUTPUT * 4.0 / 1e6
    else:
        assert 40_000 < spent_tokens(ended.state) <= 120_000 + OUTPUT
    assert ended.state.overcharge < 1.2


@pytest.mark.parametrize("wire", WIRES)
async def test_a_request_of_which_nothing_was_counted_yet_is_taken_at_the_most_that_it_can_be(bench: Bench, wire: str):
    """We estimate some 4,000 tokens for the first request; this provider would count 10,000, and the cap is 6,000."""
    with ScriptedServer(brain=Adversary(wire, 2, share=0.7)) as server:
        ended = await bench.run(
            server,
            models=PRICED,
            planner__model__wire=wire,
            planner__model__max_output_tokens=OUTPUT,
            limits__tokens=6_000,
        )
    assert (ended.outcome, ended.code) == ("limit", 6)
    assert spent_tokens(ended.state) <= 6_000 + OUTPUT


async def test_a_provider_that_reports_what_cannot_be_is_believed_once(bench: Bench):
    """Ten tokens for a character: the first report passes every ceiling, all that come after are counted with it."""
    with ScriptedServer(brain=Adversary("chat", 2, share=10.0)) as server:
        ended = await bench.run(
            server, models=PRICED, limits__tokens=1_500_000, planner__model__max_output_tokens=OUTPUT
        )
    assert (ended.outcome, ended.code) == ("limit", 6)
    assert ended.state.overcharge > 2
    assert len(ended.of(ReplyReceived)) > 3
    assert spent_tokens(ended.state) <= 1_500_000 + OUTPUT
