"""The power is cut while a session is written: FULL loses nothing, NORMAL never leaves a gap or a damaged file."""

import random
import sqlite3
from contextlib import closing

import pytest

from tests.store.power import Disk, Stored, faults_after, run_until_cut
from xnagent.store.files import FilePlace
from xnagent.store.opening import rebuild_projections
from xnagent.store.place import state_at

SURVIVES = (0.0, 0.5, 1.0)


def look(path):
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [connection.execute(f"SELECT * FROM {name}").fetchall() for name in ("session", "tool_calls")]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("syncing", ["full", "mixed", "normal"])
def test_after_a_power_cut_everything_synced_is_there_and_nothing_is_damaged(tmp_path, syncing, seed):
    chance = random.Random(f"{syncing} {seed}")
    path = tmp_path / f"s-{syncing}-{seed}.db"
    disk, told = run_until_cut(path, chance, syncing)
    disk.leave(chance, SURVIVES[seed % 3])
    assert faults_after(path, told, syncing) == []
    written = look(path)
    state = state_at(FilePlace(path))
    rebuild_projections(path, now="2026-11-30T14:15:02.123Z")
    assert look(path) == written
    assert state_at(FilePlace(path)) == state


def test_the_simulation_can_lose_data(tmp_path):
    """NORMAL loses what was acknowledged and not synced: a disk that lost nothing would prove nothing."""
    lost = 0
    for seed in range(8):
        chance = random.Random(seed)
        path = tmp_path / f"s-{seed}.db"
        disk, told = run_until_cut(path, chance, "normal")
        disk.leave(chance, 0.0)
        lost += told.last - len(list(FilePlace(path).events()))
    assert lost > 0


def test_only_synced_sectors_are_sure_to_survive():
    disk = Disk(writes_left=9, files={"a": Stored(bytearray(b"old" + bytes(1021)))})
    stored = disk.files["a"]
    stored.pending += [(0, b"n" * 1024), (512, None)]
    assert stored.left(random.Random(1), 0.0) == b"old" + bytes(1021)
    assert stored.left(random.Random(1), 1.0) == b"n" * 512
    stored.sync()
    assert stored.left(random.Random(1), 0.0) == b"n" * 512
