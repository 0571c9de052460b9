"""The Verifier is not a model: it runs checks and stores what they printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from xnagent.core.board import Evidence
from xnagent.core.events import CheckFinished
from xnagent.core.ids import RunId
from xnagent.core.text import clean
from xnagent.ports import Command, Finished, Log, Shell, Workspace

TAIL_BYTES: Final = 4_000
KEPT_BYTES: Final = 8_388_608


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """Runs acceptance checks in a workspace, one after another, each in a shell of its own."""

    log: Log
    shell: Shell
    timeout_seconds: float

    async def verify(self, workspace: Workspace, checks: Sequence[str], *, run: RunId | None) -> tuple[Evidence, ...]:
        """The evidence of every check, in order; each is in the log when this returns. A failure stops nothing.

        A check has no effect that counts, so one that a crash cut short is ended, if it still runs, and run again.
        """
        found: list[Evidence] = []
        for command, spool in zip(dict.fromkeys(checks), check_spools(checks), strict=True):
            await self.shell.recover(workspace, spool)
            wanted = Command(command=command, timeout_seconds=self.timeout_seconds, spool=spool)
            finished = await self.shell.run(workspace, wanted)
            evidence = await self._evidence(finished, command, root=str(workspace.root))
            await self.log.append(CheckFinished(run=run, evidence=evidence))
            found.append(evidence)
        return tuple(found)

    async def _evidence(self, finished: Finished, command: str, *, root: str) -> Evidence:
        """What is shown names paths as the next reader has them, not in a tree that is gone by then."""
        async with await anyio.open_file(finished.output, "rb") as file:
            output = await file.read(KEPT_BYTES)
        tail = clean(output[-TAIL_BYTES:].decode("utf-8", "replace").replace("\x00", "\ufffd"))
        tail = tail.replace(f"{root}/", "")
        if finished.exit_code is None:
            tail = f"{tail}\n[it did not end by itself: {finished.ending}]"
        return Evidence(
            command=command,
            exit_code=finished.exit_code,
            duration_seconds=round(finished.duration_seconds, 3),
            output=self.log.put(output),
            tail=tail,
        )


def check_spools(checks: Sequence[str]) -> tuple[str, ...]:
    """The names of the checks' spools in a workspace: the same in every process."""
    return tuple(f"check-{number}" for number, _ in enumerate(dict.fromkeys(checks), start=1))


def failed_checks(evidence: Sequence[Evidence]) -> str:
    """One line that names the checks that failed; empty if none did."""
    failed = [
        f"`{one.command}` " + ("did not end by itself" if one.exit_code is None else f"exited with {one.exit_code}")
        for one in evidence
        if not one.has_passed
    ]
    return f"check failed: {'; '.join(failed)}" if failed else ""
