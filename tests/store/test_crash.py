"""kill -9, a full disk, and many processes at once."""

import os
import sqlite3
import subprocess
import sys
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from xnagent.store.opening import rebuild_projections
from xnagent.store.reading import read_events, read_state
from xnagent.store.sqlite import SessionStore

ROOT = Path(__file__).resolve().parents[2]
PROCESS = Path(__file__).with_name("process.py")


@pytest.fixture
def anyio_backend():
    return "asyncio"


def start(mode, path, number=0):
    return subprocess.Popen(
        [sys.executable, str(PROCESS), mode, str(path), str(number)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(mode, path, number=0):
    with start(mode, path, number) as process:
        out, err = process.communicate(timeout=50)
    return process.returncode, out, err


def projections(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [connection.execute(f"SELECT * FROM {t} ORDER BY rowid").fetchall() for t in ("session", "tool_calls")]


def kill_after(path, acknowledged):
    """The numbers that a process had acknowledged when it was killed."""
    with start("forever", path) as process:
        lines = [process.stdout.readline() for _ in range(acknowledged)]
        process.kill()
        lines += process.stdout.readlines()
    return [int(line.split()[1]) for line in lines if line.endswith("\n")]


async def test_b002_kill_9_loses_no_acknowledged_event(path, clock):
    acknowledged = []
    for moment in (1, 20, 90):
        acknowledged += kill_after(path, moment)
        events = list(read_events(path))
        assert [stored.seq for stored in events] == list(range(1, len(events) + 1))
        assert len(events) % 2 == 0, "an append is stored whole or not at all"
        assert set(acknowledged) <= {stored.seq for stored in events}
    written = projections(path)
    rebuild_projections(path, now=clock.now())
    assert projections(path) == written
    async with aclosing(await SessionStore.open(path, clock=clock)) as store:
        assert store.state == read_state(path)
        assert store.epoch == 5


def test_b053_eight_processes_start_on_one_new_store_and_one_gets_it(path):
    processes = [start("count", path, 200) for _ in range(8)]
    ends = [process.communicate(timeout=50) for process in processes]
    codes = [process.returncode for process in processes]
    winners = [index for index, code in enumerate(codes) if code == 0]
    assert winners, ends
    for index, (out, err) in enumerate(ends):
        if index not in winners:
            assert out.startswith(("StoreBusyError SESSION_BUSY", "StoreError SESSION_EXISTS")), (out, err)
    texts = [stored.event.text for stored in read_events(path)]
    assert texts == [f"s-1 {number}" for number in range(200)] * len(winners)


def test_b053_a_second_process_is_told_the_first_ones_pid_and_readers_disturb_nobody(path):
    with start("forever", path) as first:
        first.stdout.readline()
        code, out, _ = run("count", path, 1)
        assert code == 2
        assert f"pid {first.pid} on " in out
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as holder:
            holder.execute("BEGIN")
            seen = holder.execute("SELECT count(*) FROM events").fetchone()
            lines = [first.stdout.readline() for _ in range(50)]
            assert holder.execute("SELECT count(*) FROM events").fetchone() == seen
        first.kill()
        first.stdout.read()
    assert all(line.startswith("ack ") for line in lines)
    assert run("count", path, 1)[0] == 0, "the lock dies with its holder"


def test_a_full_disk_is_loud_and_loses_nothing_before_it(path):
    code, out, err = run("full", path, 300_000)
    assert code == 0, err
    first, second, last = out.splitlines()
    assert first == second
    assert first.startswith(f"StoreWriteError STORE_WRITE_FAILED: {path}: ")
    assert "everything before it is intact" in first
    assert last == "last 1 True"
    assert [stored.event.text for stored in read_events(path)] == ["fits"]
    assert run("count", path, 1)[0] == 0, "with space again, the session goes on"
