"""How long what a request leaves in the cache is to live: chosen from the log, kept in it, and made again from it."""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import pytest

from xnagent.agents.asking import ask
from xnagent.agents.desk import Desk, Seat
from xnagent.agents.lasting import lasting
from xnagent.app.replay import replay, request_bytes
from xnagent.core.caching import CacheRule
from xnagent.core.events import RunStarted, SessionStarted, TaskAdded
from xnagent.core.ids import PLANNER, RunId, SessionId, TaskId
from xnagent.core.items import AssistantText, UserText
from xnagent.core.lifetime import Lifetime
from xnagent.core.limits import Limits
from xnagent.core.pricing import Price
from xnagent.core.rebase import RebasePolicy
from xnagent.core.retry import RetryPolicy
from xnagent.core.spine import Spine
from xnagent.core.spine_events import CacheDrifted, ManifestRecorded, RequestStarted, SpineExtended
from xnagent.core.state import spine_of
from xnagent.core.tokens import Usage
from xnagent.models.encoder import Encoder
from xnagent.models.messages import MessagesRenderer
from xnagent.ports import Body, Reply, Workspace
from xnagent.store.reading import read_events
from xnagent.store.sqlite import SessionStore
from xnagent.testing.doubles import FakeClock
from xnagent.tools.toolbox import toolbox

SESSION = SessionId("s-lasting")
INPUT_TOKENS = 20_000
RULE = CacheRule(lifetime_seconds=300.0, long_lifetime_seconds=3_600.0)
PRICE = Price(input_usd=4, cached_usd=0.4, cache_write_usd=5, cache_write_long_usd=8, output_usd=20)
MANIFEST = ManifestRecorded(
    manifest="m1",
    role="planner",
    wire="messages",
    model="a",
    system="Be good.",
    tools="[]",
    max_output_tokens=1_000,
    window_tokens=200_000,
)


class Talker:
    """Encodes as the wire does, and answers the same again and again."""

    def __init__(self, cached: int | None) -> None:
        self._encoder = Encoder(MessagesRenderer())
        self._cached = cached

    def encode(self, manifest: ManifestRecorded, spine: Spine) -> Body:
        return self._encoder.encode(manifest, spine)

    async def send(self, body: Body) -> Reply:
        usage = Usage(input_tokens=INPUT_TOKENS, output_tokens=10, cached_tokens=self._cached)
        return Reply(items=(AssistantText(text="Well."),), usage=usage, finish="stop")

    async def aclose(self) -> None:
        pass


class NoPlace:
    async def open(self) -> Workspace:
        raise AssertionError("no tool acts here")


@dataclass
class Table:
    """A Planner that asks by hand, and by another clock."""

    path: Path
    store: SessionStore
    clock: FakeClock
    desk: Desk

    async def ask(
        self, *, after: float = 0.0, lifetime: Lifetime = "auto", cached: int | None = None, price: Price | None = PRICE
    ) -> int:
        """One request, so many seconds after the one before; how many items of it are to live long."""
        self.clock.advance(after)
        seat = self.seat(lifetime, cached=cached, price=price)
        await self.store.append(
            SpineExtended(agent=PLANNER, kind="nudge", items=(UserText(text="On.", origin="harness"),))
        )
        await ask(self.desk, seat)
        started = self.events(RequestStarted)[-1]
        assert started.long_items in {0, started.items} or started.long_items < started.items
        return started.long_items

    def seat(self, lifetime: Lifetime, *, cached: int | None = None, price: Price | None = PRICE) -> Seat:
        return Seat(
            agent=PLANNER,
            model=Talker(cached),
            manifest=MANIFEST,
            price=price,
            policy=RebasePolicy(),
            toolbox=toolbox([]),
            place=NoPlace(),
            head_tokens=10,
            placed=frozenset(),
            cache=RULE,
            lifetime=lifetime,
        )

    async def delegate(self) -> None:
        """From now on a run is active."""
        task = TaskId("a")
        await self.store.append(TaskAdded(task=task, title="A", objective="Do a."))
        await self.store.append(RunStarted(run=RunId("r1"), task=task, brief=""))

    def events(self, kind: type) -> list:
        return [stored.event for stored in read_events(self.path) if isinstance(stored.event, kind)]

    @property
    def items(self) -> int:
        """How many the newest request had."""
        return self.events(RequestStarted)[-1].items

    @property
    def spine(self) -> Spine:
        return spine_of(self.store.state, PLANNER)


def desk_of(store: SessionStore, clock: FakeClock) -> Desk:
    return Desk(log=store, clock=clock, limits=Limits(), retry=RetryPolicy(), prefix="strict")


@pytest.fixture
async def table(tmp_path: Path):
    clock = FakeClock()
    path = tmp_path / f"{SESSION}.db"
    store = await SessionStore.create(path, session=SESSION, clock=clock)
    await store.append(SessionStarted(session=SESSION, objective="x", base="c"))
    await store.append(MANIFEST)
    text = UserText(text="word " * 13_000, origin="user")
    await store.append(SpineExtended(agent=PLANNER, kind="objective", items=(text,)))
    yield Table(path=path, store=store, clock=clock, desk=desk_of(store, clock))
    await store.aclose()


def check_replay(table: Table) -> None:
    """Each request comes out of the log as it was sent."""
    stored = list(read_events(table.path))
    for started in table.events(RequestStarted):
        assert sha256(request_bytes(stored, started.request)).hexdigest() == started.sha256
    assert not [problem for problem in replay(stored).problems if "request" in problem]


async def test_M33_an_hour_is_asked_for_when_runs_are_active_and_five_minutes_before(table: Table):
    assert await table.ask() == 0
    assert await table.ask(after=5) == 0
    await table.delegate()
    assert await table.ask(after=5) == table.items
    body = request_bytes(read_events(table.path), 3)
    assert body.count(b'"ttl":"1h"') == body.count(b'"cache_control"') == 4
    check_replay(table)


async def test_M33_waits_that_turn_out_short_make_it_five_minutes_again_and_long_ones_an_hour(table: Table):
    await table.delegate()
    await table.ask()
    chosen = [await table.ask(after=10) == table.items for _ in range(32)]
    assert chosen[0]
    text = UserText(text="news " * 3_000, origin="state")
    await table.store.append(SpineExtended(agent=PLANNER, kind="message", items=(text,)))
    assert await table.ask(after=10) < table.items
    for _ in range(16):
        await table.ask(after=900)
    await table.store.append(SpineExtended(agent=PLANNER, kind="message", items=(text,)))
    assert await table.ask(after=10) == table.items
    assert len(table.spine.waits) == 32
    check_replay(table)


async def test_M33_what_was_written_for_an_hour_is_asked_for_again_as_such(table: Table):
    await table.ask(lifetime="1h")
    first = table.items
    assert await table.ask(after=5) == first
    body = request_bytes(read_events(table.path), 2)
    assert body.count(b'"ttl":"1h"') == 3
    assert await table.ask(after=3_601) == 0
    check_replay(table)


async def test_M33_drift_counts_from_the_lifetime_that_was_asked_for(table: Table):
    await table.ask(lifetime="1h", cached=0)
    await table.ask(lifetime="1h", after=3_599, cached=0)
    await table.ask(lifetime="5m", after=3_601, cached=0)
    await table.ask(lifetime="5m", after=301, cached=0)
    assert [(drift.request, drift.cause) for drift in table.events(CacheDrifted)] == [
        (2, "unknown"),
        (3, "lifetime"),
        (4, "lifetime"),
    ]


async def test_a_user_who_asks_for_five_minutes_or_has_no_price_gets_five_minutes(table: Table):
    await table.delegate()
    await table.ask()
    assert await table.ask(lifetime="5m", after=5) == 0
    assert await table.ask(price=None, after=5) == 0
    assert await table.ask(price=replace(PRICE, cache_write_long_usd=None), after=5) == 0
    assert await table.ask(lifetime="1h", price=None, after=5) == table.items
    check_replay(table)


async def test_M33_the_log_tells_how_long_an_agent_waited_and_another_process_does_not_know(table: Table):
    await table.ask()
    await table.ask(after=7.5)
    table.desk = desk_of(table.store, table.clock)
    await table.ask(after=9)
    await table.ask(after=2)
    assert [started.waited_seconds for started in table.events(RequestStarted)] == [None, 7.5, None, 2.0]
    assert [wait.seconds for wait in table.spine.waits] == [7.5, 2.0]


async def test_T27_a_request_that_writes_for_an_hour_reserves_the_dearer_price(table: Table):
    await table.ask(lifetime="1h")
    await table.ask(lifetime="5m")
    long, short = table.events(RequestStarted)
    inputs = [started.ceiling_tokens - 1_000 for started in (long, short)]
    assert all(most >= started.estimate_tokens for most, started in zip(inputs, (long, short), strict=True))
    assert long.ceiling_usd == pytest.approx((inputs[0] * 8 + 1_000 * 20) / 1e6)
    assert short.ceiling_usd == pytest.approx((inputs[1] * 5 + 1_000 * 20) / 1e6)


async def test_I1_a_request_that_a_crash_cut_off_is_sent_again_as_it_was(table: Table):
    await table.ask(lifetime="1h")
    await table.store.append(
        RequestStarted(
            agent=PLANNER,
            request=2,
            manifest=MANIFEST.manifest,
            items=len(table.spine.items),
            estimate_tokens=1,
            predicted_cached_tokens=None,
            sha256="s",
            size_bytes=1,
            long_items=1,
        )
    )
    table.desk = replace(desk_of(table.store, table.clock), prefix="off")
    assert lasting(table.desk, table.seat("5m"), size_tokens=9).long_items == 1
