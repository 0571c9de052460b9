#!/usr/bin/env python
"""What a session takes that waits for its model: many whole sessions in one process, each with a request under way.

Each is a session as `xnagent run` has it: settings, log and writer, integration repository, tools, the Planner's first
request sent to a provider that does not answer (`many_server.py`, a process of its own). Memory is what the process
holds more than before the first of them, in kB for each.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.many import provider
from xnagent.app.host import Host
from xnagent.app.running import SessionSpec, Stop, run_session
from xnagent.config import Settings
from xnagent.core.ids import SessionId

TARGET_KB: Final = 300
BEGINNING_AT_ONCE: Final = 4
"""How many make their repositories at the same time."""
WARM: Final = 5
"""Sessions that are there before counting begins: what is loaded and compiled once belongs to none of them."""
NEVER_MS: Final = 3_600_000
PATIENT: Final = {"idle_seconds": 3_600, "progress_seconds": 3_600, "total_seconds": 3_600}
MOST_LOOKS: Final = 2_000
SETTLING_SECONDS: Final = 3.0


def held_kb() -> float:
    """Memory of this process that no other shares."""
    text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    return float(sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")))


def files_open() -> int:
    """Open descriptors."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def make_repository(folder: Path) -> Path:
    """A repository with one commit."""
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n", encoding="ascii")
    for arguments in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "1"],
    ):
        subprocess.run([shutil.which("git") or "git", *arguments], cwd=folder, check=True)
    return folder


async def fill(host: Host, spec: SessionSpec, *, count: int) -> tuple[float, float]:
    """Begin the sessions; kB and descriptors of each beyond the first few."""
    places = anyio.CapacityLimiter(BEGINNING_AT_ONCE)

    def waiting() -> int:
        return sum(len(gate.unheard) for gate in host.gates.gates.values())

    async def until(number: int) -> None:
        for _ in range(MOST_LOOKS):
            if waiting() >= number:
                return
            await anyio.sleep(0.05)
        raise TimeoutError

    async with anyio.create_task_group() as group:

        async def begin(number: int) -> None:
            async with places:
                one = SessionSpec(
                    objective=spec.objective,
                    repository=spec.repository,
                    settings=spec.settings,
                    session=SessionId(f"s-{number}"),
                )
                group.start_soon(partial(run_session, host, one, stop=Stop()))
                await until(min(number - BEGINNING_AT_ONCE + 2, count))

        for number in range(WARM):
            await begin(number)
        await until(WARM)
        await anyio.sleep(SETTLING_SECONDS)
        gc.collect()
        before, files = held_kb(), files_open()
        for number in range(WARM, count + WARM):
            await begin(number)
        await until(count + WARM)
        await anyio.sleep(SETTLING_SECONDS)
        gc.collect()
        found = (held_kb() - before) / count, (files_open() - files) / count
        group.cancel_scope.cancel()
    return found


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000)
    count = parser.parse_args().sessions
    with provider(NEVER_MS) as served, tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate(
            {
                "planner": {"model": {"name": "m", "base_url": served.url}},
                "timeouts": PATIENT,
                "sandbox": {"mode": "off"},
            }
        )
        host = Host(home=Path(folder, "home"), environ={"PATH": os.environ["PATH"], "HOME": folder})
        repository = make_repository(Path(folder, "repository"))
        spec = SessionSpec(
            objective="Port the package. " * 20, repository=repository, settings=settings, session=SessionId("s")
        )
        kb, files = anyio.run(partial(fill, host, spec, count=count))
    verdict = "ok" if kb <= TARGET_KB else "MISSED"
    sys.stdout.write(
        f"{count} sessions that wait for their model: {kb:.0f} kB each (target {TARGET_KB}) {verdict}, "
        f"{files:.1f} descriptors each\n"
    )


if __name__ == "__main__":
    main()
