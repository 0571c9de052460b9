"""Tools that act on the state take turns; nobody's turn lasts until the disk has what came of it."""

import sqlite3
from contextlib import aclosing, closing

import anyio
import anyio.lowlevel
import pytest

from xnagent.agents.desk import Desk, Seat
from xnagent.agents.step import do_calls
from xnagent.app.host import SystemClock
from xnagent.core.events import FactRecorded, SessionStarted
from xnagent.core.ids import AgentId, CallId, FactId, SessionId
from xnagent.core.items import ToolCall, UserText
from xnagent.core.limits import Limits
from xnagent.core.rebase import RebasePolicy
from xnagent.core.retry import RetryPolicy
from xnagent.core.spine_events import ManifestRecorded, ReplyReceived, RequestStarted, SpineExtended
from xnagent.core.state import spine_of
from xnagent.core.tokens import Usage
from xnagent.ports import Intent, Outcome, ToolSpec
from xnagent.store.sqlite import SessionStore
from xnagent.tools.toolbox import toolbox

pytestmark = pytest.mark.anyio

AGENTS = [AgentId(f"r{number}") for number in range(1, 7)]
MANIFEST = ManifestRecorded(
    manifest="m", role="worker", wire="chat", model="m", system="", tools="[]", max_output_tokens=9, window_tokens=9_999
)


class NextFact:
    """Records a fact under the next free name, as it finds the state."""

    spec = ToolSpec(
        name="next_fact",
        description="Records.",
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
    )

    async def intend(self, call):
        return Intent(effect="pure")

    async def run(self, call, intent):
        name = f"f{len(call.state.board.facts) + 1}"
        await anyio.lowlevel.checkpoint()
        return Outcome(text=name, events=(FactRecorded(fact=FactId(name), text=name, source=call.agent),))

    async def reconcile(self, call, started):
        return None


def asked(agent: AgentId, number: int):
    """An agent whose reply asks for the tool twice."""
    calls = tuple(ToolCall(call_id=CallId(f"{agent}-{n}"), name="next_fact", arguments="{}") for n in range(2))
    return (
        SpineExtended(agent=agent, items=(UserText(text="Go.", origin="task"),), kind="brief"),
        RequestStarted(
            agent=agent,
            request=number,
            manifest="m",
            items=1,
            estimate_tokens=9,
            predicted_cached_tokens=None,
            sha256="",
            size_bytes=9,
        ),
        ReplyReceived(
            agent=agent,
            request=number,
            items=calls,
            usage=Usage(),
            cost_usd=None,
            finish="tool_calls",
            duration_seconds=0.1,
        ),
    )


def seat_of(agent: AgentId) -> Seat:
    return Seat(
        agent=agent,
        model=None,
        manifest=MANIFEST,
        price=None,
        policy=RebasePolicy(),
        toolbox=toolbox([NextFact()]),
        place=None,
        head_tokens=9,
        placed=frozenset(),
    )


async def test_a_turn_ends_when_its_result_is_submitted_and_no_id_is_given_twice(tmp_path):
    clock, path = SystemClock(), tmp_path / "s.db"
    async with aclosing(await SessionStore.create(path, session=SessionId("s-1"), clock=clock)) as store:
        await store.append(SessionStarted(session=SessionId("s-1"), objective="x", base="c"), MANIFEST)
        await store.append(*(event for number, agent in enumerate(AGENTS, 1) for event in asked(agent, number)))
        desk = Desk(log=store, clock=clock, limits=Limits(), retry=RetryPolicy(), prefix="strict")
        with closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as group:
                for agent in AGENTS:
                    group.start_soon(do_calls, desk, seat_of(agent))
                await anyio.wait_all_tasks_blocked()
                assert not store.state.board.facts, "nothing is committed"
                assert sorted(store.ahead.board.facts) == sorted(f"f{n + 1}" for n in range(len(AGENTS)))
                blocker.execute("ROLLBACK")
        assert len(store.state.board.facts) == 2 * len(AGENTS)
        assert not any(spine_of(store.state, agent).is_open for agent in AGENTS)


async def test_submitted_events_are_ahead_at_once_and_committed_when_awaited(tmp_path):
    store = await SessionStore.create(tmp_path / "s.db", session=SessionId("s-1"), clock=SystemClock())
    async with aclosing(store):
        committed = store.submit(SessionStarted(session=SessionId("s-1"), objective="x", base="c"))
        assert (store.ahead.session, store.state.session, store.last_seq) == ("s-1", "", 0)
        (stored,) = await committed
        assert (stored.seq, store.last_seq, store.state.session) == (1, 1, "s-1")


async def test_a_session_that_rested_goes_on_writing(tmp_path):
    store = await SessionStore.create(tmp_path / "s.db", session=SessionId("s-1"), clock=SystemClock())
    async with aclosing(store):
        for number in (1, 2):
            (stored,) = await store.append(FactRecorded(fact=FactId(f"f{number}"), text="x", source="r1"))
            assert stored.seq == number
            await anyio.sleep(1.2)
    assert len(store.state.board.facts) == 2
