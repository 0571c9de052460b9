"""How room is made: what costs nothing first, then a rebase when it pays, then the hand-in (M98 to M105)."""

import json
import re

import pytest

from tests.e2e.bench import Bench, Ended, call, finish, reply, start, submit, task
from xnagent.cli.inspect import read as read_session
from xnagent.core.spine_events import RebasesSuspended, RequestStarted, ResultShortened, SpineRebased, ToolFinished
from xnagent.inspect.report import document, part_text
from xnagent.testing.choice import Brain, RequestView
from xnagent.testing.script import ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer

PAGE = "".join(f"line {n} of a file with some words in it\n" for n in range(1, 401))
PRICED = {
    "m": {
        "price": {"input_usd": 3.0, "cached_usd": 0.3, "output_usd": 15.0, "cache_write_usd": 3.75},
        "cache_lifetime_seconds": 300,
    }
}


def with_worker(worker: Brain) -> Brain:
    """A Planner that delegates one task and waits for it."""

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker":
            return worker(view)
        if "<state>" in view.new_text:
            return start(task("one")).reply
        return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")

    return brain


def read(path: str, **fields: int) -> ScriptedCall:
    return call("read", path=path, **fields)


def rebases_of(ended: Ended, agent: str = "r1") -> list[SpineRebased]:
    return [event for event in ended.of(SpineRebased) if event.agent == agent]


@pytest.mark.parametrize(("reserve", "status"), [(2_000, "completed"), (0, "failed")])
async def test_M104_M105_with_a_reserve_the_request_to_hand_in_fits_and_without_it_would_not(
    bench: Bench, reserve: int, status: str
):
    """Each note stays in every checkpoint, until nothing more fits into the window of 16,000 tokens."""
    demands = []

    def worker(view: RequestView) -> ReplySpec:
        if "context is full" in view.new_text:
            demands.append(view.number)
            return submit(summary="I came half way.").reply
        return reply(*[call("note", text=f"{view.number}.{n} " + "word " * 140, pinned=True) for n in range(3)])

    with ScriptedServer(brain=with_worker(worker)) as server:
        ended = await bench.run(
            server,
            worker__model__window=16_000,
            worker__model__max_output_tokens=2_000,
            spine__reserve_tokens=reserve,
        )
        server.check(leftovers=False)
    run = ended.run("r1")
    assert (run.status, len(demands)) == (status, 1 if reserve else 0)
    assert "context exhausted" in run.reason if status == "failed" else run.summary == "I came half way."
    sizes = [event.estimate_tokens for event in ended.of(RequestStarted) if event.agent == "r1"]
    assert max(sizes) <= 16_000 - 2_000
    assert server.count("overflows") == 0
    if not reserve:
        assert max(sizes) > 16_000 - 4_000


async def test_M104_a_worker_that_goes_on_in_a_full_context_is_ended(bench: Bench):
    def worker(view: RequestView) -> ReplySpec:
        return reply(*[call("note", text=f"{view.number}.{n} " + "word " * 140, pinned=True) for n in range(3)])

    small = {"worker__model__window": 16_000, "worker__model__max_output_tokens": 2_000}
    with ScriptedServer(brain=with_worker(worker)) as server:
        ended = await bench.run(server, **small)
    assert ended.run("r1").status == "failed"
    assert "context exhausted" in ended.run("r1").reason
    assert sum("context is full" in text for text in ended.told("r1", "nudge")) == 1


async def test_M98_each_rung_has_its_event_and_the_cheaper_one_comes_first(bench: Bench):
    """A tool cuts its output, a page is referred to, a result and a step are too long; then tickets."""
    for name in "abcdefgh":
        (bench.repository / f"{name}.txt").write_text(PAGE)
    pages = [[read(f"{name}.txt", offset=n, limit=20)] for n in (1, 30, 60) for name in "abcdefgh"]
    steps = [
        [call("bash", command="seq -f 'noise %g' 50000")],
        [read("a.txt", offset=1, limit=100)],
        [read("a.txt", offset=1, limit=100)],
        [read("b.txt")],
        [read(f"{name}.txt", offset=200, limit=90) for name in "cdef"],
        *pages,
    ]

    def worker(view: RequestView) -> ReplySpec:
        return submit().reply if view.number > len(steps) else reply(*steps[view.number - 1])

    small = {"worker__model__window": 18_000, "worker__model__max_output_tokens": 3_000, "spine__policy": "threshold"}
    with ScriptedServer(brain=with_worker(worker)) as server:
        ended = await bench.run(server, **small)
    rungs = [event.rung for event in ended.of(ResultShortened)]
    assert list(dict.fromkeys(rungs)) == ["tool", "reference", "result", "step"]
    for event in ended.of(ResultShortened):
        assert event.place.startswith("artifact:") if event.rung == "tool" else event.place.endswith(".txt")
        assert event.agent == "r1"
    kinds = [type(stored.event) for stored in ended.events]
    assert kinds.index(ResultShortened) < kinds.index(SpineRebased)
    assert any(event.ticketed for event in rebases_of(ended))
    assert ended.code == 0


async def test_M102_M106_M107_old_results_are_tickets_after_a_rebase_and_reading_one_gives_the_text(bench: Bench):
    for n in range(40):
        (bench.repository / f"f{n}.txt").write_text(f"file {n}\n" + PAGE)
    looked: dict[str, str] = {}

    def worker(view: RequestView) -> ReplySpec:
        tickets = re.findall(r"left out at a rebase[^\]]* read (artifact:[0-9a-f]{16})", json.dumps(view.messages))
        if looked:
            looked.setdefault("text", view.new_text)
            return submit().reply
        if tickets:
            looked["ticket"] = tickets[0]
            return reply(read(tickets[0]))
        return reply(read(f"f{view.number}.txt", limit=16))

    small = {"worker__model__window": 14_000, "worker__model__max_output_tokens": 2_000, "spine__policy": "threshold"}
    with ScriptedServer(brain=with_worker(worker)) as server:
        ended = await bench.run(server, **small)
    event = rebases_of(ended)[0]
    whole = {str(done.call_id): done.text for done in ended.of(ToolFinished)}
    first = event.ticketed[0]
    assert looked["ticket"] == first.ticket
    shown = ended.results("r1", "read")[-1].text
    assert [line.split("\t", 1)[1] for line in shown.splitlines()] == whole[first.call_id].splitlines()
    assert "artifact:" not in shown
    assert len(event.ticketed) >= 5
    assert ended.run("r1").status == "completed"


async def test_M52_a_workers_rebase_pays_long_before_its_window_is_full(bench: Bench):
    """200,000 tokens of window: the soft limit is far away; re-reading has cost more than a rebase after some steps."""

    def worker(view: RequestView) -> ReplySpec:
        if view.number > 60:
            return submit().reply
        return reply(call("bash", command=f"seq -f 'step {view.number} says %g' 150"))

    costs = {}
    for policy in ("economic", "threshold"):
        place = Bench(bench.folder / policy)
        with ScriptedServer(brain=with_worker(worker)) as server:
            ended = await place.run(server, models=PRICED, worker__model__window=200_000, spine__policy=policy)
        costs[policy] = ended.record["usage"]["cost_usd"]
        causes = [event.cause for event in rebases_of(ended)]
        assert causes == [] if policy == "threshold" else set(causes) == {"economic"}
    assert costs["economic"] < 0.85 * costs["threshold"]


async def test_M51_a_receipt_of_a_worker_is_shown_with_the_way_to_what_was_dropped(bench: Bench):
    def worker(view: RequestView) -> ReplySpec:
        if view.number > 14:
            return submit().reply
        return reply(call("bash", command=f"seq -f 'step {view.number} says %g' 2500"))

    with ScriptedServer(brain=with_worker(worker)) as server:
        ended = await bench.run(server, models=PRICED, worker__model__window=30_000)
    reading = read_session(bench.host.place(bench.session))
    rows = [row for row in document(reading, ["rebases"])["rebases"] if row["agent"] == "r1"]
    assert len(rows) == len(rebases_of(ended)) >= 1
    row = rows[0]
    assert (row["first_step"], row["is_refused"]) == (1, False)
    assert sum(part["items"] for part in row["dropped"]) == row["items_dropped"]
    dropped = range(row["first_seq"], row["last_seq"] + 1)
    results = [one.seq for one in ended.events if isinstance(one.event, ToolFinished) and one.event.agent == "r1"]
    assert len([seq for seq in results if seq in dropped]) == row["last_step"]
    assert row["tickets"]
    assert row["break_even_steps"] is not None
    assert row["saved_usd"] > 0
    text = part_text(reading, "rebases")
    assert f"run_inspect r1 1 to {row['last_step']}" in text


async def test_T10_a_spine_that_fills_up_with_what_must_stay_suspends_its_rebases_and_says_so(bench: Bench):
    def brain(view: RequestView) -> ReplySpec:
        return reply(*[call("record_fact", text="word " * 180, pinned=True)] * 2)

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, planner__model__window=9_000, planner__model__max_output_tokens=500)
    suspended = ended.of(RebasesSuspended)
    assert [event.refusals for event in suspended] == [3] * len(suspended) != []
    rows = document(read_session(bench.host.place(bench.session)), ["rebases"])["rebases"]
    assert [row["cause"] for row in rows if "rebases in a row" in row["detail"]] == ["suspended"] * len(suspended)
