"""A process that appends to a session, for tests that kill it, race it, or take its disk away.

`process.py forever PLACE LEASE_MILLISECONDS`, `count PLACE N`, `full PATH BYTES`. A place is a file, or a database's
address, `#` and a session. Prints one line for each acknowledged event.
"""

import os
import resource
import signal
import sys
import time
from contextlib import aclosing
from pathlib import Path

import anyio

from xnagent.core.events import ProgressNoted
from xnagent.core.ids import AgentId, CallId, RunId, SessionId
from xnagent.core.spine_events import ToolStarted
from xnagent.errors import StoreError
from xnagent.store.files import FilePlace
from xnagent.store.place import Place, state_at
from xnagent.store.placed import PlacedLog
from xnagent.store.postgres.places import LEASE_SECONDS, sessions_in


class SystemClock:
    def now(self) -> str:
        return "2026-11-30T14:15:02.123Z"

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def place_of(word: str, lease_seconds: float = LEASE_SECONDS) -> Place:
    if word.startswith("postgresql:"):
        url, _, name = word.rpartition("#")
        return sessions_in(url, lease_seconds=lease_seconds).place(name)
    return FilePlace(Path(word))


async def opened(place: Place) -> PlacedLog:
    if place.exists():
        return await PlacedLog.open_at(place, clock=SystemClock())
    return await PlacedLog.create_at(place, session=SessionId(place.name), clock=SystemClock())


async def forever(word: str, lease_milliseconds: int) -> None:
    store = await opened(place_of(word, lease_milliseconds / 1000 or LEASE_SECONDS))

    async def agent(name: str) -> None:
        while True:
            at = store.last_seq
            call = ToolStarted(agent=AgentId(name), call_id=CallId(f"{name}-{at}"), tool="bash", effect="opaque")
            store.put(f"{name} {at}".encode() * 500)
            stored = await store.append(call, ProgressNoted(run=RunId(name), text="x" * 700))
            say("ack", stored[-1].seq)

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(agent, f"r{number}")


async def count(word: str, number: int) -> None:
    async with aclosing(await opened(place_of(word))) as store:
        for index in range(number):
            await store.append(ProgressNoted(run=RunId("r1"), text=f"{store.session} {index}"), durable=index % 20 == 0)
            say("ack", index)


async def full(word: str, limit: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    place = place_of(word)
    store = await opened(place)
    await store.append(ProgressNoted(run=RunId("r1"), text="fits"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for _ in range(2):
        try:
            store.put(os.urandom(limit * 3))
            await store.append(ProgressNoted(run=RunId("r1"), text="does not"))
        except StoreError as error:
            say(type(error).__name__, error)
    say("last", store.last_seq, store.state == state_at(place))
    await store.aclose()


async def main() -> None:
    task = {"forever": forever, "count": count, "full": full}[sys.argv[1]]
    ended: list[StoreError] = []
    try:
        await task(sys.argv[2], int(sys.argv[3]))
    except* StoreError as group:
        ended.append(first(group))
    for error in ended:
        say(type(error).__name__, error)
        raise SystemExit(error.exit_code) from error


def first(group: BaseExceptionGroup) -> StoreError:
    error = group.exceptions[0]
    return first(error) if isinstance(error, BaseExceptionGroup) else error


if __name__ == "__main__":
    anyio.run(main)
