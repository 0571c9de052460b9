#!/usr/bin/env python
"""What a box adds to a command: median of paired runs, box beside plain `bash -c true`, through the product's shell."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xnagent.ports import Command
from xnagent.workspaces.box.ladder import Kind, make_box, owner_for, try_all
from xnagent.workspaces.box.sealing import Grounds, Rules
from xnagent.workspaces.box.visible import sight
from xnagent.workspaces.folders import Tree
from xnagent.workspaces.shell import ProcessShell

TARGET_MS = 15.0
MILLISECONDS = 1_000


def shell_of(kind: Kind | None, environ: dict[str, str]) -> ProcessShell:
    """A shell with a box of the kind, or without."""
    if kind is None:
        return ProcessShell(environ)
    rules = Rules(memory_bytes=4 * 1024**3)
    grounds = Grounds(sight=sight(environ, has_network=False), rules=rules, owner=owner_for(kind, "benchmark"))
    return ProcessShell(environ, box=make_box(kind, grounds, environ=environ))


def planted(place: Path, name: str) -> Tree:
    """An empty workspace."""
    folder = place.resolve() / name
    tree = Tree(root=folder / "tree", scratch=folder / "scratch")
    tree.root.mkdir(parents=True)
    return tree


async def measure(kind: Kind, environ: dict[str, str], *, pairs: int) -> tuple[list[float], list[float]]:
    """Milliseconds without and with the box, taken in turns so that a busy machine disturbs both alike."""
    plain, boxed = shell_of(None, environ), shell_of(kind, environ)
    taken: dict[ProcessShell, list[float]] = {plain: [], boxed: []}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        trees = {shell: planted(Path(name), str(number)) for number, shell in enumerate(taken)}
        for shell, tree in trees.items():
            await shell.run(tree, Command(command="true", timeout_seconds=60, spool="warm"))
        for number in range(pairs):
            for shell, values in taken.items():
                began = time.perf_counter()
                await shell.run(trees[shell], Command(command="true", timeout_seconds=60, spool=f"c{number}"))
                values.append((time.perf_counter() - began) * MILLISECONDS)
        boxed.close()
    return taken[plain], taken[boxed]


def say(line: str) -> None:
    """One line of the table."""
    sys.stdout.write(f"{line}\n")


def main() -> int:
    """The table; exit code 1 if the box that would be used misses the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    pairs = parser.parse_args().pairs
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    met: list[bool] = []
    for one in try_all(environ):
        if one.fault:
            say(f"{one.kind:16} not measured: {one.fault}")
            continue
        plain, boxed = anyio.run(lambda kind=one.kind: measure(kind, environ, pairs=pairs))
        added = statistics.median(b - a for a, b in zip(plain, boxed, strict=True))
        met.append(added <= TARGET_MS)
        say(
            f"{one.kind:16} plain {statistics.median(plain):6.1f} ms (min {min(plain):5.1f})  boxed "
            f"{statistics.median(boxed):6.1f} ms (min {min(boxed):5.1f})  added {added:6.1f} ms "
            f"(of minima {min(boxed) - min(plain):5.1f})  target {TARGET_MS} ms: {'met' if met[-1] else 'not met'}"
        )
    say(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {pairs} pairs")
    return 0 if met and met[0] else 1


if __name__ == "__main__":
    sys.exit(main())
