"""A provider's cache that served less than it must have held: what the log says of it."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from xnagent.agents.asking import ask
from xnagent.agents.desk import Desk, Seat
from xnagent.core.caching import CacheRule
from xnagent.core.events import SessionStarted
from xnagent.core.ids import PLANNER, SessionId
from xnagent.core.items import AssistantText, Reasoning, UserText
from xnagent.core.limits import Limits
from xnagent.core.rebase import RebasePolicy
from xnagent.core.retry import RetryPolicy
from xnagent.core.spine_events import CacheDrifted, ManifestRecorded, PrefixBroken, ReplyReceived, SpineExtended
from xnagent.core.state import spine_of
from xnagent.core.tokens import Usage
from xnagent.ports import Reply, Workspace
from xnagent.store.reading import read_events
from xnagent.store.sqlite import SessionStore
from xnagent.testing.doubles import FakeClock, ListModel
from xnagent.tools.toolbox import toolbox

SESSION = SessionId("s-drift")
INPUT_TOKENS = 20_000
RULE = CacheRule(lifetime_seconds=300.0, minimum_tokens=1_024)


class NoPlace:
    async def open(self) -> Workspace:
        raise AssertionError("no tool acts here")


def manifest(model: str) -> ManifestRecorded:
    return ManifestRecorded(
        manifest=f"of-{model}",
        role="planner",
        wire="chat",
        model=model,
        system="Be good.",
        tools="[]",
        max_output_tokens=1_000,
        window_tokens=200_000,
    )


@dataclass
class Table:
    """A Planner that asks by hand."""

    path: Path
    store: SessionStore
    clock: FakeClock
    desk: Desk

    async def ask(
        self, cached: int | None, *, model: str = "a", system: str = "Be good.", name: str | None = None
    ) -> None:
        usage = Usage(input_tokens=INPUT_TOKENS, output_tokens=100, cached_tokens=cached)
        items = (Reasoning(wire="chat", payload="hm"), AssistantText(text="Done."))
        talker = ListModel([Reply(items=items, usage=usage, finish="stop")])
        seat = Seat(
            agent=PLANNER,
            model=talker,
            manifest=replace(manifest(model), system=system, manifest=name or f"of-{model}"),
            price=None,
            policy=RebasePolicy(),
            toolbox=toolbox([]),
            place=NoPlace(),
            head_tokens=10,
            placed=frozenset(),
            cache=RULE,
        )
        await self.store.append(
            SpineExtended(agent=PLANNER, kind="nudge", items=(UserText(text="On.", origin="harness"),))
        )
        await ask(self.desk, seat)

    def events(self, kind: type) -> list:
        return [stored.event for stored in read_events(self.path) if isinstance(stored.event, kind)]

    def causes(self) -> list[tuple[int, str]]:
        return [(drift.request, drift.cause) for drift in self.events(CacheDrifted)]


def desk_of(store: SessionStore, clock: FakeClock) -> Desk:
    return Desk(log=store, clock=clock, limits=Limits(), retry=RetryPolicy(), prefix="warn")


@pytest.fixture
async def table(tmp_path: Path):
    clock = FakeClock()
    path = tmp_path / f"{SESSION}.db"
    store = await SessionStore.create(path, session=SESSION, clock=clock)
    await store.append(SessionStarted(session=SESSION, objective="x", base="c"))
    text = UserText(text="word " * 13_000, origin="user")
    await store.append(SpineExtended(agent=PLANNER, kind="objective", items=(text,)))
    yield Table(path=path, store=store, clock=clock, desk=desk_of(store, clock))
    await store.aclose()


async def test_M33_a_cache_that_does_its_work_or_says_nothing_has_not_drifted(table: Table):
    for cached in (0, INPUT_TOKENS, 18_000, None):
        await table.ask(cached)
    assert table.causes() == []
    assert len(table.events(ReplyReceived)) == 4


async def test_M33_a_miss_is_told_right_after_its_reply_with_both_numbers_and_the_cause(table: Table):
    await table.ask(0)
    await table.ask(3)
    table.clock.advance(301)
    await table.ask(0)
    assert table.causes() == [(2, "unknown"), (3, "lifetime")]
    first = table.events(CacheDrifted)[0]
    assert (first.agent, first.predicted_tokens, first.reported_tokens) == (PLANNER, INPUT_TOKENS, 3)
    events = [stored.event for stored in read_events(table.path)]
    assert isinstance(events[events.index(first) - 1], ReplyReceived)


async def test_M33_a_changed_prefix_model_or_process_is_the_cause(table: Table):
    await table.ask(0)
    await table.ask(0, system="Be better.")
    await table.ask(0, model="b")
    table.desk = desk_of(table.store, table.clock)
    await table.ask(0, model="b")
    assert table.causes() == [(2, "prefix_broken"), (3, "model_changed"), (4, "process_changed")]
    assert table.events(PrefixBroken)[0].segment == "system"


async def test_B054_the_reasoning_in_the_log_names_its_model(table: Table):
    await table.ask(0)
    await table.ask(0, model="b")
    made = [item for item in spine_of(table.store.state, PLANNER).items if isinstance(item, Reasoning)]
    assert [(item.payload, item.model) for item in made] == [("hm", "a"), ("hm", "b")]
