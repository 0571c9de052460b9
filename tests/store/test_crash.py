"""kill -9, a full disk, a stalled owner, and many processes at once."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from xnagent.core.events import ProgressNoted
from xnagent.core.ids import RunId, SessionId
from xnagent.errors import StoreBusyError
from xnagent.store.files import FilePlace
from xnagent.store.opening import create_file, rebuild_projections
from xnagent.store.place import state_at
from xnagent.store.placed import PlacedLog
from xnagent.store.projections import rebuild

ROOT = Path(__file__).resolve().parents[2]
PROCESS = Path(__file__).with_name("process.py")


@pytest.fixture
def anyio_backend():
    return "asyncio"


def start(mode, word, number=0):
    return subprocess.Popen(
        [sys.executable, str(PROCESS), mode, str(word), str(number)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(mode, word, number=0):
    with start(mode, word, number) as process:
        out, err = process.communicate(timeout=50)
    return process.returncode, out, err


def projections(spot):
    if spot.store == "files":
        with closing(sqlite3.connect(f"file:{spot.place}?mode=ro", uri=True)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return [spot.table(name) for name in ("session", "tool_calls")]


def remade(spot, clock, folder):
    """The projections, made again from the events."""
    if spot.store == "files":
        rebuild_projections(spot.place.path, now=clock.now())
        return projections(spot)
    path = folder / f"{spot.name}.db"
    create_file(path, session=SessionId(spot.name), now=clock.now())
    with closing(sqlite3.connect(path)) as connection:
        for row in spot.table("events"):
            connection.execute("INSERT INTO events VALUES(?, ?, ?, ?, ?, ?, ?)", row)
        rebuild(connection)
        connection.commit()
    return projections(replace(spot, store="files", place=FilePlace(path)))


def kill_after(spot, acknowledged):
    """The numbers that a process had acknowledged when it was killed."""
    with start("forever", spot.word) as process:
        lines = [process.stdout.readline() for _ in range(acknowledged)]
        process.kill()
        lines += process.stdout.readlines()
    return [int(line.split()[1]) for line in lines if line.endswith("\n")]


async def test_b002_kill_9_loses_no_acknowledged_event(spot, clock, tmp_path):
    acknowledged = []
    for moment in (1, *random.Random(4).sample(range(2, 100), 2)):
        acknowledged += kill_after(spot, moment)
        events = list(spot.place.events())
        assert [stored.seq for stored in events] == list(range(1, len(events) + 1))
        assert len(events) % 2 == 0, "an append is stored whole or not at all"
        assert set(acknowledged) <= {stored.seq for stored in events}
    assert projections(spot) == remade(spot, clock, tmp_path)
    async with aclosing(await PlacedLog.open_at(spot.place, clock=clock)) as store:
        assert store.state == state_at(spot.place)
        assert store.epoch == (5 if spot.store == "files" else 4)


def test_b053_many_processes_start_on_one_new_store_and_one_gets_it(spot):
    several, each = (8, 200) if spot.store == "files" else (4, 40)
    processes = [start("count", spot.word, each) for _ in range(several)]
    ends = [process.communicate(timeout=50) for process in processes]
    codes = [process.returncode for process in processes]
    winners = [index for index, code in enumerate(codes) if code == 0]
    assert winners, ends
    for index, (out, err) in enumerate(ends):
        if index not in winners:
            assert out.startswith(("StoreBusyError SESSION_BUSY", "StoreError SESSION_EXISTS")), (out, err)
    texts = [stored.event.text for stored in spot.place.events()]
    assert texts == [f"{spot.name} {number}" for number in range(each)] * len(winners)


def test_b053_a_second_process_is_told_the_first_ones_pid(spot):
    with start("forever", spot.word) as first:
        first.stdout.readline()
        code, out, _ = run("count", spot.word, 1)
        assert code == 2
        assert f"pid {first.pid} on " in out
        first.kill()
        first.stdout.read()
    code, out, err = run("count", spot.word, 1)
    assert code == 0, (out, err, "the right to write dies with its holder")


def test_readers_disturb_nobody(path):
    with start("forever", path) as first:
        first.stdout.readline()
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as holder:
            holder.execute("BEGIN")
            seen = holder.execute("SELECT count(*) FROM events").fetchone()
            lines = [first.stdout.readline() for _ in range(50)]
            assert holder.execute("SELECT count(*) FROM events").fetchone() == seen
        first.kill()
        first.stdout.read()
    assert all(line.startswith("ack ") for line in lines)


@pytest.mark.parametrize("spot", ["postgres"], indirect=True)
async def test_a_stalled_owner_is_fenced_when_it_comes_back(spot, clock):
    """Of files, `test_conformance.py` has it: there, an owner that was stopped amid a commit keeps the file locked."""
    with start("forever", spot.word, 1000) as owner:
        owner.stdout.readline()
        owner.send_signal(signal.SIGSTOP)
        async with aclosing(await taken(spot, clock)) as successor:
            before = successor.last_seq
            owner.send_signal(signal.SIGCONT)
            out, err = owner.communicate(timeout=50)
            await successor.append(ProgressNoted(run=RunId("r1"), text="mine"))
    assert owner.returncode == 1, err
    assert "StoreFencedError SESSION_TAKEN_OVER" in out
    events = list(spot.place.events())
    assert [stored.seq for stored in events] == list(range(1, before + 2)), "nothing of the old owner came after"


async def taken(spot, clock):
    """The session, once its owner's time has run out."""
    with anyio.fail_after(40):
        while True:
            try:
                return await PlacedLog.open_at(spot.place, clock=clock)
            except StoreBusyError:
                await anyio.sleep(0.05)


def test_a_full_disk_is_loud_and_loses_nothing_before_it(path):
    code, out, err = run("full", path, 300_000)
    assert code == 0, err
    first, second, last = out.splitlines()
    assert first == second
    assert first.startswith(f"StoreWriteError STORE_WRITE_FAILED: {path}: ")
    assert "everything before it is intact" in first
    assert last == "last 1 True"
    assert [stored.event.text for stored in FilePlace(path).events()] == ["fits"]
    assert run("count", path, 1)[0] == 0, "with space again, the session goes on"
