#!/usr/bin/env python
"""What grep costs on a large tree, beside ripgrep itself: the pairs run one after the other, the ratio is told."""

from __future__ import annotations

import argparse
import functools
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
from anyio import to_thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.tools.scene import Scene

FILES = 50_000
FOLDERS = 500
LINE = "def work_{0}(value):\n    total = value * {0}\n    return total  # {0}\n\n"
PATTERNS = {
    "one match": "work_49999_needle",
    "50 matches": r"needle_\d+",
    "thousands of matches": r"return total",
    "no match": "is nowhere",
}
TARGET = 1.3


def plant(root: Path, count: int) -> None:
    """Make the tree: small files, some with a needle."""
    for number in range(count):
        folder = root / f"d{number % FOLDERS:03}" / "src"
        if number < FOLDERS:
            folder.mkdir(parents=True)
        text = LINE.format(number) * 8
        needle = f"needle_{number}\n" if number % (count // 50) == 0 else ""
        last = f"work_{number}_needle\n" if number == count - 1 else ""
        (folder / f"f{number}.py").write_text(text + needle + last)


def plain(ripgrep: str, root: Path, *, pattern: str) -> float:
    """Seconds that ripgrep takes for the same search, its output read and thrown away."""
    command = [ripgrep, "--no-config", "--hidden", "--line-number", "--no-require-git", "--", pattern, "./"]
    began = time.perf_counter()
    subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return time.perf_counter() - began


async def measure(arguments: argparse.Namespace) -> int:
    """Print a row for each pattern; returns the exit code."""
    ripgrep = shutil.which("rg")
    if ripgrep is None:
        sys.stdout.write("ripgrep is not installed\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder), ripgrep=ripgrep)
        await to_thread.run_sync(plant, scene.root, arguments.files)
        for name, pattern in PATTERNS.items():
            pairs = []
            for _ in range(arguments.runs):
                own = await to_thread.run_sync(functools.partial(plain, ripgrep, scene.root, pattern=pattern))
                began = time.perf_counter()
                await scene.do("grep", pattern=pattern)
                pairs.append((time.perf_counter() - began, own))
            sys.stdout.write(row(name, pairs))
    return 0


def row(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    """One line of the table."""
    ours, theirs = (statistics.median(column) * 1000 for column in zip(*pairs, strict=True))
    ratio = statistics.median(mine / own for mine, own in pairs)
    verdict = "ok" if ratio <= TARGET else f"over {TARGET}"
    return f"{name:22} grep {ours:8.1f} ms   rg {theirs:8.1f} ms   ratio {ratio:5.2f}   {verdict}\n"


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--runs", type=int, default=9)
    return anyio.run(functools.partial(measure, parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
