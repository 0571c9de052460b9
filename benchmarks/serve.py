#!/usr/bin/env python
"""How soon `xnagent serve` tells what was stored: many live sessions in one home, many viewers.

A process of its own writes the sessions through the store, as `xnagent run` does; the server is the real command; each
viewer has the list and one session open. Latency is from the time in the event, which is taken before it is stored,
to its arrival here, so it holds the commit too. Then the server is killed, and every log must be whole.

python benchmarks/serve.py                                # 50 sessions, 20 viewers, 10 seconds
python benchmarks/serve.py --sessions 10 --viewers 5 --strict
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.inspect.long import long_events
from xnagent.app.host import SystemClock
from xnagent.core.events import Event
from xnagent.core.ids import SessionId
from xnagent.store.files import FileSessions
from xnagent.store.place import state_at
from xnagent.store.placed import PlacedLog

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET_MS: Final = 300.0
BEGINNING: Final = 120
"""Events that are there before the first viewer comes."""
PAUSE_SECONDS: Final = 0.5
"""Of one session, from one transaction to the next."""
AT_ONCE: Final = 2
"""Events in a transaction."""
MANY: Final = 100_000
UPDATED: Final = re.compile(rb'datetime=\\"([^"\\]+)\\"')
TICKS: Final = os.sysconf("SC_CLK_TCK")


def name_of(number: int) -> str:
    """A session's name."""
    return f"s-bench-{number:03d}"


async def write(home: Path, sessions: int) -> None:
    """Write so many sessions until killed; says `ready` when all have begun."""
    async with AsyncExitStack() as stack, anyio.create_task_group() as group:
        begun = []
        for number in range(sessions):
            place = FileSessions(home).place(name_of(number))
            log = await PlacedLog.create_at(place, session=SessionId(name_of(number)), clock=SystemClock())
            stack.push_async_callback(log.aclose)
            events = long_events(MANY)
            await log.append(*islice(events, BEGINNING))
            begun.append((log, events))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for number, (log, events) in enumerate(begun):
            group.start_soon(partial(_go_on, log, events, first_pause=PAUSE_SECONDS * number / sessions))


async def _go_on(log: PlacedLog, events: Iterator[Event], *, first_pause: float) -> None:
    await anyio.sleep(first_pause)
    while True:
        await log.append(*islice(events, AT_ONCE))
        await anyio.sleep(PAUSE_SECONDS)


@dataclass(slots=True)
class Seen:
    """Milliseconds from an event's time to its arrival."""

    events: list[float] = field(default_factory=list)
    lines: list[float] = field(default_factory=list)
    gaps: int = 0
    """Events that did not follow the one before."""


def age_ms(at: str) -> float:
    """How old it is."""
    return 1_000 * (time.time() - datetime.fromisoformat(at).timestamp())


async def lines_of(url: str, path: str) -> AsyncIterator[bytes]:
    """The data of a stream, line by line: read plainly, so that little of the time is this program's own."""
    address, _, token = url.partition("/?token=")
    host, _, port = address.removeprefix("http://").partition(":")
    asked = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(asked.encode())
        rest = b""
        async for piece in stream:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                if line.startswith(b"data: "):
                    yield line[len(b"data: ") :]


async def view_session(url: str, session: str, *, seen: Seen, begin: anyio.Event) -> None:
    """One open page of a session."""
    expected: int | None = None
    async for line in lines_of(url, f"/sessions/{session}/events?after=0-0"):
        if not line.startswith(b'{"type":'):
            continue
        told = json.loads(line)
        if begin.is_set():
            seen.events.append(age_ms(told["at"]))
        seen.gaps += expected is not None and told["seq"] != expected
        expected = told["seq"] + 1


async def view_list(url: str, *, seen: Seen, begin: anyio.Event) -> None:
    """One open list."""
    async for line in lines_of(url, "/events?after=0-0"):
        if begin.is_set():
            seen.lines.extend(age_ms(at.decode()) for at in UPDATED.findall(line))


async def measure(url: str, arguments: argparse.Namespace, *, seen: Seen, server: int) -> tuple[float, float]:
    """Look on for a while; processor seconds of the server, and seconds."""
    begin = anyio.Event()
    async with anyio.create_task_group() as group:
        for number in range(arguments.viewers):
            session = name_of(number % arguments.sessions)
            group.start_soon(partial(view_session, url, session, seen=seen, begin=begin))
            group.start_soon(partial(view_list, url, seen=seen, begin=begin))
        await anyio.sleep(arguments.warm)
        begin.set()
        used, began = processor_seconds(server), time.monotonic()
        await anyio.sleep(arguments.seconds)
        spent = processor_seconds(server) - used, time.monotonic() - began
        group.cancel_scope.cancel()
    return spent


def processor_seconds(process: int) -> float:
    """What the process has used."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and its first line."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, *words], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        yield process, process.stdout.readline().strip() if process.stdout else ""
    finally:
        process.kill()
        process.wait()


def row(name: str, values: Sequence[float]) -> str:
    """The middle, the 95th of a hundred and the largest."""
    if not values[1:]:
        return f"{name:<26}nothing arrived"
    high = statistics.quantiles(values, n=20)[18]
    return f"{name:<26}{statistics.median(values):>9.0f}{high:>9.0f}{max(values):>9.0f}   ({len(values):,})"


def check_whole(home: Path, sessions: int) -> int:
    """Read and fold every log from its beginning; how many events there are."""
    places = [FileSessions(home).place(name_of(number)) for number in range(sessions)]
    for place in places:
        state_at(place)
    return sum(len(list(place.events())) for place in places)


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm", type=float, default=5.0, help="seconds before counting begins")
    parser.add_argument("--strict", action="store_true", help="end with 1 if the target is missed")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write is not None:
        anyio.run(write, arguments.write, arguments.sessions)
        return 0
    return watch(arguments)


def watch(arguments: argparse.Namespace) -> int:
    """Begin everything, look on, kill the server, and look at the logs."""
    seen = Seen()
    with tempfile.TemporaryDirectory(prefix="xnagent-bench-") as folder:
        home = Path(folder)
        with started(__file__, "--write", folder, "--sessions", str(arguments.sessions)) as (writer, _):
            with started("-m", "xnagent", "serve", "--home", folder, "--port", "0", "-q") as (server, url):
                used, seconds = anyio.run(partial(measure, url, arguments, seen=seen, server=server.pid))
                server.send_signal(signal.SIGKILL)
            time.sleep(PAUSE_SECONDS * 2)
            is_writing = writer.poll() is None
        events = check_whole(home, arguments.sessions)
    after = "all sessions went on" if is_writing else "THE WRITER ENDED"
    told = [
        f"{arguments.sessions} live sessions, {arguments.viewers} viewers with a list and a session each",
        f"{'milliseconds':<26}{'p50':>9}{'p95':>9}{'max':>9}",
        row("event, in a session", seen.events),
        row("line, in the list", seen.lines),
        f"{'target':<26}{TARGET_MS:>27.0f}",
        f"events out of order       {seen.gaps}",
        f"the server used           {100 * used / seconds:.0f} % of a processor",
        f"after it was killed       {after}, {events:,} events are whole",
    ]
    sys.stdout.write("\n".join(told) + "\n")
    is_met = bool(seen.events) and max(seen.events + seen.lines) < TARGET_MS and not seen.gaps and is_writing
    return int(arguments.strict and not is_met)


if __name__ == "__main__":
    sys.exit(main())
