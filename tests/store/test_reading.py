"""Reading beside a writer, after it, and where nothing can be written; the list of sessions."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import aclosing, closing
from pathlib import Path

import anyio
import pytest

from xnagent.core.events import ProgressNoted, SessionInterrupted, SessionSettled, SessionStarted
from xnagent.core.ids import RunId, SessionId
from xnagent.errors import StoreError, UsageError
from xnagent.store.reading import read_artifact, read_events, read_session, read_state
from xnagent.store.sessions import list_sessions, new_session_id, session_path, sessions_folder
from xnagent.store.sqlite import SessionStore

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def anyio_backend():
    return "asyncio"


def note(number):
    return ProgressNoted(run=RunId("r1"), text=f"note {number}")


@pytest.fixture
async def store(path, session, clock):
    async with aclosing(await SessionStore.create(path, session=session, clock=clock)) as opened:
        yield opened


async def test_readers_see_every_commit_and_disturb_nothing(store, path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT count(*) FROM events").fetchone()
        for number in range(30):
            await store.append(note(number), durable=False)
            assert len(list(read_events(path))) == number + 1
        assert holder.execute("SELECT count(*) FROM events").fetchone() == (0,)
    assert read_state(path) == store.state
    assert read_session(path) == "s-1"


async def test_reading_goes_on_after_a_place_and_over_many_pages(store, path):
    await store.append(*map(note, range(1203)))
    assert [stored.seq for stored in read_events(path, after=1200)] == [1201, 1202, 1203]
    assert [stored.seq for stored in read_events(path)] == list(range(1, 1204))
    assert list(read_events(path, after=5000)) == []


async def test_a_reader_that_stops_early_holds_nothing(store, path):
    events = read_events(path)
    await store.append(note(1))
    assert next(events).seq == 1
    events.close()
    await store.aclose()
    assert not path.with_name("s-1.db-wal").exists()


async def test_a_reader_in_the_way_does_not_keep_the_writer_from_closing(store, path):
    await store.append(note(1))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM events").fetchall()
        await store.append(note(2))
        with anyio.fail_after(5):
            await store.aclose()
    assert len(list(read_events(path))) == 2


def test_a_missing_session_is_not_found(path):
    for read in (read_state, read_session, lambda place: list(read_events(place))):
        with pytest.raises(UsageError, match="SESSION_NOT_FOUND"):
            read(path)
    assert not path.parent.exists()


READ = """
import sys
from pathlib import Path
from xnagent.errors import StoreError
from xnagent.store.reading import read_events
from xnagent.store.sessions import list_sessions
path = Path(sys.argv[1])
assert "note 1" in repr(list(read_events(path)))
assert {row.path: row.problem for row in list_sessions(path.parent)}[path] is None
path = path.with_name("s-2.db")
try:
    print(list(read_events(path)))
except StoreError as error:
    print(error)
"""


def run_in_readonly_mount(folder, *command):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare to mount a folder read-only")
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 77; shift 0; exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, str(folder), *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    if done.returncode in {1, 77} and "Traceback" not in done.stderr:
        pytest.skip(f"cannot mount here: {done.stderr}")
    return done


async def test_reading_works_in_a_folder_that_cannot_be_written_to(store, path):
    await store.append(note(1))
    unfinished = path.with_name("s-2.db")
    shutil.copy(path, unfinished)
    shutil.copy(path.with_name("s-1.db-wal"), path.with_name("s-2.db-wal"))
    await store.aclose()
    done = run_in_readonly_mount(path.parent, sys.executable, "-c", READ, str(path))
    assert done.returncode == 0, done.stderr
    assert "STORE_READ_ONLY" in done.stdout
    assert "s-2.db-wal" in done.stdout


@pytest.mark.parametrize("place", ["file/sessions/s-1.db", "file/s-1.db"])
async def test_a_place_that_cannot_be_written_to_says_so(tmp_path, session, clock, place):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"STORE_CREATE_FAILED: .*Not a directory.*--home"):
        await SessionStore.create(tmp_path / place, session=session, clock=clock)


async def test_a_kernel_folder_refuses_and_nothing_is_left(session, clock):
    with pytest.raises(StoreError, match="STORE_CREATE_FAILED"):
        await SessionStore.create(Path("/proc/xnagent/s-1.db"), session=session, clock=clock)


async def test_sessions_are_listed_newest_first_with_what_is_wrong(tmp_path, clock):
    async def make(name, time, *events):
        clock.time = time
        place = session_path(tmp_path, name)
        store = await SessionStore.create(place, session=SessionId(name), clock=clock)
        await store.append(SessionStarted(session=SessionId(name), objective=f"do {name}"), *events)
        return store

    settled = SessionSettled(outcome="partial", exit_code=4)
    await (await make("s-a", "2026-11-01T00:00:00.000Z", settled)).aclose()
    await (await make("s-b", "2026-11-02T00:00:00.000Z", SessionInterrupted(signal="SIGINT"))).aclose()
    (sessions_folder(tmp_path) / "s-x.db").write_text("no database")
    (sessions_folder(tmp_path) / "notes.txt").write_text("something else")
    async with aclosing(await make("s-c", "2026-11-03T00:00:00.000Z")):
        rows = {row.session: row for row in list_sessions(sessions_folder(tmp_path))}
        order = [name for name in rows if name != "s-x"]
    assert order == ["s-c", "s-b", "s-a"]
    assert [rows[name].status for name in order] == ["open", "interrupted", "settled"]
    assert [rows[name].is_live for name in order] == [True, False, False]
    assert (rows["s-a"].outcome, rows["s-a"].exit_code, rows["s-a"].objective) == ("partial", 4, "do s-a")
    assert rows["s-x"].status == "damaged"
    assert "STORE_DAMAGED" in rows["s-x"].problem
    assert (sessions_folder(tmp_path) / "s-x.db").read_text() == "no database"


def test_no_folder_is_an_empty_list(tmp_path):
    assert list_sessions(tmp_path / "none") == []


def test_a_new_session_id_tells_the_time(clock, tmp_path):
    first, second = new_session_id(clock), new_session_id(clock)
    assert first.startswith("s-20261130-141502-")
    assert first != second
    assert session_path(tmp_path, first) == tmp_path / "sessions" / f"{first}.db"


@pytest.mark.parametrize("name", ["", "s-", "1", "../s-1", "s-1/../../x", "s-a.db", "s-\x00", "s-ü", "s-1\n"])
def test_a_path_is_no_session_name(tmp_path, name):
    with pytest.raises(UsageError, match="SESSION_NAME"):
        session_path(tmp_path, name)


async def test_an_artifact_can_be_read_by_others(store, path):
    ticket = store.put(b"x" * 5000)
    await store.append(note(1))
    assert read_artifact(path, ticket) == b"x" * 5000
