"""The log, opened for writing: order, group commit, state that follows the disk, fencing, artifacts."""

import sqlite3
import stat
from contextlib import aclosing, closing

import anyio
import pytest

from xnagent.core.events import FactRecorded, ProgressNoted
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, CallId, FactId, RunId, SessionId, Ticket
from xnagent.core.spine_events import ToolFinished
from xnagent.errors import StoreBusyError, StoreError, StoreFencedError, StoreWriteError, UsageError
from xnagent.store.ephemeral import EphemeralLog
from xnagent.store.lock import is_held, lock_path
from xnagent.store.opening import rebuild_projections
from xnagent.store.reading import read_artifact, read_events, read_state
from xnagent.store.sqlite import SessionStore

PROJECTIONS = ("session", "tool_calls", "requests")


def note(number):
    return ProgressNoted(run=RunId("r1"), text=f"note {number}")


def rows(path, *tables):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return [connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall() for table in tables]


@pytest.fixture
async def store(path, session, clock):
    async with aclosing(await SessionStore.create(path, session=session, clock=clock)) as opened:
        yield opened


async def test_events_get_places_and_come_back_after_reopening(store, path, clock, began, rounds):
    assert (store.epoch, store.last_seq, store.session) == (1, 0, "s-1")
    first = await store.append(began)
    clock.time = "2026-11-30T14:15:09.000Z"
    more = await store.append(*rounds(1))
    assert [stored.seq for stored in (*first, *more)] == [1, 2, 3, 4, 5]
    assert [stored.at[17:19] for stored in (*first, *more)] == ["02", "09", "09", "09", "09"]
    state = store.state
    await store.aclose()
    async with aclosing(await SessionStore.open(path, clock=clock)) as again:
        assert again.state == state == fold_all([began, *rounds(1)])
        assert (again.epoch, again.last_seq) == (2, 5)
        assert [stored.seq for stored in await again.append(note(1))] == [6]
    assert list(read_events(path))[:5] == [*first, *more]


async def test_many_appends_share_few_commits_and_keep_the_order_of_the_calls(store, path):
    with closing(sqlite3.connect(path, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            for number in range(500):
                group.start_soon(store.append, note(number))
            await anyio.wait_all_tasks_blocked()
            assert store.last_seq == 0, "nothing is folded before it is committed"
            blocker.execute("ROLLBACK")
    order = [stored.event.text for stored in read_events(path)]
    assert sorted(order) == sorted(f"note {number}" for number in range(500))
    assert store._writer.commits <= 4
    assert store.state == read_state(path)
    assert list(store.state.work[AgentId("r1")].notes) == order


async def test_state_is_never_ahead_of_the_disk_nor_out_of_order(store, path):
    seen = []

    async def append(number):
        await store.append(note(number), durable=number % 3 == 0)
        seen.append((store.state, len(list(read_events(path)))))

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(append, number)
    for state, on_disk in seen:
        assert len(state.work[AgentId("r1")].notes) <= on_disk
    assert store.last_seq == 40


async def test_a_cancelled_append_leaves_state_and_disk_the_same(store, path):
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.append(note(1))
    with anyio.move_on_after(0):
        await store.append(note(2))
    await store.append(note(3))
    assert store.state == read_state(path)
    assert store.state.work[AgentId("r1")].notes == ("note 1", "note 2", "note 3")


async def test_waiting_for_news_ends_with_the_next_append_and_with_the_store(store):
    async def watch():
        assert await store.wait(after=0) == 1
        with pytest.raises(StoreError, match="STORE_CLOSED"):
            await store.wait(after=1)

    with anyio.fail_after(10):
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


async def test_an_event_that_does_not_fit_is_refused_and_the_log_goes_on(store, path):
    orphan = ToolFinished(agent=PLANNER, call_id=CallId("c9"), tool="bash", text="")
    with pytest.raises(StoreWriteError, match="STORE_EVENT_REFUSED: a tool_finished event does not fit"):
        await store.append(note(1), orphan)
    (stored,) = await store.append(note(2))
    assert stored.seq == 1
    assert store.state == read_state(path)


async def test_b055_text_with_a_lone_surrogate_is_stored_and_state_equals_the_file(store, path, session):
    fact = FactRecorded(fact=FactId("f1"), text="ok \ud83d…", source="a\udcff")
    await store.append(fact)
    assert store.state.board.facts[FactId("f1")].text == "ok \ufffd…"
    assert store.state == read_state(path)


async def test_projections_equal_those_rebuilt_from_the_events(store, path, began, clock, rounds):
    await store.append(began)
    for number in range(1, 4):
        await store.append(*rounds(number))
    await store.append(*rounds(4)[:3])
    await store.aclose()
    written = rows(path, *PROJECTIONS)
    assert written[0] == [
        ("s-1", "Port it", "open", None, None, clock.now(), clock.now(), 16, 1.0, "/repo"),
    ]
    assert [row[4] for row in written[1]] == ["finished", "finished", "finished", "started"]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM tool_calls")
        connection.execute("UPDATE session SET cost_usd = 9")
        connection.commit()
    assert rows(path, *PROJECTIONS) != written
    rebuild_projections(path, now=clock.now())
    assert rows(path, *PROJECTIONS) == written


async def test_an_unknown_cost_makes_the_sum_unknown_and_a_huge_number_fits(store, path, rounds):
    await store.append(*rounds(1))
    await store.append(*rounds(2, cost_usd=None))
    await store.append(*rounds(10**30))
    assert rows(path, "session")[0][0][8] is None
    assert store.state == read_state(path)


async def test_history_is_what_an_agent_was_answered(store, rounds):
    await store.append(*rounds(1), note(1), *rounds(2))
    history = await store.history(PLANNER)
    assert [stored.seq for stored in history] == [2, 4, 7, 9]
    assert await store.history(AgentId("r7")) == ()


async def test_a_second_opener_is_told_who_holds_the_session(store, path, clock):
    with pytest.raises(StoreBusyError, match=r"SESSION_BUSY: s-1 is run by this process itself \(pid \d+ on "):
        await SessionStore.open(path, clock=clock)
    await store.append(note(1))
    assert is_held(path)
    await store.aclose()
    assert not is_held(path)
    assert not lock_path(path).exists()


async def test_a_process_that_lost_the_session_is_fenced(store, path, clock):
    await store.append(note(1))
    lock_path(path).unlink()
    async with aclosing(await SessionStore.open(path, clock=clock)) as successor:
        await successor.append(note(2))
        for _ in range(2):
            with pytest.raises(StoreFencedError, match=r"epoch 2, this one had 1"):
                await store.append(note(3))
        with pytest.raises(StoreFencedError):
            store.put(b"late")
        await store.aclose()
        assert is_held(path), "the loser must not take the successor's lock away"
        await successor.append(note(4))
    assert [stored.event.text for stored in read_events(path)] == ["note 1", "note 2", "note 4"]
    assert len(store.state.work[AgentId("r1")].notes) == 1


@pytest.mark.parametrize("data", [b"", b"1", bytes(range(256)) * 12 * 1024, b"x" * (3 << 20)])
async def test_artifacts_come_back_before_and_after_the_commit(store, path, data):
    ticket = store.put(data)
    assert ticket == store.put(data)
    assert await store.get(ticket) == data
    await store.append(note(1))
    assert await store.get(ticket) == read_artifact(path, ticket) == data
    assert store.put(data) == ticket
    await store.aclose()
    assert len(rows(path, "artifacts")[0]) == 1


async def test_an_unknown_ticket_has_no_content(store):
    assert await store.get(Ticket("artifact:0123456789abcdef")) is None
    assert await store.get(Ticket("artifact:../../etc/passwd")) is None


async def test_two_contents_never_share_a_ticket(store):
    ticket = store.put(b"one")
    store._tail._hashes[ticket] = "0" * 64
    with pytest.raises(StoreWriteError, match="STORE_TICKET_TAKEN"):
        store.put(b"one")
    await store.append(note(1))


async def test_what_was_put_is_written_even_without_an_append(store, path):
    ticket = store.put(b"last words")
    await store.aclose()
    assert read_artifact(path, ticket) == b"last words"


async def test_a_closed_store_says_so(store):
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="STORE_CLOSED"):
        await store.append(note(1))


async def test_files_and_folders_are_private(store, path):
    await store.append(note(1))
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in (path.parent, *path.parent.iterdir())}
    assert modes.pop("sessions") == 0o700
    assert set(modes) == {"s-1.db", "s-1.db-wal", "s-1.db-shm", "s-1.db.lock"}
    assert set(modes.values()) == {0o600}


async def test_a_session_is_created_once_and_opened_only_if_it_is_there(store, path, session, clock):
    await store.aclose()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="SESSION_EXISTS"):
        await SessionStore.create(path, session=session, clock=clock)
    with pytest.raises(UsageError, match="SESSION_NOT_FOUND"):
        await SessionStore.open(path.with_name("s-2.db"), clock=clock)
    assert path.read_bytes() == before


async def test_a_creation_that_was_killed_is_made_again(path, session, clock):
    path.parent.mkdir(parents=True)
    path.with_name("s-1.db.new").write_bytes(b"half")
    async with aclosing(await SessionStore.create(path, session=session, clock=clock)) as store:
        await store.append(note(1))
    assert [each.name for each in path.parent.iterdir()] == ["s-1.db"]


async def test_an_ephemeral_log_works_and_leaves_nothing(clock):
    log = await EphemeralLog.begin(session=SessionId("s-9"), clock=clock)
    await log.append(note(1))
    ticket = log.put(b"data")
    assert await log.get(ticket) == b"data"
    folder = log.path.parent
    assert folder.exists()
    await log.aclose()
    assert not folder.exists()
