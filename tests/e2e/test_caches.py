"""Whole sessions against providers with caches: what is asked of them, what they report, what it costs."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import Bench, Ended, bash, call, delegate, finish, on, plan, scripted, start, submit, task
from xnagent.core.ids import PLANNER
from xnagent.core.spine_events import ReplyReceived, RequestStarted, SpineExtended, SpineRebased
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document, part_text
from xnagent.testing.script import Script
from xnagent.testing.server import ScriptedServer

LONG = "Make it so. " + "Mind the details. " * 1_500
PRICE = {
    "input_usd": 4.0,
    "cached_usd": 0.4,
    "cache_write_usd": 5.0,
    "cache_write_long_usd": 8.0,
    "output_usd": 20.0,
}
MESSAGES: dict[str, Any] = {
    "planner__model__wire": "messages",
    "models": {"m": {"price": PRICE}},
}


def story() -> Script:
    return scripted(
        start(task("a")), finish("r1 settled: completed"), workers={"a": [bash("echo 'x = 2' > a.py"), submit()]}
    )


def split(ended: Ended, agent: str) -> list[tuple[int, int]]:
    """Tokens written for five minutes and for an hour, for each reply."""
    return [
        (reply.usage.cache_write_short_tokens, reply.usage.cache_write_long_tokens) for reply in ended.replies(agent)
    ]


@pytest.mark.parametrize("asked", ["auto", "5m", "1h"])
async def test_M33_B067_writes_are_asked_for_reported_and_priced_by_lifetime(bench: Bench, asked: str):
    with ScriptedServer(story(), provider="anthropic") as server:
        ended = await bench.run(server, LONG, planner__model__cache_ttl=asked, **MESSAGES)
        server.check()
    assert ended.outcome == "completed"
    planner, worker = split(ended, PLANNER), split(ended, "r1")
    assert all(long == 0 for _, long in worker)
    has_long = [long > 0 for _, long in planner]
    # Only while the run is active the Planner is about to wait.
    expected = {"auto": [False, True, False], "5m": [False] * 3, "1h": [True] * 3}
    assert has_long == expected[asked]
    written = sum(short + long for short, long in [*planner, *worker])
    assert written == server.books.written_tokens == ended.record["usage"]["cache_write_tokens"]
    assert sum(long for _, long in planner) == server.books.written_long_tokens
    for reply in ended.of(ReplyReceived):
        usage = reply.usage
        fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        dollars = fresh * 4 + usage.cached_tokens * 0.4 + usage.output_tokens * 20
        dollars += usage.cache_write_short_tokens * 5 + usage.cache_write_long_tokens * 8
        assert reply.cost_usd == pytest.approx(dollars / 1e6)


async def test_M33_predictions_are_what_the_provider_reports(bench: Bench):
    models = {"m": {"price": PRICE, "cache_minimum_tokens": 1024}}
    with ScriptedServer(story(), provider="anthropic") as server:
        ended = await bench.run(server, LONG, planner__model__wire="messages", models=models)
    predicted = {started.request: started.predicted_cached_tokens for started in ended.of(RequestStarted)}
    known = [(predicted[reply.request], reply.usage.cached_tokens) for reply in ended.of(ReplyReceived)]
    pairs = [pair for pair in known if pair[0] is not None]
    assert len(pairs) >= 3
    assert all(left == right for left, right in pairs)


async def test_M33_inspect_shows_what_was_written_for_how_long(bench: Bench):
    with ScriptedServer(story(), provider="anthropic") as server:
        ended = await bench.run(server, LONG, **MESSAGES)
    reading = Reading(session=bench.session, state=ended.state, events=ended.events)
    shown = document(reading, ["requests", "cost"])
    rows = shown["requests"]
    planner = [row for row in rows if row["agent"] == PLANNER]
    assert [row["cache_write_long_tokens"] for row in planner] == [long for _, long in split(ended, PLANNER)]
    assert [row["long_items"] for row in planner] == [0, planner[1]["items"], planner[1]["items"]]
    assert shown["cost"]["by_role"]["planner"]["cache_write_long_tokens"] == server.books.written_long_tokens
    for part in ("requests", "cost"):
        assert "for long" in part_text(reading, part)


OPENING_TOKENS = 16
"""The first bytes of a message are the same whoever speaks; where a block ends among them, it is shared too."""


async def test_M34_deepseek_a_rebase_finds_system_tools_and_its_first_message(bench: Bench):
    steps = [bash(f"seq 1 2500; echo {number}") for number in range(8)]
    script = scripted(start(task("a")), finish("r1 settled: completed"), workers={"a": [*steps, submit()]})
    with ScriptedServer(script, provider="deepseek") as server:
        ended = await bench.run(server, planner__model__window=16_000, planner__model__max_output_tokens=2_000)
    rebased = [number for number, stored in enumerate(ended.events) if isinstance(stored.event, SpineRebased)]
    assert rebased
    first = ended.replies("r1")[0].usage
    for number in rebased:
        later = (stored.event for stored in ended.events[number:])
        reply = next(event for event in later if isinstance(event, ReplyReceived) and event.agent == "r1")
        shared = reply.usage.cached_tokens // 64 * 64
        assert first.input_tokens // 64 * 64 <= shared <= (first.input_tokens + OPENING_TOKENS) // 64 * 64


READ = call("read", path="long.md")


@pytest.mark.parametrize("has_whole_requests", [True, False])
async def test_M34_deepseek_a_rebase_of_the_planner_finds_its_objective_if_that_was_a_request(
    tmp_path: Path, has_whole_requests: bool
):
    bench = Bench(tmp_path, files={"long.md": "many words\n" * 3_000})
    script = scripted(on("<objective>", calls=[READ]), on(calls=[READ], times=5), finish(), wait=None)
    with ScriptedServer(script, provider="deepseek") as server:
        ended = await bench.run(
            server,
            "Read it. " + "With care. " * 300,
            planner__model__window=16_000,
            planner__model__max_output_tokens=2_000,
            models={"m": {"cache_whole_requests": has_whole_requests}},
        )
        server.check()
    assert ended.outcome == "completed"
    rebased = next(number for number, stored in enumerate(ended.events) if isinstance(stored.event, SpineRebased))
    later = (stored.event for stored in ended.events[rebased:])
    cached = next(event for event in later if isinstance(event, ReplyReceived)).usage.cached_tokens
    objective = ended.replies()[0].usage.input_tokens
    if has_whole_requests:
        assert ended.of(RequestStarted)[0].items == 1
        assert cached == objective // 64 * 64 > 1_000
    else:
        assert cached < objective // 64 * 64


async def test_M34_the_state_comes_as_soon_as_there_is_something_to_tell(bench: Bench):
    planned = on("<objective>", calls=[plan(task("a")), *delegate("a")])
    script = scripted(planned, finish("r1 settled: completed"), workers={"a": [submit()]})
    with ScriptedServer(script, provider="deepseek") as server:
        ended = await bench.run(server, models={"m": {"cache_whole_requests": True}})
        server.check()
    assert ended.outcome == "completed"
    kinds = [event.kind for event in ended.of(SpineExtended) if event.agent == PLANNER]
    assert kinds[:2] == ["objective", "baseline"]
    assert '"a":{' in ended.told(kind="baseline")[0]
    assert next(started.items for started in ended.of(RequestStarted) if started.agent == PLANNER) == 1
