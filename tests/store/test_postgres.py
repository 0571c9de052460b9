"""What only a database server can do to a session: crash, cut the connection, come back, or stay away."""

import os
import random
import socket
import subprocess
import sys
from contextlib import aclosing, closing, suppress
from pathlib import Path
from threading import Lock, Thread

import anyio
import psycopg
import pytest

from xnagent.core.events import ProgressNoted
from xnagent.core.ids import AgentId, RunId, SessionId
from xnagent.errors import StoreError, StoreFencedError, StoreVersionError, StoreWriteError, UsageError
from xnagent.store.place import state_at
from xnagent.store.placed import PlacedLog
from xnagent.store.postgres.address import parse_address
from xnagent.store.postgres.connecting import connect
from xnagent.store.postgres.places import sessions_in
from xnagent.store.postgres.schema import CREATING, has_tables, require_tables

ROOT = Path(__file__).resolve().parents[2]
PRODUCERS = 16
EACH = 12
SECRET = "pa%21ss-w0rd"


def note(number):
    return ProgressNoted(run=RunId("r1"), text=f"note {number}")


@pytest.fixture
def anyio_backend():
    """One backend but for one test."""
    return "asyncio"


@pytest.fixture
def url(database_server):
    return database_server.database()


@pytest.fixture
def place(url):
    return sessions_in(url).place("s-1")


async def created(place, clock):
    return await PlacedLog.create_at(place, session=SessionId("s-1"), clock=clock)


def ask(url, statement):
    with psycopg.connect(url, autocommit=True, options="-c search_path=xnagent") as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def texts(place):
    return [stored.event.text for stored in place.events()]


async def produce(store, disturb, *, at):
    """Sixteen producers; when so many appends were acknowledged, something happens once more."""
    acknowledged = []
    moments = sorted(at)

    async def producer(number):
        for index in range(EACH):
            await store.append(note(f"{number} {index}"), durable=index % 3 == 0)
            acknowledged.append(f"note {number} {index}")
            if moments and len(acknowledged) >= moments[0]:
                moments.pop(0)
                await disturb()

    with anyio.fail_after(55):
        async with anyio.create_task_group() as group:
            for number in range(PRODUCERS):
                group.start_soon(producer, number)
    assert not moments
    return acknowledged


def check_all(store, place, acknowledged):
    stored = texts(place)
    assert sorted(stored) == sorted(acknowledged), "nothing lost, nothing doubled"
    assert [event.seq for event in place.events()] == list(range(1, len(stored) + 1))
    assert list(store.state.work[AgentId("r1")].notes) == stored
    assert store.state == state_at(place)


async def test_a_server_that_crashes_amid_appends_loses_and_doubles_nothing(database_server, place, clock):
    async def crash():
        database_server.crash()
        database_server.start()

    async with aclosing(await created(place, clock)) as store:
        acknowledged = await produce(store, crash, at=random.Random(7).sample(range(5, PRODUCERS * EACH - 20), 2))
        check_all(store, place, acknowledged)
        assert store.epoch == 1, "it is the same writer all the time"
    assert sorted(texts(place)) == sorted(acknowledged)


async def test_a_connection_that_is_cut_again_and_again_loses_and_doubles_nothing(url, place, clock):
    async def cut():
        await anyio.to_thread.run_sync(ask, url, "SELECT pg_terminate_backend(backend::int) FROM leases")

    async with aclosing(await created(place, clock)) as store:
        check_all(store, place, await produce(store, cut, at=range(10, 150, 20)))


class Proxy:
    """Stands before the server; cuts one connection at the n-th COMMIT, before it gets there or before its answer."""

    def __init__(self, server, *, does_arrive):
        self.is_cut = False
        self.left = 0
        self._target = str(server.folder / ".s.PGSQL.5432")
        self._does_arrive = does_arrive
        self._lock = Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def close(self):
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                Thread(target=self._forward, args=(client, server), daemon=True).start()
                Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _forward(self, client, server):
        with suppress(OSError), closing(server):
            while data := client.recv(1 << 16):
                if b"COMMIT" in data and self._is_time():
                    if self._does_arrive:
                        client.shutdown(socket.SHUT_RDWR)
                        server.sendall(data)
                        server.recv(1 << 16)
                    break
                server.sendall(data)
        client.close()

    def _answer(self, server, client):
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def _is_time(self):
        with self._lock:
            self.left -= 1
            self.is_cut = self.is_cut or self.left == 0
            return self.left == 0


@pytest.mark.parametrize("does_arrive", [True, False])
@pytest.mark.parametrize("cut_at", [1, 2, 3])
async def test_a_commit_whose_answer_never_comes_is_resolved(database_server, url, clock, cut_at, does_arrive):
    proxy = Proxy(database_server, does_arrive=does_arrive)
    with closing(proxy):
        through = url.partition("?")[0].replace("@", f"@127.0.0.1:{proxy.port}")
        place = sessions_in(through).place("s-1")
        async with aclosing(await created(place, clock)) as store:
            proxy.left = cut_at
            for number in range(6):
                store.put(f"content {number}".encode())
                await store.append(note(number), durable=number % 2 == 0)
            assert proxy.is_cut
            assert store.state == state_at(place)
    assert texts(sessions_in(url).place("s-1")) == [f"note {number}" for number in range(6)]
    assert len(ask(url, "SELECT * FROM artifacts")) == 6


async def test_a_server_that_stays_away_stops_the_session_loudly(database_server, url, clock):
    place = sessions_in(url, patience_seconds=0.3).place("s-1")
    store = await created(place, clock)
    await store.append(note(1))
    await store.append(note(2), durable=False)
    database_server.crash()
    try:
        for _ in range(2):
            with pytest.raises(StoreWriteError, match=r"did not come back in 0[.]3 seconds") as caught:
                await store.append(note(3))
        assert "`xnagent resume s-1` goes on" in str(caught.value)
        with pytest.raises(StoreError, match="STORE_UNREACHABLE"):
            list(place.events())
        await store.aclose()
    finally:
        database_server.start()
    async with aclosing(await PlacedLog.open_at(place, clock=clock)) as again:
        assert texts(place)[0] == "note 1"
        assert [stored.seq for stored in place.events()] == list(range(1, again.last_seq + 1))
        await again.append(note(4))


async def test_a_lease_is_renewed_while_nothing_is_written(url, clock):
    place = sessions_in(url, lease_seconds=0.3).place("s-1")
    async with aclosing(await created(place, clock)) as store:
        seen = set()
        with anyio.fail_after(40):
            while len(seen) < 4:
                seen |= set(ask(url, "SELECT expires FROM leases"))
                await anyio.sleep(0.02)
        await store.append(note(1))
    assert ask(url, "SELECT * FROM leases") == []


async def test_an_idle_owner_hears_that_it_was_replaced(url, clock):
    place = sessions_in(url, lease_seconds=0.3).place("s-1")
    async with aclosing(await created(place, clock)) as store:
        ask(url, "UPDATE meta SET value = '7' WHERE key = 'epoch'; DELETE FROM leases")
        with anyio.fail_after(40):
            for _ in iter(lambda: store._writer.fault is None, False):
                await anyio.sleep(0.02)
        with pytest.raises(StoreError, match=r"SESSION_TAKEN_OVER.*epoch 7, this one had 1"):
            await store.append(note(1))


async def test_a_writer_whose_place_is_taken_hears_of_it_and_not_of_a_duplicate(url, place, clock):
    async with aclosing(await created(place, clock)) as store:
        await store.append(note(1))
        ask(url, "UPDATE meta SET value = '7' WHERE key = 'epoch'")
        ask(url, "INSERT INTO events SELECT session, 2, at, 7, type, agent, enc, payload FROM events")
        with pytest.raises(StoreFencedError, match=r"epoch 7, this one had 1"):
            await store.append(note(2))
        assert texts(place) == ["note 1", "note 1"]


async def test_an_event_that_the_database_refuses_stops_the_log_there_and_no_sooner(url, place, clock):
    store = await created(place, clock)
    ask(url, "ALTER TABLE events ADD CHECK (seq <> 3)")
    results = {}

    async def append(number):
        try:
            await store.append(note(number))
            results[number] = "stored"
        except StoreWriteError as error:
            results[number] = str(error)

    async with anyio.create_task_group() as group:
        for number in range(1, 6):
            group.start_soon(append, number)
    await store.aclose()
    assert sorted(results.values())[-2:] == ["stored", "stored"]
    refused = [text for text in results.values() if text != "stored"]
    assert len(refused) == 3
    assert all("STORE_WRITE_FAILED: s-1 in postgresql://" in text for text in refused)
    assert len(texts(place)) == 2


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_both_backends_of_anyio(url, place, clock):
    async with aclosing(await created(place, clock)) as store:
        await store.append(note(1))
        assert store.last_seq == await store.wait(after=0) == 1


async def test_tables_of_a_newer_version_are_left_alone(url, place, clock):
    await (await created(place, clock)).aclose()
    ask(url, "UPDATE meta SET value = '2' WHERE key = 'version'")
    other = sessions_in(url)
    for use in (other.rows, lambda: list(other.place("s-1").events())):
        with pytest.raises(StoreVersionError, match="tables of version 2, this xnagent knows version 1"):
            use()
    with pytest.raises(StoreVersionError):
        await PlacedLog.open_at(other.place("s-1"), clock=clock)


def test_reading_an_empty_database_makes_nothing_in_it(url):
    sessions = sessions_in(url)
    assert sessions.rows() == []
    with pytest.raises(UsageError, match=r"SESSION_NOT_FOUND: there is no session s-1 in postgresql://"):
        list(sessions.place("s-1").events())
    assert ask(url, "SELECT to_regclass('xnagent.meta')") == [(None,)]


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:9/db",
        f"postgresql://me@127.0.0.1:9/db?password={SECRET}",
        f"postgresql://me:{SECRET}@no-such-host.invalid/db",
    ],
)
def test_an_unreachable_server_is_told_without_the_password(address):
    sessions = sessions_in(address)
    with pytest.raises(StoreError, match=r"STORE_UNREACHABLE: postgresql://.*Start the server, or correct store.url"):
        sessions.rows()
    with pytest.raises(StoreError) as caught:
        sessions.place("s-1").create(SessionId("s-1"), now="2026-11-30T14:15:02.123Z")
    told = f"{caught.value} {caught.value!r} {sessions} {sessions!r} {sessions.place('s-1')!r}"
    assert not {secret for secret in (SECRET, "pa!ss", "w0rd") if secret in told}


def test_an_address_that_cannot_be_read_is_not_repeated():
    with pytest.raises(UsageError, match=r"STORE_URL: store[.]url cannot be read") as caught:
        sessions_in(f"postgresql://me:{SECRET}%zz@host/db")
    assert "w0rd" not in str(caught.value)


IMPORT = """
import sys, xnagent, xnagent.cli.run, xnagent.cli.sessions, xnagent.app.running
assert not [name for name in sys.modules if name.startswith("psycopg")]
"""


def test_the_driver_is_loaded_only_when_it_is_used():
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", IMPORT], env=environ, check=True, timeout=50)


def test_two_processes_that_make_the_tables_at_once_both_find_them(url):
    address = parse_address(url)
    with closing(connect(address)) as first, closing(connect(address)) as second:
        assert not has_tables(second, address)
        with first.transaction():
            first.execute("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
            other = Thread(target=require_tables, args=(second, address))
            other.start()
            while ask(url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == [(0,)]:
                assert other.is_alive()
            require_tables(first, address)
        other.join()
    assert sessions_in(url).rows() == []
    sessions_in(url).check()
