"""The Verifier is not a model: it runs checks and stores what they printed.

Checks run in a fresh tree of a commit, with a private folder that nobody wrote to: what git ignores, and what a Worker
left in its home folder, cannot make one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import anyio

from xnagent.core.board import Evidence
from xnagent.core.events import CheckFinished
from xnagent.core.ids import RunId
from xnagent.core.text import clean
from xnagent.core.values import dataclass
from xnagent.ports import Command, Finished, Log, Shell, Workspace, Workspaces

TAIL_BYTES: Final = 4_000
KEPT_BYTES: Final = 8_388_608


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """Runs acceptance checks, one after another, each in a shell of its own."""

    log: Log
    shell: Shell
    workspaces: Workspaces
    timeout_seconds: float

    async def verify(self, commit: str, checks: Sequence[str], *, name: str, run: RunId | None) -> tuple[Evidence, ...]:
        """The evidence of every check, in order; each is in the log when this returns. A failure stops nothing.

        `name` is the tree's. Where checks exit with another code than 0, all of them up to the last such one run once
        more in another fresh tree: one that passes then counts as passed, and as flaky. Nothing is run again after a
        time limit. A check has no effect that counts, so one that a crash cut short is ended, if it still runs.
        """
        wanted = tuple(dict.fromkeys(checks))
        first = await self._attempt(commit, wanted, name=name)
        held = next((place for place, one in enumerate(first) if not one.has_passed), len(first))
        await self._record(first[:held], run=run)
        last = _last_to_repeat(first)
        second = await self._attempt(commit, wanted[: last + 1], name=name) if last >= 0 else ()
        found = (*map(_verdict, first, second), *first[len(second) :])
        await self._record(found[held:], run=run)
        return found

    async def end(self, commit: str, checks: Sequence[str], *, name: str) -> None:
        """Stop what a killed process left running of them."""
        tree = await self.workspaces.checkout(commit, name)
        for spool in _spools(checks):
            await self.shell.recover(tree, spool)
        await self.workspaces.discard(name)

    async def _record(self, found: Sequence[Evidence], *, run: RunId | None) -> None:
        if found:
            await self.log.append(*(CheckFinished(run=run, evidence=one) for one in found))

    async def _attempt(self, commit: str, checks: Sequence[str], *, name: str) -> tuple[Evidence, ...]:
        tree = await self.workspaces.checkout(commit, name)
        spools = _spools(checks)
        for spool in spools:
            await self.shell.recover(tree, spool)
        found = [await self._run(tree, command, spool=spool) for command, spool in zip(checks, spools, strict=True)]
        await self.workspaces.discard(name)
        return tuple(found)

    async def _run(self, tree: Workspace, command: str, *, spool: str) -> Evidence:
        wanted = Command(command=command, timeout_seconds=self.timeout_seconds, spool=spool)
        return await self._evidence(await self.shell.run(tree, wanted), command, root=str(tree.root))

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


def _spools(checks: Sequence[str]) -> tuple[str, ...]:
    """The names of the checks' spools in a tree: the same in every process, so that a later one can end them."""
    return tuple(f"check-{number}" for number, _ in enumerate(dict.fromkeys(checks), start=1))


def _last_to_repeat(found: Sequence[Evidence]) -> int:
    """Place of the last check that failed by its exit code; -1 for none, or where one did not end by itself."""
    if any(one.exit_code is None for one in found):
        return -1
    return max((place for place, one in enumerate(found) if not one.has_passed), default=-1)


def _verdict(first: Evidence, second: Evidence) -> Evidence:
    """What two attempts come to: a check that failed and then passed is flaky; else the first one stands."""
    if first.has_passed or not second.has_passed:
        return first
    return replace(second, failed_output=first.output)


def failed_checks(evidence: Sequence[Evidence]) -> str:
    """One line that names the checks that failed; empty if none did."""
    failed = [
        f"`{one.command}` " + ("did not end by itself" if one.exit_code is None else f"exited with {one.exit_code}")
        for one in evidence
        if not one.has_passed
    ]
    return f"check failed: {'; '.join(failed)}" if failed else ""
