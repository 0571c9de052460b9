"""A provider that fails for good is replaced by the next model of the list: declared, priced, counted, resumed."""

import random
from itertools import pairwise

import pytest

from tests.e2e.bench import Bench, bash, finish, rewrite, scripted, start, submit, task
from tests.e2e.command import begin, finished, kill, records, resume_line, run_line, session_of, wait_until
from tests.e2e.falling import (
    FOR_ANOTHER,
    FOR_US,
    PRICE,
    PROVIDER,
    behind,
    check_books,
    failing,
    listed,
    models_of,
    noting,
    replaced,
)
from tests.e2e.test_crash import sensible, truncate
from xnagent.app.replay import replay_session
from xnagent.core.ids import PLANNER, SessionId
from xnagent.core.items import Reasoning
from xnagent.core.spine_events import (
    CacheDrifted,
    ModelReplaced,
    PrefixBroken,
    RequestFailed,
    RequestRetried,
    RequestStarted,
    SpineRebased,
)
from xnagent.errors import UsageError
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document, overview_text, part_text
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer

PAIRS = [("chat", "messages"), ("messages", "responses"), ("responses", "chat")]


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_B054_the_planner_goes_on_with_the_next_model_of_its_list(bench: Bench, first: str, second: str):
    with (
        ScriptedServer(brain=failing("authentication", after=1), provider=PROVIDER[first]) as m,
        ScriptedServer(brain=sensible, provider=PROVIDER[second]) as b,
    ):
        ended = await bench.run(m, **listed(first, b=behind(b, second)))
        bench.ended(b)
    assert (ended.outcome, ended.code, bench.read("a.py")) == ("completed", 0, "x = 2\n")
    assert replaced(ended) == [("m", "b", "authentication")]
    assert set(models_of(ended)[2:]) == {"b"}
    assert set(models_of(ended, "r1")) == {"m"}
    assert ended.of(PrefixBroken) == []
    check_books(ended, m=m, b=b)
    (broken,) = ended.of(ModelReplaced)
    usage = ended.replies()[0].usage
    assert broken.lost_tokens == usage.input_tokens + usage.output_tokens
    assert broken.price_usd == pytest.approx(broken.lost_tokens * PRICE["input_usd"] / 1_000_000)
    assert (broken.lineage, broken.request) == ("planner.0", ended.of(RequestFailed)[0].request)


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_B054_a_worker_goes_on_and_the_next_one_begins_there(bench: Bench, first: str, second: str):
    """Overloaded after one answer: the retries are used up first. The second run does not ask the first model again."""
    tasks = [task("fix", checks=["grep -q 'x = 2' a.py"]), task("more", depends_on=["fix"], checks=["true"])]
    planner = [start(*tasks), finish("run r2 settled: completed")]

    def work(view: RequestView) -> ReplySpec:
        return sensible(view) if '<task id="fix"' in view.first_user else submit().reply

    with (
        ScriptedServer(scripted(*planner), provider=PROVIDER[first]) as m,
        ScriptedServer(brain=failing("overloaded", role="worker", after=1), provider=PROVIDER[first]) as w,
        ScriptedServer(brain=work, provider=PROVIDER[second]) as b,
    ):
        rows = listed(first, role="worker", w=behind(w, first), b=behind(b, second))
        rows["worker__model__fallback"] = ("b",)
        ended = await bench.run(m, **rows, worker__model__name="w", worker__model__base_url=w.base_url)
        for server in (w, b):
            bench.ended(server)
    assert (ended.outcome, ended.code) == ("completed", 0)
    assert (replaced(ended), replaced(ended, "r1")) == ([], [("w", "b", "overloaded")])
    assert len(ended.of(RequestRetried)) == 2
    assert models_of(ended, "r1")[:2] == ["w", "w"]
    assert {*models_of(ended, "r1")[2:], *models_of(ended, "r2")} == {"b"}
    check_books(ended, m=m, w=w, b=b)


async def test_a_worker_that_is_replaced_in_its_last_step_is_told_so_once(bench: Bench):
    work = failing("quota", role="worker", after=1, brain=lambda _view: bash("true").reply)
    with (
        ScriptedServer(scripted(start(task("fix")), finish("r1 settled: completed"))) as m,
        ScriptedServer(brain=work) as w,
        ScriptedServer(brain=lambda _view: submit().reply) as b,
    ):
        rows = listed(role="worker", b=behind(b, "messages"))
        place = {"worker__model__name": "w", "worker__model__base_url": w.base_url}
        ended = await bench.run(m, **rows, **place, limits__run_steps=2)
        bench.ended(w)
        bench.ended(b)
    assert (ended.outcome, replaced(ended, "r1")) == ("completed", [("w", "b", "quota")])
    assert sum("This is your last step" in text for text in ended.told("r1", "nudge")) == 1


@pytest.mark.parametrize("kind", FOR_ANOTHER)
async def test_what_another_model_may_do_better_goes_to_it(bench: Bench, kind: str):
    with (
        ScriptedServer(brain=failing(kind)) as m,
        ScriptedServer(brain=noting(1, ids="b")) as b,
    ):
        ended = await bench.run(m, **listed(b=behind(b)))
    assert (ended.code, replaced(ended)) == (0, [("m", "b", kind)])
    assert ended.of(ModelReplaced)[0].lost_tokens == 0
    check_books(ended, m=m, b=b)


@pytest.mark.parametrize("kind", FOR_US)
async def test_what_is_ours_to_blame_does_not(bench: Bench, kind: str):
    with (
        ScriptedServer(brain=failing(kind)) as m,
        ScriptedServer(brain=noting(1, ids="b")) as b,
    ):
        ended = await bench.run(m, **listed(b=behind(b)))
    assert ended.code == (6 if kind == "context_overflow" else 9)
    assert (ended.of(ModelReplaced), b.bodies) == ([], [])


@pytest.mark.parametrize(("last", "code"), [("overloaded", 8), ("quota", 9)])
async def test_B057_a_list_that_is_used_up_ends_as_one_model_does(bench: Bench, last: str, code: int):
    with (
        ScriptedServer(brain=failing("not_found", after=1, brain=noting(5))) as m,
        ScriptedServer(brain=failing("authentication")) as b,
        ScriptedServer(brain=failing(last)) as c,
    ):
        ended = await bench.run(m, **listed(b=behind(b, "messages"), c=behind(c, "responses")))
    assert (ended.outcome, ended.code) == ("provider_error", code)
    assert replaced(ended) == [("m", "b", "not_found"), ("b", "c", "authentication")]
    assert ended.record["error"]["class"] == last
    with ScriptedServer(brain=noting(3, ids="b")) as again:
        rows = listed(b=behind(again), c=behind(again, "responses"))
        resumed = await bench.resume(again, **rows)
    assert (resumed.code, models_of(resumed)[-1]) == (0, "c")
    assert len(resumed.of(ModelReplaced)) == 2


async def test_M33_what_it_costs_and_why_is_shown_by_inspect(bench: Bench):
    with (
        ScriptedServer(brain=failing("quota", after=2, brain=noting(9))) as m,
        ScriptedServer(brain=noting(4, ids="b")) as b,
    ):
        ended = await bench.run(m, **listed(b=behind(b, "messages")))
    (broken,) = ended.of(ModelReplaced)
    assert [drift.cause for drift in ended.of(CacheDrifted)] == ["model_changed"]
    reading = Reading(session=bench.session, state=ended.state, events=ended.events)
    shown = document(reading, [])
    (row,) = (row for row in shown["requests"] if row["replaced"])
    assert (row["model"], row["replaced"]["cause"], row["replaced"]["price_usd"]) == ("b", "quota", broken.price_usd)
    (handover,) = (row for row in shown["rebases"] if row["cause"] == "model: quota")
    assert (handover["tokens_before"], handover["price_usd"]) == (broken.lost_tokens, broken.price_usd)
    assert shown["overview"]["models_replaced"][0]["lost_tokens"] == broken.lost_tokens > 1_000
    assert set(shown["cost"]["by_model"]) == {"m", "b"}
    price = f"${broken.price_usd:.4f}"
    assert f"1; planner.0 ended: b in place of m (quota), {broken.lost_tokens:,} tokens lost, {price}" in overview_text(
        reading
    )
    assert f"m (quota), {price}" in part_text(reading, "requests")
    assert "b in place of m; quota: " in part_text(reading, "rebases")
    assert "model  requests" in part_text(reading, "cost")
    assert replay_session(bench.host, bench.session).replacements == 1


@pytest.mark.parametrize(
    ("old", "new"), [('"model":"b"', '"model":"c"'), ('"lineage":"planner.0"', '"lineage":"r1.0"')]
)
async def test_M91_a_break_that_somebody_changed_is_found_out(bench: Bench, old: str, new: str):
    with (
        ScriptedServer(brain=failing("quota", after=1, brain=noting(9))) as m,
        ScriptedServer(brain=noting(2, ids="b")) as b,
    ):
        await bench.run(m, **listed(b=behind(b)))
    rewrite(bench.path, "model_replaced", old, new)
    problems = replay_session(bench.host, bench.session).problems
    assert any("replacement of m for planner: another model or loss" in problem for problem in problems)


async def test_a_fallback_without_its_key_is_refused_before_anything_begins(bench: Bench):
    with ScriptedServer() as m, pytest.raises(UsageError, match="KEY_MISSING: B_KEY is not set"):
        await bench.run(m, **listed(b=behind(m, api_key_env="B_KEY")))
    assert not bench.path.exists()


async def test_an_unknown_price_is_null(bench: Bench):
    with (
        ScriptedServer(brain=failing("quota", after=1, brain=noting(9))) as m,
        ScriptedServer(brain=noting(3, ids="b")) as b,
    ):
        ended = await bench.run(m, **listed(b=behind(b, price=None)))
    (broken,) = ended.of(ModelReplaced)
    assert (broken.price_usd, ended.record["usage"]["cost_usd"]) == (None, None)
    assert ended.record["usage"]["by_model"]["m"]["cost_usd"] > 0
    assert "tokens lost, ?" in overview_text(Reading(session=bench.session, state=ended.state, events=ended.events))


async def test_B054_M95_what_the_first_model_thought_stays_in_the_history_and_is_not_sent_to_the_second(bench: Bench):
    with (
        ScriptedServer(brain=failing("quota", after=2, brain=noting(9))) as m,
        ScriptedServer(brain=noting(4, ids="b")) as b,
    ):
        ended = await bench.run(m, **listed(b=behind(b)))
    thoughts = [item.model for item in ended.state.spines[PLANNER].items if isinstance(item, Reasoning)]
    assert thoughts == ["m", "m", "b", "b"]
    assert b"reasoning_content" in m.bodies[-1]
    assert b"reasoning_content" not in b.bodies[0]


async def test_M62_a_spine_that_does_not_fit_the_new_window_is_rebased_first(bench: Bench):
    with (
        ScriptedServer(brain=failing("quota", after=8, brain=noting(20, "word " * 500))) as m,
        ScriptedServer(brain=lambda _view: finish().reply) as b,
    ):
        row = behind(b, window_tokens=10_000, max_output_tokens=500)
        ended = await bench.run(m, **listed(b=row), spine__policy="threshold")
    assert (ended.code, replaced(ended)) == (0, [("m", "b", "quota")])
    kinds = [type(s.event) for s in ended.events if isinstance(s.event, ModelReplaced | SpineRebased | RequestStarted)]
    assert kinds[-3:] == [ModelReplaced, SpineRebased, RequestStarted]
    (rebased,) = ended.of(SpineRebased)
    assert ended.state.manifests[rebased.manifest].model == "b"
    assert rebased.tokens_before > 9_000 > rebased.tokens_after


@pytest.mark.parametrize("more", range(3))
async def test_B002_killed_between_the_break_and_the_next_request_the_new_model_goes_on(bench: Bench, more: int):
    """The log ends with the declared break, or so many events after it: the first model is not asked again."""
    with (
        ScriptedServer(brain=failing("quota", after=2, brain=noting(9))) as m,
        ScriptedServer(brain=noting(4, ids="b")) as b,
    ):
        whole = await bench.run(m, **listed(b=behind(b, "messages")))
        broken = next(stored.seq for stored in whole.events if isinstance(stored.event, ModelReplaced))
        truncate(bench.path, broken + more)
        asked, first = len(m.bodies), b.bodies[0]
        with ScriptedServer(brain=noting(4, ids="b")) as again:
            ended = await bench.resume(m, **listed(b=behind(again, "messages")))
            bench.ended(again)
        assert len(m.bodies) == asked
        assert again.bodies[0] == first
    assert (ended.code, replaced(ended)) == (0, [("m", "b", "quota")])
    assert [drift.cause for drift in ended.of(CacheDrifted)] == ["model_changed"]
    assert ended.record["usage"]["by_model"]["b"]["requests"] == again.books.requests


def listed_line(b: ScriptedServer) -> dict[str, str]:
    """The same list on a command line."""
    return {"planner.model.fallback": '["b"]', "models.b.base_url": b.base_url, "models.b.wire": "messages"}


def test_B002_B049_killed_in_the_first_request_to_the_new_model_the_same_bytes_go_to_it(bench: Bench):
    def slow(view: RequestView) -> ReplySpec:
        return noting(2, ids="b")(view) if b.bodies else ReplySpec(fault=Fault(hang="start"))

    with (
        ScriptedServer(brain=failing("quota", after=1, brain=noting(9))) as m,
        ScriptedServer(brain=slow) as b,
    ):
        process = begin(bench, run_line(bench, m, settings=listed_line(b)))
        wait_until(lambda: len(b.bodies) > 0, process)
        kill(process)
        code, _, err = finished(begin(bench, resume_line(bench)))
        bench.session = SessionId(session_of(bench))
        ended = bench.ended(b)
    assert code == 0, err
    assert b.bodies[0] == b.bodies[1]
    assert (len(m.bodies), replaced(ended)) == (2, [("m", "b", "quota")])
    assert [one.request for one in ended.of(RequestStarted)] == [1, 2, 3, 3, 4]


def test_B057_the_command_line_goes_on_where_it_was_and_back_when_it_is_told_to(bench: Bench):
    """Both models fail: 8. A resumption asks the second one; `--model` asks the first one again."""
    after = [1]

    def brain(view: RequestView) -> ReplySpec:
        return failing("overloaded", after=after[0], brain=noting(3))(view)

    with ScriptedServer(brain=brain) as m, ScriptedServer(brain=failing("overloaded")) as b:
        code, out, err = finished(begin(bench, run_line(bench, m, "--output", "json", settings=listed_line(b))))
        assert (code, records(out)[0]["error"]["class"]) == (8, "overloaded")
        assert "planner goes on with b in place of m (overloaded): " in err
        asked = (len(m.bodies), len(b.bodies))
        code, out, _ = finished(begin(bench, resume_line(bench, "--dry-run", "--output", "json")))
        assert [row["model"] for row in records(out)[0]["requests"]] == ["b"]
        code, out, _ = finished(begin(bench, resume_line(bench, "--dry-run", "--output", "json", "--model", "m")))
        assert [row["model"] for row in records(out)[0]["requests"]] == ["m"]
        code, _, _ = finished(begin(bench, resume_line(bench)))
        assert (code, len(m.bodies)) == (8, asked[0])
        assert len(b.bodies) > asked[1]
        after[0] = 9
        code, _, err = finished(begin(bench, resume_line(bench, "--model", "m")))
        bench.session = SessionId(session_of(bench))
        ended = bench.ended(m)
    assert code == 0, err
    assert replaced(ended) == [("m", "b", "overloaded"), ("b", "m", "chosen")]


async def test_a_resumption_stays_and_the_users_choice_wins(bench: Bench):
    """Back to the first model, and to one that is in no list: each is a declared break."""
    with (
        ScriptedServer(brain=failing("quota", after=1, brain=noting(9))) as m,
        ScriptedServer(brain=noting(9, ids="b")) as b,
        ScriptedServer(brain=noting(9, ids="h")) as healed,
        ScriptedServer(brain=noting(9, ids="d")) as d,
    ):
        rows = listed(b=behind(b, "messages"))
        await bench.run(m, **rows, limits__steps=2)
        stayed = await bench.resume(m, **rows, limits__steps=3)
        assert models_of(stayed) == ["m", "m", "b", "b"]
        back = await bench.resume(healed, chosen=("planner",), **rows, limits__steps=4)
        assert models_of(back)[4:] == ["m"]
        away = await bench.resume(d, **rows, planner__model__name="d", limits__steps=5)
        assert models_of(away)[5:] == ["d"]
    assert replaced(away) == [("m", "b", "quota"), ("b", "m", "chosen"), ("m", "d", "chosen")]
    assert away.of(PrefixBroken) == []


async def test_the_money_is_reserved_at_the_price_of_the_model_in_force(bench: Bench):
    dear = {"input_usd": 1_000.0, "output_usd": 1_000.0}
    with (
        ScriptedServer(brain=failing("quota", after=1, brain=noting(9))) as m,
        ScriptedServer(brain=noting(2, ids="b")) as b,
    ):
        ended = await bench.run(m, **listed(b=behind(b, price=dear)), limits__usd=1.0)
    assert (ended.outcome, b.bodies, replaced(ended)) == ("limit", [], [("m", "b", "quota")])
    assert ended.state.limit.limit == "usd"


@pytest.mark.parametrize("seed", range(6))
async def test_any_faults_end_with_the_right_model_and_a_break_for_each_fallback(bench: Bench, seed: int):
    """Three models, each of which fails after some answers or never: the first that does not fail has the last word."""
    dice = random.Random(seed)
    plans = [(dice.choice(FOR_ANOTHER), dice.choice((0, 1, 2, 99))) for _ in range(3)]
    brains = [
        failing(kind, after=after, brain=noting(6, ids=ids)) for ids, (kind, after) in zip("mbc", plans, strict=True)
    ]
    wires = dice.sample(["chat", "messages", "responses"], 3)
    with (
        ScriptedServer(brain=brains[0], provider=PROVIDER[wires[0]]) as m,
        ScriptedServer(brain=brains[1], provider=PROVIDER[wires[1]]) as b,
        ScriptedServer(brain=brains[2], provider=PROVIDER[wires[2]]) as c,
    ):
        ended = await bench.run(m, **listed(wires[0], b=behind(b, wires[1]), c=behind(c, wires[2])))
        bench.ended(b)
        bench.ended(c)
    lasting = next((n for n, (_, after) in enumerate(plans) if after == 99), None)
    names = ["m", "b", "c"]
    expected = names if lasting is None else names[: lasting + 1]
    breaks = replaced(ended)
    assert [(old, new) for old, new, _ in breaks] == list(pairwise(expected))
    assert [cause for *_, cause in breaks] == [kind for kind, _ in plans[: len(breaks)]]
    assert (ended.outcome == "completed") == (lasting is not None)
    assert models_of(ended)[-1] == expected[-1]
    check_books(ended, m=m, b=b, c=c)
