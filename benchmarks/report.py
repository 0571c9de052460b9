#!/usr/bin/env python
"""What a report costs: a session of 100,000 events is read from its file, made into a page, and written.

python benchmarks/report.py                   # 100,000 events
python benchmarks/report.py --events 20000    # fewer
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import islice
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.inspect.long import PATCH, SESSION, TICKET, long_events
from xnagent.app.host import SystemClock
from xnagent.cli.inspect import read
from xnagent.cli.main import run
from xnagent.core.masking import Mask
from xnagent.inspect.page.whole import page
from xnagent.inspect.report import document
from xnagent.store.files import FileSessions
from xnagent.store.place import Place
from xnagent.store.placed import PlacedLog

EVENTS = 100_000
STEPS = 100
"""Of each run."""
BATCH = 5_000
TARGET_SECONDS = 3.0
RUNS = 3


async def make(place: Place, events: int) -> None:
    """A long session in its file."""
    clock = SystemClock()
    happened = islice(long_events(events, STEPS), events)
    async with aclosing(await PlacedLog.create_at(place, session=SESSION, clock=clock)) as log:
        while batch := tuple(islice(happened, BATCH)):
            await log.append(*batch)


def best(work: Callable[[], object]) -> float:
    """Processor seconds of the least disturbed run: others use the machine too."""
    seconds = []
    for _ in range(RUNS):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def tell(rows: Sequence[tuple[str, float]]) -> None:
    """The table."""
    sys.stdout.write("\n".join(f"{name:<34}{seconds:>8.2f} s" for name, seconds in rows) + "\n")


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--strict", action="store_true", help="end with 1 if the target is missed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xnagent-bench-") as folder:
        place = FileSessions(Path(folder)).place(SESSION)
        anyio.run(partial(make, place, arguments.events))
        reading = read(place)
        out = str(Path(folder) / "report.html")
        whole = best(lambda: run(["report", SESSION, "-o", out, "--home", folder, "-q"]))
        rows = [
            (f"read {len(reading.events):,} events", best(lambda: read(place))),
            ("all parts, as inspect --json", best(lambda: document(reading, ()))),
            ("page", best(lambda: list(page(reading, texts={TICKET: PATCH}, mask=Mask())))),
            ("xnagent report, all of it", whole),
            ("target", TARGET_SECONDS),
            ("page's size in MB", Path(out).stat().st_size / 1e6),
        ]
        tell(rows)
    return int(arguments.strict and whole > TARGET_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
