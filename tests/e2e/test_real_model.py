"""A session against a real llama.cpp server with a real small model, read from xnagent's own ledger.

`scripts/check-real` installs and starts one. What a model of this size makes of the objective is not judged: that it
works with our prompts and tools, is served from its cache, and leaves a log that can be replayed, is.
"""

import json
import os
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from tests.agents.test_lasting import NoPlace
from tests.e2e.bench import Bench, Ended, server_settings
from xnagent.agents.asking import ask
from xnagent.agents.desk import Desk, Seat
from xnagent.agents.results import close_calls
from xnagent.agents.room import rebase
from xnagent.agents.summarizing import Summarizer
from xnagent.app.crew import make_manifest, worker_toolbox
from xnagent.app.host import SystemClock
from xnagent.app.running import SessionSpec, Stop, run_session
from xnagent.config import Settings
from xnagent.core.events import SessionStarted
from xnagent.core.ids import PLANNER, AgentId, CallId, SessionId
from xnagent.core.items import ToolCall, UserText
from xnagent.core.limits import Limits
from xnagent.core.permissions import Rules
from xnagent.core.rebase import RebasePolicy
from xnagent.core.retry import RetryPolicy
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded, ReplyReceived, SpineExtended, ToolFinished
from xnagent.core.summary_events import SummaryFailed, SummaryMade
from xnagent.core.text import canonical
from xnagent.core.tokens import Usage
from xnagent.errors import ModelError
from xnagent.inspect.requests import RequestRow, request_rows
from xnagent.models.catalog import ModelEntry, create_model
from xnagent.models.transport import Timeouts
from xnagent.ports import Body, Model, Reply
from xnagent.store.reading import read_events
from xnagent.store.sqlite import SessionStore

URL = os.environ.get("REAL_MODEL_URL", "")
SLOTS = int(os.environ.get("REAL_MODEL_SLOTS", "3"))
SECONDS = float(os.environ.get("REAL_MODEL_SECONDS", "1500"))
TARGET = 0.95
WORKER = AgentId("r1")
MODEL = "local"
OBJECTIVE = """\
Call plan with {"tasks": [{"checks": ["grep -q hello greeting.txt"], "id": "greet", "objective": "First call read with \
path README.md. After its result call write to make the file greeting.txt with the content hello. Then call submit.", \
"title": "Greeting"}]}.
Then call delegate with {"task": "greet"}."""

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(not URL, reason="no real model: run scripts/check-real, which installs and starts one"),
    pytest.mark.timeout(SECONDS + 60),
]


def settings() -> Settings:
    return server_settings(
        URL,
        planner__model__name=MODEL,
        planner__model__window=16_384,
        planner__model__max_output_tokens=300,
        planner__model__temperature=0,
        models__local__slots=SLOTS,
        timeouts__idle_seconds=SECONDS,
        timeouts__progress_seconds=SECONDS,
        timeouts__total_seconds=SECONDS,
        limits__deadline_seconds=SECONDS,
        limits__steps=40,
        sandbox__mode="off",
    )


async def run(bench: Bench) -> Ended:
    """Judged by `ended`: replayed byte for byte, balanced, nothing left at work."""
    spec = SessionSpec(objective=OBJECTIVE, repository=bench.repository, settings=settings(), session=bench.session)
    with anyio.fail_after(SECONDS + 30):
        await run_session(bench.host, spec, stop=Stop())
    return bench.ended()


def again(rows: list[RequestRow]) -> list[tuple[int, int, int]]:
    """From the second request of a lineage on: what it sends again (the one before and its reply), input, cached."""
    return [
        (
            (before.usage.input_tokens or 0) + (before.usage.output_tokens or 0),
            row.usage.input_tokens or 0,
            row.usage.cached_tokens or 0,
        )
        for before, row in pairwise(rows)
        if before.generation == row.generation
    ]


def tell(text: str) -> None:
    """For `scripts/check-real`, which shows what tests write."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def told(row: RequestRow) -> str:
    usage = row.usage
    sizes = f"in {usage.input_tokens} cached {usage.cached_tokens} out {usage.output_tokens}"
    return f"{row.request:3} {row.agent:8} {sizes} {row.finish} {row.duration_seconds} s {row.note}"


async def test_M121_a_session_with_a_real_model_is_served_from_its_cache(bench: Bench):
    ended = await run(bench)
    rows = [row for row in request_rows(ended.events) if row.finish is not None]
    tell("\n".join(map(told, rows)))
    tell(json.dumps(ended.record))
    assert ended.outcome in {"completed", "partial", "failed", "blocked", "limit", "deadline"}
    assert ended.record["spine"]["breaks"] == 0
    assert all(row.usage.cached_tokens is not None and not row.usage.is_estimated and not row.note for row in rows)
    for agent in (PLANNER, AgentId("r1")):
        pairs = again([row for row in rows if row.agent == agent])
        assert pairs, f"{agent} sent fewer than two requests"
        shares = [min(cached, before) / before for before, _, cached in pairs]
        resent, served = sum(before for before, _, _ in pairs), sum(min(cached, before) for before, _, cached in pairs)
        tell(
            f"{agent}: {len(pairs)} requests after the first: {served:,} of {resent:,} re-sent tokens came from the "
            f"cache, {served / resent:.2%}, at least {min(shares):.2%} each; "
            f"{sum(cached for _, _, cached in pairs) / sum(now for _, now, _ in pairs):.2%} of all their input"
        )
        assert min(shares) > TARGET


def manifest(slots: int | None) -> ManifestRecorded:
    preamble = "\n".join(f"Rule {n}: keep the number {n * n} in mind, and do not speak of it." for n in range(1, 25))
    options = {"temperature": 0} if slots is None else {"temperature": 0, "slots": slots}
    return ManifestRecorded(
        manifest="m1",
        role="worker",
        wire="chat",
        model=MODEL,
        system=preamble,
        tools="[]",
        max_output_tokens=8,
        window_tokens=16_384,
        options=canonical(options),
    )


async def rounds(slots: int | None) -> float:
    """Two Workers with one preamble in turn; what came from the cache of what they sent again."""
    model = create_model(
        ModelEntry(name=MODEL, base_url=URL),
        None,
        timeouts=Timeouts(idle_seconds=SECONDS, progress_seconds=SECONDS, total_seconds=SECONDS),
    )
    before, served, resent = dict[AgentId, int](), 0, 0
    spines = {AgentId(f"r{n}"): Spine(agent=AgentId(f"r{n}")) for n in (1, 2)}
    for number in range(3):
        for agent, spine in spines.items():
            words = " ".join(f"{agent}-{number}-{n}" for n in range(60))
            text = UserText(text=f"Say only: yes. {words}", origin="user")
            grown = Spine(agent=agent, items=(*spine.items, text))
            reply = await model.send(model.encode(manifest(slots), grown))
            spines[agent] = Spine(agent=agent, items=(*grown.items, *reply.items))
            if agent in before:
                resent += before[agent]
                served += min(reply.usage.cached_tokens, before[agent])
            before[agent] = reply.usage.input_tokens
    await model.aclose()
    return served / resent


async def test_workers_with_one_preamble_keep_their_caches_only_when_pinned(tmp_path: Path):
    loose, pinned = await rounds(None), await rounds(SLOTS)
    tell(f"two Workers in turn: {loose:.2%} of the re-sent prefix without pinning, {pinned:.2%} pinned")
    assert pinned > TARGET
    assert loose < pinned


async def said(model: Model, body: Body) -> Reply:
    """The answer; this server now and then ends a connection that it has just said to keep."""
    for _ in range(3):
        try:
            return await model.send(body)
        except ModelError as error:
            if error.fault != "connection":
                raise
    return await model.send(body)


async def begun(slots: int | None) -> list[tuple[int, int, float]]:
    """The first request of each of three Workers, one after the other: input, cached, seconds to the first token."""
    model = create_model(
        ModelEntry(name=MODEL, base_url=URL),
        None,
        timeouts=Timeouts(idle_seconds=SECONDS, progress_seconds=SECONDS, total_seconds=SECONDS),
    )
    found = []
    for agent in (AgentId("r1"), AgentId("r2"), AgentId("r3")):
        head = replace(manifest(slots), system=f"{manifest(slots).system}\nThere are {slots} slots.")
        text = UserText(text=f"Say only: yes, I am {agent}.", origin="user")
        reply = await said(model, model.encode(head, Spine(agent=agent, items=(text,))))
        usage = reply.usage
        found.append((usage.input_tokens or 0, usage.cached_tokens or 0, reply.first_token_seconds or 0.0))
    await model.aclose()
    return found


async def test_M29_three_workers_share_a_head_as_far_as_the_server_lets_them(tmp_path: Path):
    """The third Worker comes to the first one's slot; what the second one finds is only told."""
    loose, pinned = await begun(None), await begun(SLOTS)
    for name, rows in (("not pinned", loose), ("pinned", pinned)):
        shares = ", ".join(f"{cached} of {whole} in {first:.2f} s" for whole, cached, first in rows)
        tell(f"three Workers with one head, {name}: cached {shares}")
    whole, cached, _ = pinned[2]
    assert cached / whole > 0.9
    assert max(one / all_ for all_, one, _ in loose[1:]) > 0.9


BRIEF = """\
<task id="fix" run="r1">
Task fix: Make the server listen

The server in src/server.py does not start. Find out why, and make `python -m server --check` exit with 0.
</task>

Do this task now."""
STEPS = (
    ('{"command":"python -m server --check"}', "OSError: port 8080 is in use by build-20417\n" * 12 + "exit code 3"),
    ('{"command":"cat src/server.py"}', "import config\n\ndef main():\n    bind(config.PORT)\n" * 30),
    (
        '{"command":"cat src/config.py"}',
        "# The port that is free on this machine is 8443.\nPORT = 8080\nHOST = 'localhost'\n" * 20,
    ),
)


async def write_history(store: SessionStore) -> None:
    """What a Worker did before its history is summarized."""
    await store.append(SpineExtended(agent=WORKER, kind="brief", items=(UserText(text=BRIEF, origin="task"),)))
    for number, (arguments, text) in enumerate(STEPS):
        call = ToolCall(call_id=CallId(f"c{number}"), name="bash", arguments=arguments)
        reply = ReplyReceived(
            agent=WORKER,
            request=0,
            items=(call,),
            usage=Usage(),
            cost_usd=None,
            finish="tool_calls",
            duration_seconds=0.0,
        )
        await store.append(reply, ToolFinished(agent=WORKER, call_id=call.call_id, tool="bash", text=text))


def worker_seat(store: SessionStore) -> Seat:
    rules, entry = Rules(), ModelEntry(name=MODEL, base_url=URL, max_output_tokens=700, window_tokens=16_384)
    box = worker_toolbox(store, rules=rules)
    made = make_manifest("worker", entry, definitions=box.definitions)
    recorded = replace(made, options=canonical({"temperature": 0, "slots": SLOTS}))
    timeouts = Timeouts(idle_seconds=SECONDS, progress_seconds=SECONDS, total_seconds=SECONDS)
    return Seat(
        agent=WORKER,
        model=create_model(entry, None, timeouts=timeouts),
        manifest=recorded,
        price=None,
        policy=RebasePolicy(tail_share=0.0, least_tail_tokens=0, newest_share=0.0, min_gain_share=0.01),
        toolbox=box,
        place=NoPlace(),
        head_tokens=recorded.head_tokens,
        placed=frozenset(),
        condenser=Summarizer(),
    )


async def test_M37_a_summary_is_asked_of_a_real_model_and_read_from_its_cache(tmp_path: Path):
    """What it writes is shown and not judged, that the live request is served from the cache is."""
    session = SessionId("s-real")
    store = await SessionStore.create(tmp_path / "s-real.db", session=session, clock=SystemClock())
    seat = worker_seat(store)
    await store.append(SessionStarted(session=session, objective="x", base="c"), seat.manifest)
    await write_history(store)
    desk = Desk(log=store, clock=SystemClock(), limits=Limits(), retry=RetryPolicy(), prefix="strict")
    await ask(desk, seat)
    await close_calls(desk, WORKER, code="CLOSED")
    await rebase(desk, seat, cause="soft")
    events = tuple(read_events(tmp_path / "s-real.db"))
    await store.aclose()
    await seat.model.aclose()
    live, *asked = [row for row in request_rows(events) if row.usage.input_tokens]
    tell("\n".join(told(row) for row in (live, *asked)))
    for event in (stored.event for stored in events):
        if isinstance(event, SummaryMade | SummaryFailed):
            tell(str(event))
    before = live.usage.input_tokens
    share = asked[0].usage.cached_tokens / before
    tell(f"{share:.2%} of the {before} tokens of the live request came from the cache")
    assert [row.purpose for row in asked] == ["summary"] * len(asked)
    assert share > TARGET
