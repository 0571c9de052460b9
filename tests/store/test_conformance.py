"""What every store must do: the same tests on files and on a real PostgreSQL server."""

from contextlib import aclosing

import anyio
import pytest

from xnagent.core.events import FactRecorded, ProgressNoted, SessionInterrupted, SessionResumed, SessionSettled
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, CallId, FactId, RunId, SessionId, Ticket
from xnagent.core.spine_events import RequestFailed, ToolFinished, ToolStarted
from xnagent.errors import StoreBusyError, StoreDamagedError, StoreError, StoreFencedError, StoreWriteError, UsageError
from xnagent.store.files import FileSessions
from xnagent.store.place import state_at, state_or_none
from xnagent.store.placed import PlacedLog

PROJECTIONS = ("session", "tool_calls", "requests")
PRODUCERS = 16


def note(number):
    return ProgressNoted(run=RunId("r1"), text=f"note {number}")


async def created(spot, clock):
    return await PlacedLog.create_at(spot.place, session=SessionId(spot.name), clock=clock)


async def opened(spot, clock):
    return await PlacedLog.open_at(spot.place, clock=clock)


def texts(spot):
    return [stored.event.text for stored in spot.place.events()]


@pytest.fixture
def anyio_backend():
    """One backend here; test_sqlite.py and test_postgres.py ask for both."""
    return "asyncio"


@pytest.fixture
async def store(spot, clock):
    async with aclosing(await created(spot, clock)) as log:
        yield log


async def test_events_get_places_and_come_back_after_reopening(store, spot, clock, began, rounds):
    assert (store.epoch, store.last_seq, store.session) == (1, 0, spot.name)
    first = await store.append(began)
    clock.time = "2026-11-30T14:15:09.000Z"
    more = await store.append(*rounds(1))
    assert [stored.seq for stored in (*first, *more)] == [1, 2, 3, 4, 5]
    assert [stored.at[17:19] for stored in (*first, *more)] == ["02", "09", "09", "09", "09"]
    state = store.state
    await store.aclose()
    async with aclosing(await opened(spot, clock)) as again:
        assert again.state == state == fold_all([began, *rounds(1)])
        assert (again.epoch, again.last_seq) == (2, 5)
        assert [stored.seq for stored in await again.append(note(1))] == [6]
    assert list(spot.place.events())[:5] == [*first, *more]
    assert [stored.seq for stored in spot.place.events(after=4)] == [5, 6]
    assert spot.place.read_session() == spot.name


async def test_many_producers_share_commits_and_keep_the_order_of_their_calls(store, spot):
    async def produce(number):
        for index in range(10):
            await store.append(note(f"{number} {index}"), durable=index % 2 == 0)

    async with anyio.create_task_group() as group:
        for number in range(PRODUCERS):
            group.start_soon(produce, number)
    order = texts(spot)
    assert len(order) == PRODUCERS * 10
    for number in range(PRODUCERS):
        assert [text for text in order if text.startswith(f"note {number} ")] == [
            f"note {number} {n}" for n in range(10)
        ]
    assert store._writer.commits <= PRODUCERS * 10 / 2
    assert list(store.state.work[AgentId("r1")].notes) == order
    assert store.state == state_at(spot.place)


async def test_state_is_never_ahead_of_the_store_nor_out_of_order(store, spot):
    seen = []

    async def append(number):
        await store.append(note(number), durable=number % 3 == 0)
        seen.append((store.state, len(list(spot.place.events()))))

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(append, number)
    for state, stored in seen:
        assert len(state.work[AgentId("r1")].notes) <= stored
    assert store.last_seq == 20


async def test_a_cancelled_append_leaves_state_and_store_the_same(store, spot):
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.append(note(1))
    with anyio.move_on_after(0):
        await store.append(note(2))
    await store.append(note(3))
    assert store.state == state_at(spot.place)
    assert store.state.work[AgentId("r1")].notes == ("note 1", "note 2", "note 3")


async def test_waiting_for_news_ends_with_the_next_append_and_with_the_store(store):
    async def watch():
        assert await store.wait(after=0) == 1
        with pytest.raises(StoreError, match="STORE_CLOSED"):
            await store.wait(after=1)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            await store.append(note(1))
            await anyio.wait_all_tasks_blocked()
            await store.aclose()


async def test_an_append_without_events_is_a_barrier(store):
    assert await store.append() == ()
    assert await store.append(note(1))
    assert store.last_seq == 1


async def test_an_event_that_does_not_fit_is_refused_and_the_log_goes_on(store, spot):
    orphan = ToolFinished(agent=PLANNER, call_id=CallId("c9"), tool="bash", text="")
    with pytest.raises(StoreWriteError, match="STORE_EVENT_REFUSED: a tool_finished event does not fit"):
        await store.append(note(1), orphan)
    (stored,) = await store.append(note(2))
    assert stored.seq == 1
    assert store.state == state_at(spot.place)


async def test_b055_text_with_a_lone_surrogate_is_stored_and_state_equals_the_store(store, spot):
    fact = FactRecorded(fact=FactId("f1"), text="ok \ud83d…", source="a\udcff")
    await store.append(fact)
    assert store.state.board.facts[FactId("f1")].text == "ok \ufffd…"
    assert store.state == state_at(spot.place)


async def test_text_with_a_nul_comes_back_as_it_was(store, spot):
    call = ToolStarted(agent=PLANNER, call_id=CallId("c\0"), tool="ba\0sh", effect="opaque")
    await store.append(call, note("\0"))
    assert [stored.event for stored in spot.place.events()] == [call, note("\0")]
    assert len(spot.table("tool_calls")) == 1
    assert store.state == state_at(spot.place)


async def test_an_unknown_cost_makes_the_sum_unknown_and_a_huge_number_fits(store, spot, rounds):
    await store.append(*rounds(1))
    assert spot.table("session")[0][8] == 0.25
    await store.append(*rounds(2, cost_usd=None))
    await store.append(*rounds(10**30))
    assert spot.table("session")[0][8] is None
    assert store.state == state_at(spot.place)


async def test_both_stores_make_the_same_tables_of_the_same_events(store, spot, tmp_path, clock, began, rounds):
    other = FileSessions(tmp_path / "other").place(spot.name)
    failed = RequestFailed(agent=PLANNER, request=9, fault="server", detail="no")
    settled = SessionSettled(outcome="partial", exit_code=4)
    appends = [
        [began],
        rounds(1),
        rounds(2),
        rounds(3)[:3],
        [failed],
        [SessionInterrupted(signal="SIGINT")],
        [settled],
        [SessionResumed(epoch=2)],
        rounds(4)[:1],
        [settled],
    ]
    async with aclosing(await PlacedLog.create_at(other, session=SessionId(spot.name), clock=clock)) as twin:
        for events in appends:
            assert await store.append(*events) == await twin.append(*events)
    beside = type(spot)(store="files", sessions=FileSessions(tmp_path / "other"), place=other, word="")
    for name in (*PROJECTIONS, "events"):
        assert spot.table(name) == beside.table(name)


async def test_history_is_what_an_agent_was_answered(store, rounds):
    await store.append(*rounds(1), note(1), *rounds(2))
    history = await store.history(PLANNER)
    assert [stored.seq for stored in history] == [2, 4, 7, 9]
    assert await store.history(AgentId("r7")) == ()


async def test_reading_goes_over_many_pages(store, spot):
    await store.append(*map(note, range(1203)))
    assert [stored.seq for stored in spot.place.events(after=1200)] == [1201, 1202, 1203]
    assert [stored.seq for stored in spot.place.events()] == list(range(1, 1204))
    assert list(spot.place.events(after=5000)) == []


async def test_b053_a_second_opener_is_told_who_holds_the_session(store, spot, clock):
    busy = rf"SESSION_BUSY: {spot.name} is run by this process itself \(pid \d+ on .*, since 2026"
    with pytest.raises(StoreBusyError, match=busy):
        await opened(spot, clock)
    await store.append(note(1))
    assert spot.place.holder()
    await store.aclose()
    assert spot.place.holder() is None


async def test_a_process_that_lost_the_session_is_fenced(store, spot, clock):
    await store.append(note(1))
    spot.let_the_right_lapse()
    async with aclosing(await opened(spot, clock)) as successor:
        await successor.append(note(2))
        for _ in range(2):
            with pytest.raises(StoreFencedError, match=r"epoch 2, this one had 1"):
                await store.append(note(3))
        with pytest.raises(StoreFencedError):
            store.put(b"late")
        await store.aclose()
        assert spot.place.holder(), "the loser must not take the successor's right away"
        await successor.append(note(4))
    assert texts(spot) == ["note 1", "note 2", "note 4"]
    assert len(store.state.work[AgentId("r1")].notes) == 1


@pytest.mark.parametrize("data", [b"", b"1", bytes(range(256)) * 12 * 1024, b"x" * (3 << 20)])
async def test_artifacts_come_back_before_and_after_the_commit(store, spot, clock, data):
    ticket = store.put(data)
    assert ticket == store.put(data)
    assert await store.get(ticket) == data
    await store.append(note(1))
    assert await store.get(ticket) == spot.place.artifact(ticket) == data
    assert store.put(data) == ticket
    await store.aclose()
    assert len(spot.table("artifacts")) == 1
    async with aclosing(await opened(spot, clock)) as again:
        assert again.put(data) == ticket


async def test_an_artifact_that_is_not_what_its_hash_says_is_refused(store, spot):
    if spot.store == "files":
        pytest.skip("tests/store/test_reading.py has it")
    ticket = store.put(b"one")
    await store.append(note(1))
    spot.ask("UPDATE artifact_chunks SET data = 'two' WHERE session = %s", spot.name)
    with pytest.raises(StoreDamagedError, match="STORE_ARTIFACT_DAMAGED"):
        spot.place.artifact(ticket)


async def test_an_unknown_ticket_has_no_content(store):
    assert await store.get(Ticket("artifact:0123456789abcdef")) is None
    assert await store.get(Ticket("artifact:../../etc/passwd")) is None


async def test_two_contents_never_share_a_ticket(store):
    ticket = store.put(b"one")
    store._tail._hashes[ticket] = "0" * 64
    with pytest.raises(StoreWriteError, match="STORE_TICKET_TAKEN"):
        store.put(b"one")
    await store.append(note(1))


async def test_what_was_put_is_written_even_without_an_append(store, spot):
    ticket = store.put(b"last words")
    await store.aclose()
    assert spot.place.artifact(ticket) == b"last words"


async def test_a_closed_store_says_so(store):
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="STORE_CLOSED"):
        await store.append(note(1))


async def test_a_session_is_created_once_opened_if_it_is_there_and_forgotten_whole(store, spot, clock):
    ticket = store.put(b"data")
    await store.append(note(1))
    await store.aclose()
    with pytest.raises(StoreError, match="SESSION_EXISTS"):
        await created(spot, clock)
    assert texts(spot) == ["note 1"]
    assert spot.place.exists()
    spot.place.forget()
    assert not spot.place.exists()
    assert state_or_none(spot.place) is None
    for read in (lambda: list(spot.place.events()), spot.place.read_session):
        with pytest.raises(UsageError, match="SESSION_NOT_FOUND"):
            read()
    with pytest.raises(UsageError, match="SESSION_NOT_FOUND"):
        await opened(spot, clock)
    async with aclosing(await created(spot, clock)) as fresh:
        assert (fresh.epoch, fresh.last_seq) == (1, 0)
        assert await fresh.get(ticket) is None


async def test_a_log_with_a_gap_is_not_resumed(store, spot, clock):
    if spot.store == "files":
        pytest.skip("tests/store/test_schema.py has it")
    await store.append(note(1), note(2), note(3))
    await store.aclose()
    spot.ask("DELETE FROM events WHERE session = %s AND seq = 2", spot.name)
    with pytest.raises(StoreDamagedError, match="1 of the 3 events"):
        await opened(spot, clock)
    assert spot.place.holder() is None


async def test_the_list_tells_how_each_session_stands(store, spot, began):
    await store.append(began, note(1))
    (row,) = [row for row in spot.sessions.rows() if row.session == spot.name]
    assert (row.status, row.objective, row.is_live, row.last_seq, row.problem) == ("open", "Port it", True, 2, None)
    assert (row.created, row.updated, row.cost_usd, row.repository) == (*[store._clock.now()] * 2, 0.0, "/repo")
    assert (row.path is None) == (spot.store == "postgres")
    await store.aclose()
    (row,) = [row for row in spot.sessions.rows() if row.session == spot.name]
    assert not row.is_live


@pytest.mark.parametrize("name", ["../x", "s-", "", "s-a/b", "s-" + "a" * 65])
def test_what_can_be_no_sessions_name_is_refused(spot, name):
    with pytest.raises(UsageError, match="SESSION_NAME"):
        spot.sessions.place(name)
