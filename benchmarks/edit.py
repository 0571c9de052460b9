#!/usr/bin/env python
"""What edit's ladder rescues of edits that nearly fit, and what an edit of a large file costs."""

from __future__ import annotations

import argparse
import functools
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.tools.near_misses import KINDS, Case, cases
from tests.tools.scene import Scene
from xnagent.ports import Outcome

RUNGS = {
    "exact": "",
    "ends": "line ends",
    "trailing": "trailing whitespace",
    "indent": "shifted",
    "tabs": "tabs or spaces",
    "looks": "look-alike",
}
MATCHED = re.compile(r"Not an exact match: ([^\n]*)")
LINE = "    value_{0} = compute({0}, scale=2)  # {0}\n"
LARGE_BYTES = 1_000_000
TARGET_MS = 20


def rung_of(done: Outcome) -> str:
    """The rung that an edit stood on, or the code of its refusal."""
    if done.code != "ok":
        return "refused"
    told = MATCHED.search(done.text)
    return next((name for name, words in RUNGS.items() if told and words and words in told[1]), "exact")


async def ladder(scene: Scene, *, seed: int, count: int) -> dict[str, Counter[str]]:
    """How the cases of each kind ended; `wrong`: the file is not what it must be."""
    found: dict[str, Counter[str]] = {}
    for case in cases(seed, count):
        scene.put("f.py", case.file)
        done = await scene.do("edit", path="f.py", old=case.old, new=case.new)
        counts = found.setdefault(case.kind, Counter())
        counts[rung_of(done)] += 1
        counts["wrong"] += not is_right(scene, case, done=done)
    return found


def is_right(scene: Scene, case: Case, *, done: Outcome) -> bool:
    """Whether the file is as it must be: edited at the one place, or untouched. To refuse is never wrong."""
    after = scene.bytes_of("f.py")
    return after == case.file if done.code != "ok" else after == case.wanted


def print_table(found: dict[str, Counter[str]]) -> int:
    """Print the table; returns how many edits went wrong."""
    names = [*RUNGS, "refused", "wrong"]
    sys.stdout.write(f"{'kind':36}" + "".join(f"{name:>10}" for name in names) + "\n")
    total: Counter[str] = Counter()
    for kind, counts in found.items():
        total += counts
        sys.stdout.write(f"{kind:36}" + "".join(f"{counts[name] or '.':>10}" for name in names) + "\n")
    sys.stdout.write(f"{'all':36}" + "".join(f"{total[name]:>10}" for name in names) + "\n")
    return total["wrong"]


async def large(scene: Scene, runs: int) -> None:
    """Time edits of a file of 1 MB: exact, by each rung, and one that fails."""
    text = "".join(LINE.format(n) for n in range(LARGE_BYTES // 48))
    middle = LINE.format(10_000)
    olds = {"exact": middle, "trailing": middle.rstrip("\n") + "  \n", "indent": "   " + middle}
    olds["tabs"] = middle.replace("    ", "\t", 1)
    olds["looks"] = middle.replace(" = ", "\u00a0= ")
    olds["refused"] = middle.replace("scale=2", "scale=33")
    for name, old in olds.items():
        seconds, processor = [], []
        for number in range(runs):
            scene.put("large.py", text)
            began, used = time.perf_counter(), time.process_time()
            done = await scene.do("edit", path="large.py", old=old, new=old.replace("value", f"other_{number}"))
            seconds.append(time.perf_counter() - began)
            processor.append(time.process_time() - used)
            if rung_of(done) != name:
                raise SystemExit(f"{name}: {done.text}")
        best, median = min(seconds) * 1000, statistics.median(seconds) * 1000
        sys.stdout.write(
            f"edit of {len(text):,} bytes, {name:9} best {best:7.1f} ms   median {median:7.1f} ms"
            f"   of the processor {statistics.median(processor) * 1000:7.1f} ms   {verdict(median)}\n"
        )


def verdict(median: float) -> str:
    """Against the target."""
    return "ok" if median <= TARGET_MS else f"over {TARGET_MS} ms"


async def measure(arguments: argparse.Namespace) -> int:
    """Do all of it; returns the exit code."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            sys.stdout.write(f"\nseed {seed}, {arguments.count} edits of {len(KINDS)} kinds\n")
            wrong += print_table(await ladder(scene, seed=seed, count=arguments.count))
        sys.stdout.write("\n")
        await large(scene, arguments.runs)
    return 1 if wrong else 0


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=20_261_130)
    parser.add_argument("--seeds", type=int, default=1, help="so many seeds, from the first on")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--runs", type=int, default=9)
    return anyio.run(functools.partial(measure, parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
