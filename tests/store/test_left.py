"""A session whose holder is gone without a word, in a database: who may go on with it, and when (B048)."""

import json
import os
from contextlib import aclosing

import anyio
import psycopg
import pytest

from tests.store.test_crash import start
from xnagent.core.events import ProgressNoted
from xnagent.core.ids import RunId, SessionId
from xnagent.errors import StoreBusyError
from xnagent.store.lock import can_be_followed, is_known_dead, machine, signature
from xnagent.store.placed import PlacedLog
from xnagent.store.postgres.places import sessions_in

NOTE = ProgressNoted(run=RunId("r1"), text="note")
ELSEWHERE = "/elsewhere"


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def url(database_server):
    return database_server.database()


@pytest.fixture
def killed(url):
    """A process of the home "" held the session and was killed."""
    with start("forever", f"{url}#s-1", 3_000) as process:
        for _ in range(3):
            process.stdout.readline()
        process.kill()
        process.communicate()


def ask(url, statement):
    with psycopg.connect(url, autocommit=True, options="-c search_path=xnagent") as connection:
        return connection.execute(statement)


async def refused(place, clock):
    """Why the place is not to be had, once the server knows that the first one is gone."""
    for _ in range(100):
        with pytest.raises(StoreBusyError) as caught:
            await PlacedLog.open_at(place, clock=clock)
        if "SESSION_BUSY" not in str(caught.value):
            break
    return str(caught.value)


async def test_B048_whoever_cannot_end_a_dead_holders_commands_waits_for_its_lease(url, clock, killed):
    sessions = sessions_in(url, home=ELSEWHERE, lease_seconds=3)
    place = sessions.place("s-1")
    told = await refused(place, clock)
    assert told.startswith("SESSION_LEFT: s-1 was run by another process (pid ")
    left = sessions.left_seconds("s-1")
    assert 0 < left <= 3
    await anyio.sleep(left)
    assert sessions.left_seconds("s-1") == 0
    async with aclosing(await PlacedLog.open_at(place, clock=clock)) as store:
        assert store.epoch == 2
        await store.append(NOTE)


async def test_B048_a_process_of_the_same_home_goes_on_at_once(url, clock, killed):
    ask(url, "UPDATE leases SET expires = expires + interval '1 hour'")
    sessions = sessions_in(url)
    assert sessions.left_seconds("s-1") == 0
    async with aclosing(await PlacedLog.open_at(sessions.place("s-1"), clock=clock)) as store:
        assert store.epoch == 2


async def test_what_was_given_back_is_anybodys_at_once(url, clock):
    store = await PlacedLog.create_at(sessions_in(url).place("s-1"), session=SessionId("s-1"), clock=clock)
    await store.aclose()
    sessions = sessions_in(url, home=ELSEWHERE)
    assert sessions.left_seconds("s-1") == 0
    await (await PlacedLog.open_at(sessions.place("s-1"), clock=clock)).aclose()


async def test_a_holder_that_lost_its_connection_keeps_the_session_for_the_length_of_its_lease(url, clock):
    place = sessions_in(url).place("s-1")
    async with aclosing(await PlacedLog.create_at(place, session=SessionId("s-1"), clock=clock)) as store:
        ask(url, "SELECT pg_terminate_backend(backend::int, 5000) FROM leases")
        other = sessions_in(url, home=ELSEWHERE).place("s-1")
        assert "or lost its connection" in await refused(other, clock)
        await store.append(NOTE)
        with pytest.raises(StoreBusyError, match="SESSION_BUSY"):
            await PlacedLog.open_at(other, clock=clock)
        assert sessions_in(url, home=ELSEWHERE).left_seconds("s-1") == 0, "it is held: nothing to wait for"


async def test_a_reserved_place_asks_for_no_lease_that_only_tells_of_commands(url, clock, killed):
    """Used before anything ran: the first event is not there yet."""
    place = sessions_in(url, home=ELSEWHERE).place("s-1")
    await refused(place, clock)
    with place.reserved(now=clock.now()):
        assert place.holder() is not None


GONE = 2**22 + 1


@pytest.mark.parametrize(
    ("changes", "follows"),
    [
        ({}, True),
        ({"pid": GONE}, True),
        ({"pid": os.getppid()}, False),
        ({"pid": GONE, "home": ELSEWHERE}, False),
        ({"pid": GONE, "machine": "another boot"}, False),
        ({"pid": GONE, "machine": ""}, False),
        ({"home": ELSEWHERE}, False),
    ],
)
def test_only_a_home_and_machine_that_can_prove_a_death_follow_it(changes, follows):
    signed = json.dumps({**json.loads(signature("now", home="/here")), **changes})
    assert machine()
    assert can_be_followed(signed, home="/here") == follows


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", '{"pid": 1, "host": "h", "since": "t"}'])
def test_an_older_or_damaged_signature_is_waited_for(text):
    assert not can_be_followed(text, home="")
    assert not is_known_dead(text)
