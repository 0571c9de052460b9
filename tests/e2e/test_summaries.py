"""The `summary` strategy of Workers in real sessions: a model's text takes the place of a history (M64 to M94)."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import pytest

from tests.e2e.bench import Bench, Ended, call, finish, reply, rewrite, server_settings, start, submit, task
from tests.e2e.test_crash import truncate
from tests.e2e.test_wires import PROVIDER, WIRES
from xnagent.app.comparing import compare
from xnagent.app.replay import replay_session, request_bytes
from xnagent.app.running import Stop
from xnagent.app.steering import ask_for_rebases
from xnagent.cli.inspect import read as read_session
from xnagent.cli.rebase import ASKED_FIRST, foreseen
from xnagent.core.fold import fold_all
from xnagent.core.spine_events import RebaseRefused, ReplyReceived, RequestStarted, SpineRebased
from xnagent.core.state import spine_of
from xnagent.core.summary import SECTIONS
from xnagent.core.summary_events import RebaseAsked, SummaryFailed, SummaryMade, SummaryStarted
from xnagent.errors import UsageError
from xnagent.inspect.report import document
from xnagent.lab.logs import run_of
from xnagent.store.history import uses_of
from xnagent.testing.choice import Brain, RequestView
from xnagent.testing.providers import PROVIDERS
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer

SUMMARY = {"worker__context__strategy": "summary", "spine__policy": "threshold"}
SMALL = {**SUMMARY, "worker__model__window": 16_000, "worker__model__max_output_tokens": 2_000}
ASKED = "<summary_request"
WHOLE = "\n".join(f"## {name}\n{name} is known." for name in SECTIONS)


def answer(text: str = WHOLE, values: object = None) -> ReplySpec:
    """What a summarizer says."""
    block = "" if values is None else f"\n<values>\n{json.dumps(values)}\n</values>"
    return ReplySpec(text=text + block)


@dataclass
class Work:
    """A Planner with one task, a Worker that makes so many steps, and whoever answers requests for summaries."""

    steps: int
    summarize: Callable[[RequestView, int], ReplySpec] = lambda _view, _number: answer(values={})
    step: Callable[[int], ReplySpec] = lambda n: reply(call("bash", command=f"seq -f 'step {n} says %g' 300"))
    asked: list[RequestView] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    made: int = 0

    def __call__(self, view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "<state>" in view.new_text:
                return start(task("one")).reply
            return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")
        if ASKED in view.new_text or (self.asked and "Answer once more" in view.new_text):
            self.asked.append(view)
            return self.summarize(view, len(self.asked))
        self.seen.append(json.dumps(view.messages, ensure_ascii=False))
        self.made += 1
        return submit().reply if self.made > self.steps else self.step(self.made)


async def worked(bench: Bench, work: Brain, **settings: object) -> Ended:
    with ScriptedServer(brain=work) as server:
        ended = await bench.run(server, **{**SMALL, **settings})
        server.check(leftovers=False)
    return ended


def checkpoints(ended: Ended) -> list[str]:
    return [event.items[1].text for event in ended.of(SpineRebased) if event.agent == "r1"]


def causes(ended: Ended) -> list[str]:
    return [event.cause for event in ended.of(SpineRebased) if event.agent == "r1"]


@pytest.mark.parametrize("wire", WIRES)
async def test_M37_M64_M67_M87_M90_T2_a_summary_takes_the_place_of_the_history(bench: Bench, wire: str):
    work = Work(9, lambda _view, _number: answer("## Goal\nMake it so.\n## Done\nThe half.", {}))
    ended = await worked(bench, work, planner__model__wire=wire)
    assert ended.run("r1").status == "completed"
    made = ended.of(SummaryMade)
    assert set(causes(ended)) == {"summary"}
    assert len(made) == len(causes(ended)) >= 2
    text = checkpoints(ended)[0]
    assert "## Done\nThe half." in text
    assert "## Blocked\nnone" in text
    assert set(made[0].missing) == set(SECTIONS) - {"Goal", "Done"}
    assert 'round="1" by="a model"' in text
    assert "were left out" in text
    assert [event.round for event in made] == list(range(1, len(made) + 1))


async def test_M37_T4_T16_the_request_is_the_live_one_with_the_instruction_behind_it(bench: Bench):
    """A larger window: what is new since the last request is small beside what the cache holds."""
    work = Work(22)
    ended = await worked(bench, work, worker__model__window=40_000)
    first, *_ = [event for event in ended.of(RequestStarted) if event.agent == "r1:summary"]
    before = max(event.request for event in ended.of(RequestStarted) if event.request < first.request)
    live, asked = (json.loads(request_bytes(ended.events, number)) for number in (before, first.request))
    assert asked["messages"][: len(live["messages"])] == live["messages"]
    assert {key: asked[key] for key in asked if key != "messages"} == {
        key: live[key] for key in live if key != "messages"
    }
    assert ASKED in asked["messages"][-1]["content"]
    compared = compare(ended.events, first.request, against=before)
    assert compared.is_same_lineage
    assert compared.segment is None
    usage = ended.replies("r1:summary")[0].usage
    assert usage.cached_tokens >= 0.9 * usage.input_tokens
    systems = {message["content"] for view in work.asked for message in view.messages if message["role"] == "system"}
    assert len(systems) == 1
    for starts in ended.of(SummaryStarted):
        assert starts.form == "aligned"


async def test_M66_T15_a_round_reads_the_summary_before_it_and_what_is_new(bench: Bench):
    work = Work(24, lambda _view, number: answer(f"## Done\nround {number} is over", {}))
    ended = await worked(bench, work)
    sizes = [reply.usage.input_tokens for reply in ended.replies("r1:summary")]
    assert len(sizes) >= 5
    assert sizes[4] <= sizes[1] * 1.05
    for number, view in enumerate(work.asked[1:], 1):
        text = json.dumps(view.messages)
        assert f"round {number} is over" in text
        assert f"round {number - 1} is over" not in text
        assert f'<summary_request round=\\"{number + 1}\\"' in text
    assert re.findall(r'<summary round="(\d+)"', "".join(checkpoints(ended))) == [str(n + 1) for n in range(len(sizes))]


VALUES = {"pi": "3.14159265358979323846", "id": "0189cafe-7a3b-4000-8000-00000000beef", "path": "src/deep/er/x.toml"}


def plant(number: int) -> ReplySpec:
    if number == 1:
        return reply(call("bash", command=f"echo '{' '.join(VALUES.values())}'"))
    if number == 2:
        return reply(call("note", text="The port is", value="8443", pinned=True), text="It must be BLUE-IN-PROSE.")
    return reply(call("bash", command=f"seq -f 'step {number} says %g' 300"))


async def test_M81_M82_M84_T19_values_survive_ten_rounds_to_the_digit_and_prose_does_not(bench: Bench):
    """The scripted summarizer is lossy: it rounds numbers, forgets what it was told, and miscopies what it repeats."""

    def lossy(_view: RequestView, number: int) -> ReplySpec:
        if number == 1:
            return answer("## Findings\nPi is about 3.14. It must be BLUE-IN-PROSE.", VALUES)
        wrong = {"pi": "3.1415926535897932", "id": None, "path": "src/deep/er/y.toml"}
        return answer(f"## Findings\nPi is about 3. Round {number}.", wrong)

    work = Work(46, lossy, plant)
    ended = await worked(bench, work)
    texts = checkpoints(ended)
    assert len(texts) >= 10
    for text in texts:
        assert all(json.dumps(value) in text for value in VALUES.values())
        assert '"8443"' in text
    assert "BLUE-IN-PROSE" in texts[0]
    assert not any("BLUE-IN-PROSE" in text for text in texts[1:])
    assert "BLUE-IN-PROSE" not in work.seen[-1]
    assert all(value in work.seen[-1] for value in VALUES.values())
    assert ended.of(SummaryMade)[1].values_refused == ("path", "pi")[::-1]
    assert {event.values_kept for event in ended.of(SummaryMade)[1:]} == {3}


async def test_M84_T13_a_name_that_is_left_out_is_gone_and_an_empty_set_clears_all(bench: Bench):
    said = [VALUES, {"pi": None}, None, {}]
    work = Work(19, saying(said), plant)
    ended = await worked(bench, work)
    sets = [dict(event.values) for event in ended.of(SummaryMade)]
    assert sets[:4] == [VALUES, {"pi": VALUES["pi"]}, {"pi": VALUES["pi"]}, {}]
    made = ended.of(SummaryMade)
    assert set(made[1].values_dropped) == {"id", "path"}
    assert [event.has_values for event in made[:4]] == [True, True, False, True]
    assert "Exact values" not in checkpoints(ended)[3]


def saying(said: list[dict[str, str | None] | None]) -> Callable[[RequestView, int], ReplySpec]:
    """Each entry is one round; where it names no values, the reminder gets the same answer."""
    rounds = [entry for entry in said for _ in range(2 if entry is None else 1)]
    return lambda _view, number: answer(values=rounds[number - 1] if number <= len(rounds) else {})


async def test_M83_a_model_that_calls_tools_or_forgets_the_values_is_asked_once_more(bench: Bench):
    def stubborn(view: RequestView, number: int) -> ReplySpec:
        if ASKED in view.new_text:
            return reply(call("bash", command="touch should-not-exist"), text=WHOLE if number % 4 else "")
        return answer(values={"n": "300"})

    work = Work(14, stubborn)
    ended = await worked(bench, work)
    made = ended.of(SummaryMade)
    assert made
    assert {event.requests for event in made} == {2}
    assert made[0].values == (("n", "300"),)
    assert ended.results("r1:summary")
    assert {result.code for result in ended.results("r1:summary")} == {"NOT_EXECUTED"}
    assert not (bench.repository / "should-not-exist").exists()
    assert "should-not-exist" not in work.seen[-1]
    reminders = [view.new_text for view in work.asked if ASKED not in view.new_text]
    assert len(reminders) == len(made)
    assert "it called tools" in reminders[0]


async def test_M85_a_long_value_is_stored_once_and_its_ticket_is_shown(bench: Bench):
    long = "x" * 900
    work = Work(16, lambda _view, number: answer(values={"long": long if number == 1 else None}))
    work.step = lambda n: reply(
        call("bash", command=f"echo {long}; seq -f 'step {n} says %g' 300" if n == 1 else f"seq {n} 400")
    )
    ended = await worked(bench, work)
    shown = {dict(event.values)["long"] for event in ended.of(SummaryMade)}
    assert len(ended.of(SummaryMade)) >= 2
    assert len(shown) == 1
    assert re.fullmatch(r"900 characters: read artifact:[0-9a-f]{16}", shown.pop())
    rewrite(bench.path, "summary_made", "Goal is known", "Goal is unknown")
    assert "summary 1 of r1: another text or other values" in replay_session(bench.host, bench.session).problems[0]


async def test_M88_an_earlier_summary_is_kept_as_a_note_and_can_be_read_back(bench: Bench):
    work = Work(16, lambda _view, number: answer(f"## Findings\nonly round {number} says: code {number}{number}7", {}))
    tickets: list[str] = []

    def step(number: int) -> ReplySpec:
        found = re.findall(r"round 1: (artifact:[0-9a-f]{16})", work.seen[-1])
        if found and not tickets:
            tickets.append(found[-1])
            return reply(call("read", path=found[-1]))
        return reply(call("bash", command=f"seq -f 'step {number} says %g' 300"))

    work.step = step
    ended = await worked(bench, work)
    rounds = ended.of(SummaryMade)
    assert len(rounds) >= 2
    assert "Summaries of earlier rounds" not in checkpoints(ended)[0]
    assert f"round 1: {rounds[0].notes}" in checkpoints(ended)[1]
    assert tickets == [rounds[0].notes]
    [read] = ended.results("r1", "read")
    assert "only round 1 says: code 117" in read.text


@pytest.mark.parametrize(("strategy", "cause"), [("summary", "summary"), ("rebase", "asked")])
async def test_M70_the_user_has_a_history_shortened_that_is_below_every_limit(bench: Bench, strategy: str, cause: str):
    """While the fifth answer is written, somebody runs `xnagent rebase SESSION --agent r1`."""
    asked: list[object] = []

    def step(number: int) -> ReplySpec:
        if number == 5:
            asked.append(anyio.run(partial(ask_for_rebases, bench.host, bench.session, agent="r1")))
        return reply(call("bash", command=f"seq -f 'step {number} says %g' 300"))

    work = Work(7, step=step)
    ended = await worked(bench, work, worker__context__strategy=strategy, worker__model__window=32_000)
    assert ended.run("r1").status == "completed"
    assert asked == [("r1",)]
    assert causes(ended) == [cause]
    assert len(ended.of(RebaseAsked)) == 1
    (rebased,) = [event for event in ended.of(SpineRebased) if event.agent == "r1"]
    assert rebased.tokens_before < 0.5 * 32_000, "the soft limit is 0.6"
    assert not spine_of(ended.state, "r1").is_rebase_asked
    with pytest.raises(UsageError, match="NOT_RUNNING"):
        await ask_for_rebases(bench.host, bench.session, agent="r1")


async def test_M70_what_would_free_too_little_is_refused_once_and_said(bench: Bench):
    def step(number: int) -> ReplySpec:
        if number == 2:
            anyio.run(partial(ask_for_rebases, bench.host, bench.session, agent=""))
        return reply(call("bash", command="true"))

    ended = await worked(bench, Work(5, step=step), worker__context__strategy="rebase")
    assert {event.agent for event in ended.of(RebaseAsked)} == {"planner", "r1"}
    refused = [event for event in ended.of(RebaseRefused) if event.agent == "r1"]
    assert [event.cause for event in refused] == ["asked"]
    assert causes(ended) == []


async def test_a_dry_run_says_that_a_model_is_asked_first(bench: Bench):
    ended = await worked(bench, Work(5))
    events = ended.events[: next(n for n, one in enumerate(ended.events) if isinstance(one.event, SummaryStarted))]
    for strategy, is_said in (("summary", True), ("rebase", False)):
        settings = server_settings("http://x", spine__policy="threshold", worker__context__strategy=strategy)
        (found,) = foreseen(bench.host, events, settings=settings, agent="r1")
        assert found.verdict.cause == "soft"
        assert (ASKED_FIRST in found.why) is is_said


FAULTS = {
    "blank": ReplySpec(text="  "),
    "cut": ReplySpec(text=WHOLE, finish="length"),
    "not_smaller": answer("## Done\n" + "word " * 9_000, {}),
    "provider": ReplySpec(fault=Fault(status=400, body={"error": {"message": "no", "type": "invalid_request_error"}})),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_M78_M79_T10_what_fails_leaves_the_history_and_the_third_time_the_stored_state_takes_over(
    bench: Bench, fault: str
):
    work = Work(18, lambda _view, _number: FAULTS[fault])
    ended = await worked(bench, work)
    failed = ended.of(SummaryFailed)
    assert [event.fault for event in failed] == [fault] * 3
    assert [(event.failures, event.is_last) for event in failed] == [(1, False), (2, False), (3, True)]
    assert ended.of(SummaryMade) == []
    kinds = [stored.event for stored in ended.events]
    for event in failed:
        later = kinds[kinds.index(event) + 1 :]
        rebased = next((one for one in later if isinstance(one, SpineRebased)), None)
        following = next(one for one in later if isinstance(one, RequestStarted) and one.agent == "r1")
        earlier = [one for one in kinds[: kinds.index(event)] if isinstance(one, RequestStarted) and one.agent == "r1"]
        assert following.items > earlier[-1].items or later.index(rebased) < later.index(following)
    assert set(causes(ended)) <= {"soft", "hard"}
    assert causes(ended)
    assert "no model wrote it" in checkpoints(ended)[-1]
    assert ended.run("r1").status == "completed"
    rows = document(read_session(bench.host.place(bench.session)), ["rebases"])["rebases"]
    assert [row["cause"] for row in rows if row["is_refused"]] == [f"summary: {fault}"] * 3


async def test_M38_B032_where_the_live_request_would_not_fit_a_smaller_one_of_its_own_is_sent(bench: Bench):
    """The soft limit is the hard one, and the rest of the window too small for the instruction."""
    tight = {
        "worker__model__window": 12_000,
        "spine__soft_share": 0.95,
        "spine__hard_share": 0.95,
        "spine__reserve_tokens": 0,
    }
    work = Work(14, lambda _view, _number: answer(values={}))
    work.step = lambda n: reply(call("bash", command=f"seq -f 'step {n} says %g' 200"))
    ended = await worked(bench, work, **tight)
    started = ended.of(SummaryStarted)
    assert [event.form for event in started] == ["cropped"] * len(started) != []
    assert causes(ended) == ["summary"] * len(started)
    number = next(event.request for event in ended.of(RequestStarted) if event.agent == "r1:summary")
    body = json.loads(request_bytes(ended.events, number))
    assert "tools" not in body
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    text = body["messages"][1]["content"]
    assert '<task id="one"' in text
    assert '<message from="the Worker, calling bash">' in text
    sizes = [event.estimate_tokens for event in ended.of(RequestStarted) if event.agent.startswith("r1")]
    assert max(sizes) <= 10_000


@pytest.mark.parametrize("wire", WIRES)
async def test_M71_M94_T12_after_an_overflow_the_history_is_summarized_and_the_request_made_once_more(
    bench: Bench, wire: str
):
    """The client believes in a window of 100,000 tokens; the provider has 11,000."""
    work = Work(9)
    provider = replace(PROVIDERS[PROVIDER[wire]], window_tokens=11_000)
    large = {"worker__model__window": 100_000, "worker__model__max_output_tokens": 1_000, "planner__model__wire": wire}
    with ScriptedServer(brain=work, provider=provider) as server:
        ended = await bench.run(server, **{**SUMMARY, **large})
        server.check(leftovers=False)
    assert ended.run("r1").status == "completed"
    assert server.count("overflows") == len(ended.of(SummaryMade)) >= 1
    assert {event.form for event in ended.of(SummaryStarted)} == {"cropped"}
    assert {event.cause for event in ended.of(SummaryStarted)} == {"overflow"}


async def test_M93_M98_cutting_long_results_comes_first_and_may_make_the_request_unnecessary(bench: Bench):
    bench = Bench(
        bench.folder / "long", files={name: f"line of {name}\n" * 1_000 for name in ("a.txt", "b.txt", "c.txt")}
    )

    def step(number: int) -> ReplySpec:
        if number < 4:
            return reply(call("read", path="abc"[number - 1] + ".txt"))
        return reply(call("bash", command=f"seq -f 'step {number} says %g' 100"))

    ended = await worked(bench, Work(12, step=step), worker__model__window=32_000)
    assert causes(ended)[0] == "prune"
    event = next(event for event in ended.of(SpineRebased) if event.agent == "r1")
    assert event.ticketed
    assert event.items_dropped == 0
    assert "The middles of long results" in event.items[1].text
    assert any(f"read {one.ticket} for the whole" in str(item) for one in event.ticketed for item in event.items)
    assert len(ended.of(SummaryStarted)) == causes(ended).count("summary")


async def test_M92_T14_an_attempt_that_was_cut_off_is_ignored_and_said(bench: Bench):
    stop = Stop()

    def hanging(_view: RequestView, number: int) -> ReplySpec:
        if number == 1:
            stop.request("SIGTERM")
            stop.request("SIGTERM")
            return ReplySpec(fault=Fault(hang="start", hang_seconds=5))
        return answer(values={})

    work = Work(12, hanging)
    with ScriptedServer(brain=work) as server:
        ended = await bench.run(server, stop=stop, **SMALL)
        assert ended.state.work["r1"].summary.attempt is not None
        assert [type(one.event) for one in ended.events if isinstance(one.event, SummaryFailed | SummaryMade)] == []
        items = ended.state.spines["r1"].items
        ended = await bench.resume(server, **SMALL)
    failed = ended.of(SummaryFailed)
    assert [(event.fault, event.failures) for event in failed] == [("interrupted", 0)]
    assert ended.of(SummaryMade)
    assert causes(ended)[0] == "summary"
    again = ended.of(SummaryStarted)[1]
    assert again.covers >= len(items)
    assert ended.run("r1").status == "completed"
    assert not ended.state.in_flight


async def test_M92_T14_killed_between_the_marks_it_is_as_if_nothing_had_been_asked(bench: Bench):
    ended = await worked(bench, Work(6))
    whole = bench.path.read_bytes()
    marks = [one for one in ended.events if getattr(one.event, "agent", "") in {"r1:summary", "r1"}]
    began = next(one.seq for one in marks if isinstance(one.event, SummaryStarted))
    for kind in (SummaryStarted, RequestStarted, ReplyReceived):
        killed = next(one.seq for one in marks if one.seq >= began and isinstance(one.event, kind))
        bench.path.write_bytes(whole)
        truncate(bench.path, killed)
        before = fold_all(one.event for one in ended.events if one.seq <= killed)
        with ScriptedServer(brain=Work(5)) as server:
            again = await bench.resume(server, **SMALL)
            server.check(leftovers=False)
        assert [(event.fault, event.failures) for event in again.of(SummaryFailed)] == [("interrupted", 0)]
        assert [event.round for event in again.of(SummaryStarted)[:2]] == [1, 1]
        assert again.of(SummaryMade)[0].round == 1
        later = [one.event for one in again.events if one.seq > killed]
        first = next(event for event in later if isinstance(event, SummaryStarted | SpineRebased))
        assert isinstance(first, SummaryStarted)
        assert first.covers >= len(before.spines["r1"].items)
        assert again.run("r1").status == "completed"


async def test_M86_a_summary_is_counted_shown_and_no_step(bench: Bench):
    prices = {"m": {"price": {"input_usd": 3.0, "cached_usd": 0.3, "output_usd": 15.0}, "cache_lifetime_seconds": 300}}
    work = Work(12, lambda _view, _number: answer(values={"n": "300"}))
    ended = await worked(bench, work, models=prices)
    made = ended.of(SummaryMade)
    shown = document(read_session(bench.host.place(bench.session)), ["requests", "rebases", "cost", "runs"])
    rows = [row for row in shown["requests"] if row["purpose"] == "summary"]
    assert len(rows) == sum(event.requests for event in made) >= 2
    assert {row["agent"] for row in rows} == {"r1"}
    assert [row["generation"] for row in rows] == list(range(len(rows)))
    assert sum(row["cost_usd"] for row in rows) == pytest.approx(sum(event.cost_usd for event in made))
    role = ended.record["usage"]["by_role"]["summary"]
    assert role["requests"] == len(rows)
    assert ended.record["usage"]["cost_usd"] == pytest.approx(sum(row["cost_usd"] for row in shown["requests"]))
    assert ended.record["steps"]["worker"] == shown["runs"][0]["steps"] == len(ended.replies("r1"))
    assert shown["runs"][0]["cost_usd"] == pytest.approx(
        sum(r["cost_usd"] for r in shown["requests"] if r["agent"] == "r1")
    )
    assert [row["cause"] for row in shown["rebases"]] == ["summary: made", "summary"] * len(made)
    for event in made:
        assert event.tokens_after < 0.8 * event.tokens_before
    assert [thread.agent for thread in run_of(ended.events, name="x").threads] == ["planner", "r1"]
    assert uses_of(ended.path)["r1"].steps == len(ended.replies("r1"))
    assert set(uses_of(ended.path)) == {"planner", "r1"}


async def test_the_planner_is_rebased_from_stored_state_all_the_same(bench: Bench):
    def brain(view: RequestView) -> ReplySpec:
        if view.number > 14:
            return finish().reply
        return reply(call("glob", pattern=f"*{view.number}*"), text="I think about it. " * 120)

    small = {"planner__model__window": 11_000, "planner__model__max_output_tokens": 500}
    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, **{**SUMMARY, **small})
    assert ended.of(SpineRebased)
    assert ended.of(SummaryStarted) == []
    assert {event.agent for event in ended.of(RequestStarted)} == {"planner"}
