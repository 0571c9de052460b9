"""What is computed from state and appended at once misses nothing that is on its way into the log."""

from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from xnagent.agents.prompting import brief_message, inbox_message
from xnagent.agents.room import append_news
from xnagent.core.events import (
    Event,
    FactRecorded,
    RunLaunched,
    RunMessageSent,
    RunStarted,
    SessionStarted,
    TaskAdded,
)
from xnagent.core.ids import PLANNER, FactId, RunId, SessionId, TaskId
from xnagent.core.items import UserText
from xnagent.core.messages import objective_message, state_message
from xnagent.core.rebase import RebasePolicy, Room
from xnagent.core.spine_events import SpineExtended
from xnagent.core.state import spine_of, work_of
from xnagent.core.view import view
from xnagent.store.sqlite import SessionStore
from xnagent.testing.doubles import FakeClock

SESSION = SessionId("s-news")


async def begun(folder: Path) -> SessionStore:
    store = await SessionStore.create(folder / f"{SESSION}.db", session=SESSION, clock=FakeClock())
    await store.append(SessionStarted(session=SESSION, objective="x", base="c"))
    await store.append(objective_message(store.ahead))
    await store.append(state_message(store.ahead))
    await store.append(TaskAdded(task=TaskId("known"), title="T", objective="O"))
    return store


async def side_by_side(*actions) -> None:
    async with anyio.create_task_group() as group:
        for action in actions:
            group.start_soon(action)


def fact(number: int) -> Event:
    return FactRecorded(fact=FactId(f"f{number}"), text=f"Fact {number}.", source="r1")


@pytest.mark.parametrize("others", [1, 2, 9])
async def test_I2_a_delta_tells_what_others_append_at_the_same_moment(tmp_path: Path, others: int):
    """The base that is remembered holds only what the message told, however the appends interleave."""
    store = await begun(tmp_path)
    told: list[str] = []

    def adding(number: int):
        async def add() -> None:
            await store.append(fact(number))

        return add

    async def tell() -> None:
        message = state_message(store.ahead)
        assert message is not None
        told.append(message.items[0].text)
        await store.append(message)

    half = others // 2
    await side_by_side(*(adding(n) for n in range(half + 1)), tell, *(adding(n) for n in range(half + 1, others + 1)))
    rest = state_message(store.ahead)
    everything = told[0] + ("" if rest is None else rest.items[0].text)
    assert [everything.count(f'"text":"Fact {n}."') for n in range(others + 1)] == [1] * (others + 1)
    if rest is not None:
        await store.append(rest)
    assert view(spine_of(store.state, PLANNER).base) == view(store.state.board)
    await store.aclose()


async def test_a_letter_that_comes_while_the_inbox_is_emptied_is_not_lost(tmp_path: Path):
    store = await begun(tmp_path)
    run = RunId("r1")
    await store.append(
        TaskAdded(task=TaskId("t"), title="T", objective="O"),
        RunStarted(run=run, task=TaskId("t")),
        RunLaunched(run=run, base="c"),
    )
    await store.append(brief_message(store.ahead, run), RunMessageSent(run=run, text="first"))

    async def write() -> None:
        await store.append(RunMessageSent(run=run, text="second"))

    async def read() -> None:
        message = inbox_message(store.ahead, run=run)
        assert message is not None
        await store.append(message)

    await side_by_side(write, read)
    texts = " ".join(getattr(item, "text", "") for item in spine_of(store.state, run).items)
    waiting = work_of(store.state, run).inbox
    assert (texts.count("first"), texts.count("second") + len(waiting)) == (1, 1)
    await store.aclose()


async def test_ahead_is_the_state_once_everything_is_committed(tmp_path: Path):
    store = await begun(tmp_path)
    assert store.ahead is store.state
    await store.aclose()


async def test_I2_news_after_a_refused_rebase_are_made_anew(tmp_path: Path):
    """Somebody appends while the rebase is refused: what is told and what is remembered stay the same."""
    store = await begun(tmp_path)
    nudge = SpineExtended(agent=PLANNER, kind="message", items=(UserText(text="x", origin="harness"),))
    await store.append(nudge, FactRecorded(fact=FactId("f1"), text="w " * 900, source="r1"))
    room = Room(window_tokens=1_400, max_output_tokens=500, head_tokens=100)
    model = SimpleNamespace(model="m")
    seat = SimpleNamespace(agent=PLANNER, policy=RebasePolicy(), room=room, head_tokens=100, price=None, manifest=model)
    seat.condenser = None

    async def tell() -> None:
        await append_news(SimpleNamespace(log=store), seat, make=state_message)

    async def add() -> None:
        await store.append(fact(2))

    await side_by_side(tell, add)
    assert len(store.state.refused_rebases) == 1
    texts = "".join(getattr(item, "text", "") for item in spine_of(store.state, PLANNER).items)
    base = spine_of(store.state, PLANNER).base
    assert all((f'"/facts/{name}"' in texts) is (FactId(name) in base.facts) for name in ("f1", "f2"))
    await store.aclose()
