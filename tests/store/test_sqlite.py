"""The log, opened for writing: order, group commit, state that follows the disk, fencing, artifacts."""

import sqlite3
import stat
from contextlib import aclosing, closing

import anyio
import pytest

from xnagent.core.events import ProgressNoted
from xnagent.core.ids import AgentId, RunId
from xnagent.errors import StoreBusyError, StoreError, UsageError
from xnagent.store.lock import is_held, lock_path
from xnagent.store.opening import rebuild_projections
from xnagent.store.reading import read_events, read_state
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


async def test_a_second_opener_is_told_who_holds_the_session(store, path, clock):
    with pytest.raises(StoreBusyError, match=r"SESSION_BUSY: s-1 is run by this process itself \(pid \d+ on "):
        await SessionStore.open(path, clock=clock)
    await store.append(note(1))
    assert is_held(path)
    await store.aclose()
    assert not is_held(path)
    assert not lock_path(path).exists()


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
