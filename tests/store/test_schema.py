"""B056: files of other versions, damaged files, and files that are something else."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from xnagent.core.events import ProgressNoted
from xnagent.core.ids import RunId
from xnagent.errors import StoreDamagedError, StoreError, StoreVersionError
from xnagent.store.opening import require_wal
from xnagent.store.reading import read_events, read_state
from xnagent.store.schema import VERSION, migrate, version_of
from xnagent.store.sessions import list_sessions
from xnagent.store.sqlite import SessionStore

ROOT = Path(__file__).resolve().parents[2]

DIE_IN_MIGRATION = """
import os, signal, sqlite3, sys
from xnagent.store.schema import migrate

def die(connection):
    connection.execute("CREATE TABLE requests(half INTEGER)")
    connection.execute("DELETE FROM events")
    os.kill(os.getpid(), signal.SIGKILL)

migrate(sqlite3.connect(sys.argv[1], isolation_level=None), migrations=(die,))
"""


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def file(path, session, clock, began, rounds):
    """A closed session of this version."""
    async with aclosing(await SessionStore.create(path, session=session, clock=clock)) as store:
        await store.append(began, *rounds(1), *rounds(2))
        store.put(b"artifact")
    return path


def alter(file, *statements):
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def content(file, table):
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def make_old(file):
    """Version 0: the same tables without `requests`."""
    alter(file, "DROP TABLE requests", "PRAGMA user_version=0")


async def refused(file, clock, error, text):
    """Refused for writing and for reading, file unchanged, nothing left beside it."""
    before = file.read_bytes()
    with pytest.raises(error, match=text):
        await SessionStore.open(file, clock=clock)
    with pytest.raises(error, match=text):
        read_state(file)
    assert file.read_bytes() == before
    assert not file.with_name(file.name + ".lock").exists()
    (row,) = list_sessions(file.parent)
    assert (row.status, row.session, row.is_live) == ("damaged", "s-1", False)
    assert str(file) in row.problem


async def test_b056_an_older_file_is_migrated_and_its_projections_rebuilt(file, clock):
    written = content(file, "requests")
    state = read_state(file)
    make_old(file)
    assert read_state(file) == state, "readers need no migration"
    async with aclosing(await SessionStore.open(file, clock=clock)) as store:
        assert store.state == state
        await store.append(ProgressNoted(run=RunId("r1"), text="on"))
    assert content(file, "requests") == written
    with closing(sqlite3.connect(file)) as connection:
        assert version_of(connection) == VERSION


async def test_b056_a_newer_file_is_refused_with_both_versions(file, clock):
    alter(file, f"PRAGMA user_version={VERSION + 1}")
    await refused(
        file, clock, StoreVersionError, f"tables of version {VERSION + 1}, this xnagent knows version {VERSION}"
    )


async def test_b056_a_newer_file_with_an_open_journal_is_not_even_checkpointed(file, clock):
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute(f"PRAGMA user_version={VERSION + 1}")
        assert file.with_name("s-1.db-wal").stat().st_size > 0
        await refused(file, clock, StoreVersionError, "update xnagent")
        assert file.with_name("s-1.db-wal").stat().st_size > 0


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (
            "ALTER TABLE events DROP COLUMN agent",
            "the column events.agent is missing, although the file says version 1",
        ),
        ("ALTER TABLE session RENAME COLUMN cost_usd TO cost", "the column session.cost_usd is missing"),
        ("DROP TABLE requests", "the table requests is missing, although the file says version 1"),
        ("DROP TABLE events", "holds no xnagent session"),
        ("DROP TABLE meta", "holds no xnagent session"),
    ],
)
async def test_b056_the_right_version_with_a_part_missing_is_damaged(file, clock, statement, text):
    alter(file, statement)
    await refused(file, clock, StoreDamagedError, text)


def migrated_until_killed(file):
    command = [sys.executable, "-c", DIE_IN_MIGRATION, str(file)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=50, check=False).returncode


async def test_b056_a_migration_that_is_killed_half_way_is_repeated(file, clock):
    state = read_state(file)
    make_old(file)

    assert migrated_until_killed(file) == -signal.SIGKILL
    async with aclosing(await SessionStore.open(file, clock=clock)) as store:
        assert store.state == state


async def test_b056_a_migration_that_fails_leaves_the_old_file(file):
    make_old(file)

    def fail(connection):
        connection.execute("DROP TABLE events")
        connection.execute("SELECT * FROM nowhere")

    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, migrations=(fail,))
        assert version_of(connection) == 0
    assert len(list(read_events(file))) == 9


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"this is no database at all, just text\n" * 200,
        lambda data: data[:100],
        lambda data: data[: len(data) // 2],
        lambda data: data[: len(data) // 2 + 123],
        lambda data: b"\x00" * len(data),
        lambda data: data[:4096] + b"\xff" * (len(data) - 4096),
    ],
    ids=["empty", "text", "torn-header", "half", "torn-page", "zeros", "garbage-after-the-first-page"],
)
async def test_b052_a_file_that_is_not_whole_is_damaged_and_left_alone(file, clock, damage):
    file.write_bytes(damage(file.read_bytes()))
    await refused(file, clock, StoreDamagedError, "STORE_DAMAGED")


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("UPDATE events SET payload = x'7b22' WHERE seq = 4", "event 4 cannot be read"),
        ("UPDATE events SET enc = 'lzma' WHERE seq = 4", "event 4 has the unknown encoding 'lzma'"),
        ("""UPDATE events SET enc = 'raw', payload = '{"type":"from_the_future"}' WHERE seq = 4""", "event 4"),
    ],
)
async def test_b052_a_damaged_event_is_named_and_those_before_it_can_be_read(file, clock, statement, text):
    alter(file, statement)
    with pytest.raises(StoreDamagedError, match=text):
        await SessionStore.open(file, clock=clock)
    events = read_events(file)
    with pytest.raises(StoreDamagedError, match=text):
        list(events)
    assert list_sessions(file.parent)[0].status == "open"


async def test_b052_a_lost_event_is_noticed(file, clock):
    alter(file, "DELETE FROM events WHERE seq IN (2, 3)")
    with pytest.raises(StoreDamagedError, match="2 of its 9 events are missing"):
        await SessionStore.open(file, clock=clock)


async def test_b052_an_artifact_that_is_not_its_hash_is_not_handed_out(file, clock):
    alter(file, "UPDATE artifact_chunks SET data = x'00'")
    async with aclosing(await SessionStore.open(file, clock=clock)) as store:
        with pytest.raises(StoreDamagedError, match="STORE_ARTIFACT_DAMAGED"):
            await store.get(next(iter(store._tail._hashes)))


async def test_a_folder_in_place_of_the_file_is_no_session(path, clock):
    path.mkdir(parents=True)
    with pytest.raises(StoreDamagedError, match="it is no file"):
        await SessionStore.open(path, clock=clock)
    assert list_sessions(path.parent)[0].problem


def test_a_file_system_without_write_ahead_log_is_refused_with_a_reason(tmp_path):
    place = tmp_path / "s-1.db"
    with (
        closing(sqlite3.connect(f"file:{place}?vfs=unix-dotfile", uri=True)) as connection,
        pytest.raises(StoreError, match=r"refuses SQLite's write-ahead log .* local disk with --home"),
    ):
        require_wal(connection, place)
