#!/usr/bin/env python
"""What a session's repositories cost on a large checkout: time on the clock, and of the processors.

    python benchmarks/workspaces.py                  # 50,000 files
    python benchmarks/workspaces.py --files 5000     # another size

Read the column `x raw`: how many times the processor time of a plain loop that writes the same files. It is what a busy
machine changes least. `alone` is a tree that nobody made in advance; the others take the spare, which is made while the
Planner thinks: `in the background` is how long it must think for that.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xnagent.core.ids import RunId, SessionId
from xnagent.workspaces.repositories import SessionWorkspaces
from xnagent.workspaces.spares import Spare

GIT = shutil.which("git") or "git"
CP = shutil.which("cp") or "cp"
TEXT = "value = {}\n"
LINES = 20
A_FOLDER = 100
AT = "2026-11-30T12:00:00Z"
RUNS = 3
PAUSE_SECONDS = 0.005


class Table:
    """Prints one row for each measured part."""

    def __init__(self) -> None:
        self.raw = 0.0
        sys.stdout.write(f"{'part':<44}{'s':>8}{'cpu s':>8}{'x raw':>8}" + "\n")

    @contextmanager
    def row(self, name: str) -> Iterator[None]:
        """Measure the block."""
        clock, cpu = time.perf_counter(), _cpu()
        yield
        clock, cpu = time.perf_counter() - clock, _cpu() - cpu
        self.raw = self.raw or cpu
        sys.stdout.write(f"{name:<44}{clock:>8.2f}{cpu:>8.2f}{cpu / self.raw:>8.2f}" + "\n")
        sys.stdout.flush()


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def write_files(folder: Path, count: int) -> None:
    """So many small files, a hundred in a folder."""
    for number in range(count):
        place = folder / f"d{number // A_FOLDER}"
        if number % A_FOLDER == 0:
            place.mkdir(parents=True)
        (place / f"f{number}.py").write_text(TEXT.format(number) * LINES)


def commit_all(folder: Path) -> None:
    """One commit, packed."""
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all"), ("repack", "-adq")):
        options = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "gc.auto=0", "-c", "maintenance.auto=false")
        subprocess.run((GIT, *options, *arguments), cwd=folder, check=True)


async def measure(place: Path, count: int) -> None:
    """All rows."""
    sys.stdout.write(f"{count} files; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors" + "\n")
    table = Table()
    with table.row("a plain loop writes the files"):
        write_files(place / "user", count)
    commit_all(place / "user")
    with table.row("cp -a of the checkout"):
        await anyio.run_process([CP, "-a", str(place / "user"), str(place / "copy")])
    environ = {"PATH": os.environ["PATH"]}
    spare = Spare(place / "work", environ=environ, least_files=1)
    session = SessionWorkspaces(place / "user", place / "work", session=SessionId("s-1"), environ=environ, spare=spare)
    with table.row("begin"):
        base = (await session.begin(at=AT)).commit
    for number in range(RUNS):
        with table.row(f"open run {number + 1}, alone"):
            await session.open_run(RunId(f"alone{number}"), base)
    async with anyio.create_task_group() as group:
        group.start_soon(spare.keep)
        await _with_spare(table, session, spare=spare, base=base)
        group.cancel_scope.cancel()


async def _with_spare(table: Table, session: SessionWorkspaces, *, spare: Spare, base: str) -> None:
    with table.row("a spare, in the background"):
        await _ready(spare)
    for number in range(RUNS):
        with table.row(f"open run {number + 1}"):
            tree = await session.open_run(RunId(f"r{number}"), base)
        with table.row("the next spare, in the background"):
            await _ready(spare)
        (tree.root / "d0" / f"new{number}.py").write_text("new = 1\n")
        with table.row("take its one change"):
            taken = await session.take(RunId(f"r{number}"), base)
    with table.row("merge it"):
        await session.merge(head=base, base=base, commit=taken.commit, message="m")
    with table.row("a fresh tree for checks"):
        await session.checkout(taken.commit, "checks")
    await _ready(spare)
    with table.row("remove that tree"):
        await session.discard("checks")


async def _ready(spare: Spare) -> None:
    def wait() -> None:
        while spare.base is None:
            time.sleep(PAUSE_SECONDS)

    await anyio.to_thread.run_sync(wait)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50_000)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        anyio.run(measure, Path(name).resolve(), chosen.files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
