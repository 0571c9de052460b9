"""A disk whose power is cut: what was written and not synced is lost, or half of its sectors are.

The product's own functions run on it (schema, pragmas, transactions), over the SQLite that apsw brings, with a VFS in
which every write and sync counts towards the cut. What is left is looked at with the product as it always runs.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import apsw

from xnagent.core.events import ProgressNoted
from xnagent.core.ids import RunId, SessionId, Ticket
from xnagent.core.state import SessionState
from xnagent.store.artifacts import digest, ticket_of
from xnagent.store.files import FilePlace
from xnagent.store.holding import current_epoch, transact
from xnagent.store.opening import create_file, prepare
from xnagent.store.place import Append, Put, Work
from xnagent.store.tail import Tail

Syncing = Literal["full", "mixed", "normal"]
SECTOR_BYTES = 512
NOW = "2026-11-30T14:15:02.123Z"
SOON, LATE = 400, 6_000
"""Writes until the cut: within the first commits, or after checkpoints too."""


class PowerCutError(Exception):
    """The power is gone."""


@dataclass
class Stored:
    """One file: what is safe, and what was done to it since."""

    synced: bytearray
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes by offset; None: cut off there."""

    def sync(self) -> None:
        for offset, data in self.pending:
            _do(self.synced, offset, data=data)
        self.pending.clear()

    def left(self, chance: random.Random, survives: float) -> bytes:
        """What is found afterwards: of what was not synced, each sector with this probability."""
        found = bytearray(self.synced)
        for offset, data in self.pending:
            for start, part in _sectors(offset, data):
                if chance.random() < survives:
                    _do(found, start, data=part)
        return bytes(found)


def _do(content: bytearray, offset: int, *, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _sectors(offset: int, data: bytes | None) -> Iterator[tuple[int, bytes | None]]:
    if data is None:
        yield offset, None
        return
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
        yield offset + start, data[start:end]
        start = end


@dataclass
class Disk:
    """All files, and when the power goes."""

    writes_left: int
    files: dict[str, Stored] = field(default_factory=dict)
    syncs: int = 0

    def count(self) -> None:
        self.writes_left -= 1
        if self.writes_left <= 0:
            raise PowerCutError

    def leave(self, chance: random.Random, survives: float) -> None:
        """Put on the real disk what the cut left."""
        for path, stored in self.files.items():
            Path(path).write_bytes(stored.left(chance, survives))


class CutFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: Any, disk: Disk) -> None:
        super().__init__("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._disk = disk
        self._stored = disk.files.setdefault(path, Stored(bytearray(Path(path).read_bytes())))

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.count()
        self._stored.pending.append((offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._disk.count()
        self._stored.pending.append((size, None))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._disk.count()
        self._disk.syncs += 1
        self._stored.sync()


class CutVFS(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, "")
        self._disk = disk

    def xOpen(self, name: Any, flags: Any) -> CutFile:
        return CutFile(name, flags, self._disk)

    def xDelete(self, _filename: str, _sync_directory: bool) -> None:
        raise PowerCutError


class Cursor:
    """What the product asks of a cursor."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)


class Connection:
    """apsw's connection as the product uses the standard library's."""

    def __init__(self, path: Path, vfs: str) -> None:
        self._own = apsw.Connection(str(path), vfs=vfs, flags=apsw.SQLITE_OPEN_READWRITE)

    @property
    def in_transaction(self) -> bool:
        return self._own.in_transaction

    def execute(self, statement: str, values: Any = None) -> Cursor:
        rows = self._own.execute(statement, values).fetchall()
        return Cursor(rows, self._own.changes())

    def executemany(self, statement: str, values: Any) -> Cursor:
        self._own.executemany(statement, values).fetchall()
        return Cursor([], self._own.changes())

    def close(self) -> None:
        self._own.close(True)


@dataclass
class Acknowledged:
    """What the session was told before the power went."""

    last: int = 0
    durable: int = 0
    contents: dict[Ticket, bytes] = field(default_factory=dict)
    """Content that a durable append followed."""
    commits: int = 0


def run_until_cut(path: Path, chance: random.Random, syncing: Syncing) -> tuple[Disk, Acknowledged]:
    """A session that writes until the power is cut."""
    create_file(path, session=SessionId(path.stem), now=NOW)
    disk = Disk(writes_left=chance.randrange(1, chance.choice([SOON, LATE])))
    vfs = CutVFS(f"cut-{path.stem}", disk)
    told = Acknowledged()
    connection = Connection(path, f"cut-{path.stem}")
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        prepare(connection, path)
        _write(connection, path, chance=chance, syncing=syncing, told=told)
    except (PowerCutError, apsw.Error):
        disk.writes_left = 0
    finally:
        try:
            connection.close()
        except (PowerCutError, apsw.Error):
            del connection
        vfs.unregister()
    return disk, told


def _write(connection: Any, path: Path, *, chance: random.Random, syncing: Syncing, told: Acknowledged) -> None:
    tail = Tail(state=SessionState(), last_seq=0, hashes={})
    while True:
        works: list[Work] = []
        for _ in range(chance.choice([1, 1, 1, 4])):
            if chance.random() < 0.4:
                data = chance.randbytes(chance.choice([900, 40_000, 300_000]))
                works.append(Put(sha=digest(data), data=data))
            events = [
                ProgressNoted(run=RunId("r1"), text=chance.randbytes(chance.randrange(900)).hex())
                for _ in range(chance.choice([1, 2]))
            ]
            is_durable = {"full": True, "normal": False, "mixed": chance.random() < 0.2}[syncing]
            works.append(tail.appended(events, at=NOW, is_durable=is_durable))
        written, fault = transact(connection, works, epoch=current_epoch(connection), path=path)
        assert (written, fault) == (len(works), None)
        _acknowledge(told, works)


def _acknowledge(told: Acknowledged, works: list[Work]) -> None:
    appends = [work for work in works if isinstance(work, Append)]
    told.commits += 1
    told.last = appends[-1].last_seq
    if any(work.is_durable for work in appends):
        told.durable = told.last
        told.contents |= {ticket_of(work.sha): work.data for work in works if isinstance(work, Put)}


def faults_after(path: Path, told: Acknowledged, syncing: Syncing) -> list[str]:
    """What is wrong with the session that is found after the cut; nothing, if all is well."""
    place = FilePlace(path)
    found = [stored.seq for stored in place.events()]
    faults = []
    if found != list(range(1, len(found) + 1)):
        faults.append(f"a gap: {found}")
    promised = told.last if syncing == "full" else told.durable
    if len(found) < promised:
        faults.append(f"{promised - len(found)} of {promised} events were lost that were synced")
    faults += [f"{ticket} was lost" for ticket, data in told.contents.items() if place.artifact(ticket) != data]
    return faults
