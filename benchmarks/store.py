#!/usr/bin/env python
"""What an append costs in each store: synced appends a second, by one producer and by sixteen.

    python benchmarks/store.py                       # files, and a PostgreSQL server of its own if it is installed
    python benchmarks/store.py --url postgresql://…  # files, and this database (a session is added and removed)

Read the ratios: the disk decides about the rest.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.database import running, why_not
from xnagent.app.host import SystemClock
from xnagent.app.stores import sessions_at
from xnagent.config import StoreSettings
from xnagent.core.events import ProgressNoted
from xnagent.core.ids import RunId, SessionId
from xnagent.store.files import FileSessions
from xnagent.store.place import Sessions
from xnagent.store.placed import PlacedLog
from xnagent.store.sessions import new_session_id

TEXT = "x" * 2_000
PRODUCERS = (1, 16)
SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What one store did."""

    store: str
    producers: int
    a_second: float


async def measure(sessions: Sessions, producers: int, *, name: str, seconds: float) -> Rate:
    """Append from so many tasks for so long."""
    clock = SystemClock()
    session = SessionId(new_session_id(clock))
    place = sessions.place(session)
    count = 0

    async def produce(store: PlacedLog, until: float) -> None:
        nonlocal count
        while time.perf_counter() < until:
            await store.append(ProgressNoted(run=RunId("r1"), text=TEXT))
            count += 1

    async with aclosing(await PlacedLog.create_at(place, session=session, clock=clock)) as store:
        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(producers):
                group.start_soon(produce, store, began + seconds)
        taken = time.perf_counter() - began
    place.forget()
    return Rate(store=name, producers=producers, a_second=count / taken)


@contextmanager
def stores(url: str | None) -> Iterator[list[tuple[str, Sessions]]]:
    """Files in a temporary folder, and a database if there is one."""
    own = nullcontext(None) if url or why_not() else running(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="xnagent-bench-") as folder, own as server:
        found: list[tuple[str, Sessions]] = [("files", FileSessions(Path(folder)))]
        database = sessions_at(StoreSettings(url=url or (server.database() if server else "")), home=Path(folder))
        yield found if database is None else [*found, ("postgres", database)]


def tell(rates: Sequence[Rate]) -> None:
    """The table; everything relative to one producer on files."""
    unit = rates[0].a_second
    lines = [f"{'store':<10}{'producers':>10}{'appends/s':>12}{'ratio':>8}"]
    lines += [
        f"{rate.store:<10}{rate.producers:>10}{rate.a_second:>12,.0f}{rate.a_second / unit:>8.2f}" for rate in rates
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a database of your own")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each line")
    arguments = parser.parse_args()
    with stores(arguments.url) as found:
        tell(
            [
                anyio.run(partial(measure, sessions, producers, name=name, seconds=arguments.seconds))
                for name, sessions in found
                for producers in PRODUCERS
            ]
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
