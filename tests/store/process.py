"""A process that appends to a session, for tests that kill it, race it, or take its disk away.

`process.py forever PATH`, `count PATH N`, `full PATH BYTES`. Prints one line for each acknowledged event.
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
from xnagent.store.reading import read_state
from xnagent.store.sqlite import SessionStore


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


async def opened(path: Path) -> SessionStore:
    if await anyio.Path(path).exists():
        return await SessionStore.open(path, clock=SystemClock())
    return await SessionStore.create(path, session=SessionId(path.stem), clock=SystemClock())


async def forever(path: Path, _: int) -> None:
    store = await opened(path)

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


async def count(path: Path, number: int) -> None:
    async with aclosing(await opened(path)) as store:
        for index in range(number):
            await store.append(ProgressNoted(run=RunId("r1"), text=f"{path.stem} {index}"), durable=index % 20 == 0)
            say("ack", index)


async def full(path: Path, limit: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = await opened(path)
    await store.append(ProgressNoted(run=RunId("r1"), text="fits"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for _ in range(2):
        try:
            store.put(os.urandom(limit * 3))
            await store.append(ProgressNoted(run=RunId("r1"), text="does not"))
        except StoreError as error:
            say(type(error).__name__, error)
    say("last", store.last_seq, store.state == read_state(path))
    await store.aclose()


async def main() -> None:
    task = {"forever": forever, "count": count, "full": full}[sys.argv[1]]
    try:
        await task(Path(sys.argv[2]), int(sys.argv[3]))
    except StoreError as error:
        say(type(error).__name__, error)
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    anyio.run(main)
