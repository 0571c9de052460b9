#!/usr/bin/env python
"""What it costs to open a long session: `inspect`, each of its parts, and the report, over a log of 100,000 events.

python benchmarks/report.py                   # 100,000 events
python benchmarks/report.py --events 20000    # fewer
python benchmarks/report.py --runs 9          # on a machine that is not idle
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.inspect.long import SESSION, long_events
from xnagent.app.host import SystemClock
from xnagent.cli.main import run
from xnagent.inspect.parts import PARTS
from xnagent.store.files import FileSessions
from xnagent.store.place import Place, state_at
from xnagent.store.placed import PlacedLog

ROOT = Path(__file__).resolve().parent.parent
EVENTS = 100_000
STEPS = 100
"""Of each run."""
BATCH = 5_000
INSPECT_SECONDS = 1.0
REPORT_SECONDS = 3.0
RUNS = 3


async def make(place: Place, events: int) -> None:
    """A long session in its file: runs side by side, a Planner with deltas and rebases, usage of each request."""
    clock = SystemClock()
    happened = islice(long_events(events, STEPS), events)
    async with aclosing(await PlacedLog.create_at(place, session=SESSION, clock=clock)) as log:
        while batch := tuple(islice(happened, BATCH)):
            await log.append(*batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured."""

    name: str
    seconds: list[float]
    target: float | None = None

    @property
    def is_missed(self) -> bool:
        """Whether even the least disturbed run took too long: others use the machine too."""
        return self.target is not None and min(self.seconds) > self.target

    def __str__(self) -> str:
        target = "" if self.target is None else f"{self.target:>8.2f} s{'  missed' if self.is_missed else ''}"
        return f"{self.name:<34}{min(self.seconds):>8.2f} s{median(self.seconds):>8.2f} s{target}"


def timed(work: Callable[[], object], runs: int) -> list[float]:
    """Processor seconds of each run, in this process, with everything loaded."""
    seconds = []
    for _ in range(runs):
        gc.collect()
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return seconds


def commanded(arguments: list[str], runs: int) -> list[float]:
    """Processor seconds of a process of its own: Python's start and all imports with it."""
    seconds = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "xnagent", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return seconds


def rows(place: Place, folder: str, *, runs: int) -> Iterator[Row]:
    """In this process; then the two that have a target as commands of their own, where the targets hold."""
    home = ["--home", folder]
    report = ["report", SESSION, "-o", str(Path(folder) / "report.html"), *home, "-q"]
    yield Row(name="read and fold, as resume does", seconds=timed(lambda: state_at(place), runs))
    yield Row(name="inspect", seconds=timed(lambda: quiet(["inspect", SESSION, *home]), runs), target=INSPECT_SECONDS)
    for part in PARTS:
        asked = ["inspect", SESSION, f"--{part}", "--json", *home]
        yield Row(name=f"inspect --{part} --json", seconds=timed(partial(quiet, asked), runs))
    yield Row(name="report", seconds=timed(lambda: run(report), runs), target=REPORT_SECONDS)
    yield Row(name="start of Python, as a process", seconds=commanded(["inspect", "--help"], runs))
    overview = commanded(["inspect", SESSION, *home], runs)
    yield Row(name="inspect, as a process", seconds=overview, target=INSPECT_SECONDS)
    yield Row(name="report, as a process", seconds=commanded(report, runs), target=REPORT_SECONDS)


def quiet(arguments: list[str]) -> None:
    """The command with its output thrown away; a command that fails ends the program."""
    kept, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        code = run(arguments)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)
    if code:
        sys.exit(code)


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--strict", action="store_true", help="end with 1 if a target is missed")
    arguments = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory(prefix="xnagent-bench-") as folder:
        place = FileSessions(Path(folder)).place(SESSION)
        anyio.run(partial(make, place, arguments.events))
        sys.stdout.write(f"{arguments.events:,} events; processor time{'best':>21}{'median':>10}{'target':>10}\n")
        for row in rows(place, folder, runs=arguments.runs):
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
            missed = missed or row.is_missed
        size = (Path(folder) / "report.html").stat().st_size / 1e6
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        sys.stdout.write(f"page: {size:.0f} MB; most memory of a process (the report's): {memory:.0f} MB\n")
    return int(arguments.strict and missed)


if __name__ == "__main__":
    sys.exit(main())
