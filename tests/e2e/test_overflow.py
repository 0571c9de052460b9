"""Theme 5 and the cache rows on every wire: prompts that are too long for their provider, and what its cache serves."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.e2e.bench import Bench, Ended, call, finish, on, scripted, start, submit, task
from tests.e2e.test_wires import PROVIDER, WIRES
from xnagent.core.events import LimitReached
from xnagent.core.spine_events import RebaseRefused, ReplyReceived, RequestStarted, SpineRebased
from xnagent.testing.choice import Brain, RequestView
from xnagent.testing.providers import PROVIDERS, Provider
from xnagent.testing.script import ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer

on_every_wire = pytest.mark.parametrize("wire", WIRES)
LONG = "thinking " * 600


def look(text: str = LONG, count: int = 1, **fields: object) -> ReplySpec:
    return ReplySpec(calls=(call("glob", pattern="*"),) * count, text=text, **fields)


def small(wire: str, tokens: int) -> Provider:
    """The provider, in its own words, with a window that is smaller than the client believes."""
    return replace(PROVIDERS[PROVIDER[wire]], window_tokens=tokens)


def set_to(wire: str, **settings: object) -> dict[str, object]:
    return {"planner__model__wire": wire, "planner__model__max_output_tokens": 1_000, **settings}


@on_every_wire
async def test_B028_B032_M37_M71_M94_an_overflow_is_cured_by_one_smaller_request(bench: Bench, wire: str):
    """The history is rebased from stored state: no request is made for that, so none can be too long."""

    def brain(view: RequestView) -> ReplySpec:
        is_rebased = any("<checkpoint" in str(one) for one in view.messages if one["role"] == "user")
        return finish().reply if is_rebased else look()

    with ScriptedServer(brain=brain, provider=small(wire, 11_000)) as server:
        ended = await bench.run(server, **set_to(wire, planner__model__window=100_000))
        server.check()
    assert (ended.outcome, ended.code) == ("completed", 0)
    assert [event.cause for event in ended.of(SpineRebased)] == ["overflow"]
    assert (server.count("overflows"), server.count("rebases"), server.count("breaks")) == (1, 1, 0)
    assert len(server.bodies) == len(ended.of(ReplyReceived)) + 1
    assert len(server.bodies[-1]) < len(server.bodies[-2])


@on_every_wire
async def test_M71_an_overflow_of_the_smaller_request_too_is_the_end(bench: Bench, wire: str):
    with ScriptedServer(brain=lambda _view: look(), provider=small(wire, 11_000)) as server:
        ended = await bench.run(server, "Do it. " * 8_000, **set_to(wire, planner__model__window=100_000))
    assert (ended.outcome, ended.code, len(server.bodies)) == ("limit", 6, 1)
    assert ended.record["error"]["class"] == "context_exhausted"
    assert ended.of(LimitReached)
    assert (len(ended.of(RebaseRefused)), len(ended.of(SpineRebased))) == (1, 0)


@on_every_wire
async def test_B029_B032_M71_the_second_request_is_only_sent_if_it_is_smaller_and_no_third_one(bench: Bench, wire: str):
    """What must stay grows over the provider's window: the requests end, each smaller than the one that was refused."""

    def brain(_view: RequestView) -> ReplySpec:
        return ReplySpec(calls=(call("record_fact", text="word " * 180, pinned=True),) * 4)

    with ScriptedServer(brain=brain, provider=small(wire, 11_000)) as server:
        ended = await bench.run(server, **set_to(wire, planner__model__window=100_000))
    assert (ended.outcome, ended.code) == ("limit", 6)
    assert ended.record["error"]["class"] == "context_exhausted"
    refused = len(server.bodies) - len(ended.of(ReplyReceived))
    assert refused == server.count("overflows") <= 2 * (len(ended.of(SpineRebased)) + len(ended.of(RebaseRefused)))
    sizes = {len(body) for body in server.bodies}
    assert len(sizes) == len(server.bodies)
    last_two = server.bodies[-2:]
    assert refused == 1 or len(last_two[1]) < len(last_two[0])


@on_every_wire
async def test_M71_M94_a_worker_is_cured_in_place_and_its_run_succeeds(bench: Bench, wire: str):
    steps = [on(calls=[call("bash", command=f"seq 1 900; echo {number}")]) for number in range(6)]
    script = scripted(start(task("a")), finish("r1 settled: completed"), workers={"a": [*steps, submit()]})
    with ScriptedServer(script, provider=small(wire, 9_000)) as server:
        settings = {"planner__model__window": 100_000, "worker__model__window": 100_000}
        ended = await bench.run(server, **set_to(wire, **settings))
        server.check()
    assert (ended.outcome, ended.run("r1").status) == ("completed", "completed")
    assert {event.cause for event in ended.of(SpineRebased) if event.agent == "r1"} == {"overflow"}
    assert server.count("overflows") == len(ended.of(SpineRebased)) >= 1


@on_every_wire
@pytest.mark.parametrize("quirk", ["no_usage", "null_usage"])
async def test_B069_B030_M62_without_usage_room_is_made_in_time_and_the_cost_is_not_0(
    bench: Bench, wire: str, quirk: str
):
    def brain(view: RequestView) -> ReplySpec:
        return replace(finish().reply if view.number > 12 else look(), quirks=(quirk,))

    price = {"m": {"price": {"input_usd": 1.0, "output_usd": 4.0}}}
    with ScriptedServer(brain=brain, provider=small(wire, 16_000)) as server:
        ended = await bench.run(server, models=price, **set_to(wire, planner__model__window=16_000))
        server.check()
    assert (ended.outcome, server.count("overflows")) == ("completed", 0)
    assert ended.of(SpineRebased)
    is_known = (wire, quirk) == ("messages", "null_usage")  # there, null in the last event takes nothing back (B068)
    assert all(reply.usage.is_estimated is not is_known for reply in ended.replies())
    assert all(reply.usage.input_tokens > 1_000 for reply in ended.replies())
    assert all(event.estimate_tokens + 1_000 <= 16_000 for event in ended.of(RequestStarted))
    assert ended.record["usage"]["cost_usd"] != 0


@on_every_wire
@pytest.mark.parametrize("most", [100_000, 12_000])
async def test_B031_the_whole_window_as_output_limit_leaves_room_for_input(bench: Bench, wire: str, most: int):
    with ScriptedServer(brain=lambda _view: finish().reply, provider=small(wire, 30_000)) as server:
        ended = await bench.run(
            server, planner__model__wire=wire, planner__model__window=30_000, planner__model__max_output_tokens=most
        )
        server.check()
    request = ended.of(RequestStarted)[0]
    limits = [one.request.data.get(name) for one in server.exchanges for name in ("max_tokens", "max_output_tokens")]
    assert all(limit is None or 1_024 <= limit <= 30_000 - request.estimate_tokens for limit in limits)
    assert (ended.code, ended.of(SpineRebased)) == (0, [])


def steps(*replies: ReplySpec) -> Brain:
    def brain(view: RequestView) -> ReplySpec:
        return replies[view.number - 1] if view.number <= len(replies) else finish().reply

    return brain


def fact(number: int) -> ScriptedCall:
    return call("record_fact", text=f"fact {number} of the matter")


def worker(view: RequestView) -> ReplySpec:
    if view.role == "worker":
        line = call("bash", command=f"echo {view.number}")
        return submit().reply if view.number > 6 else ReplySpec(calls=(line,), text="On.")
    if "r1 settled" in view.new_text:
        return finish().reply
    return start(task("a")).reply if view.number == 1 else ReplySpec(text="Waiting.")


CASES: dict[str, Brain] = {
    "one call each": steps(*[look("Look.")] * 5),
    "long thoughts": steps(*[look("Look.", reasoning="hm " * 80)] * 5),
    "parallel calls": steps(*[look("Look.", count=4)] * 5),
    "25 at once": steps(look("x"), look("x", count=25), *[look("x")] * 4),
    "facts": steps(*[ReplySpec(calls=(fact(number),)) for number in range(5)]),
    "errors": steps(*[ReplySpec(calls=(call("glob", "{}"), call("nothing", "[]")))] * 5),
    "words only": steps(*[look("word " * 60)] * 5),
    "a Worker": worker,
}


def hit_rate(ended: Ended) -> float:
    """Of the last three requests of whoever made most of them."""
    agents = {reply.agent for reply in ended.of(ReplyReceived)}
    replies: Sequence[ReplyReceived] = max((ended.replies(agent) for agent in agents), key=len)[-3:]
    return sum(reply.usage.cached_tokens / reply.usage.input_tokens for reply in replies) / len(replies)


@on_every_wire
async def test_M36_B007_eight_kinds_of_sessions_are_read_from_the_cache(make_bench: Callable[[str], Bench], wire: str):
    """90 % of the last three requests, at most one kind below."""
    rates = {}
    for name, brain in CASES.items():
        bench = make_bench(name)
        with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
            ended = await bench.run(server, **set_to(wire, models={"m": {"send_reasoning": True}}))
            server.check()
        rates[name] = round(hit_rate(ended), 3)
    assert len(rates) == 8
    assert sum(rate < 0.9 for rate in rates.values()) <= 1, rates
    assert min(rates.values()) > 0.8, rates


@pytest.fixture
def make_bench(tmp_path) -> Callable[[str], Bench]:
    return lambda name: Bench(tmp_path / name)
