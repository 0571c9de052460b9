"""From what a Worker handed in to what counts: take the patch, check it, merge it, check the merge."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

import anyio

from xnagent.agents.verifier import Verifier, failed_checks
from xnagent.core.board import Run
from xnagent.core.commits import Conflict, Taken
from xnagent.core.events import Event, PatchMerged, PatchTaken, RunSettled
from xnagent.core.ids import RunId
from xnagent.core.trees import merge_message
from xnagent.ports import Log, Workspace, Workspaces

WORD: Final = re.compile(r"[^\s'\"`=:;,|&()<>]+")
"""What may be a path in a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Settles runs that were handed in as completed. Merges happen one at a time."""

    log: Log
    workspaces: Workspaces
    verifier: Verifier
    queue: anyio.Lock = field(default_factory=anyio.Lock)

    async def judge(self, run: RunId, workspace: Workspace) -> None:
        """Append what the run comes to; the last event is its RunSettled."""
        attempt = self.log.state.board.runs[run]
        taken = await self.workspaces.take(run, attempt.base or "")
        await self.log.append(self._patch_taken(attempt, taken))
        reason = refusal(attempt, taken)
        if not reason:
            reason = failed_checks(await self.verifier.verify(workspace, attempt.checks, run=run))
        if reason:
            await self.log.append(RunSettled(run=run, status="failed", reason=reason))
            return
        async with self.queue:
            await self.log.append(*await self._merge(attempt, taken))

    def _patch_taken(self, run: Run, taken: Taken) -> PatchTaken:
        return PatchTaken(
            run=run.run,
            patch=self.log.put(taken.patch, is_verbatim=True),
            commit=taken.commit,
            changed_files=taken.changed_files,
            flags=judged_by_own_change(run.checks, taken.changed_files),
        )

    async def _merge(self, run: Run, taken: Taken) -> Sequence[Event]:
        if not taken.changed_files:
            return [RunSettled(run=run.run, status="completed")]
        head = self.log.state.board.session.get("integration_head", run.base or "")
        title = self.log.state.board.tasks[run.task].title
        message = merge_message(run.task, title, run=run.run)
        merged = await self.workspaces.merge(head=head, base=run.base or "", commit=taken.commit, message=message)
        if isinstance(merged, Conflict):
            reason = f"merge conflict: the integrated result changed the same places meanwhile. {merged.detail}".strip()
            return [RunSettled(run=run.run, status="failed", reason=reason, conflicts=merged.paths)]
        if merged.has_moved and run.checks:
            reason = await self._verify_merge(run, merged.commit)
            if reason:
                return [RunSettled(run=run.run, status="failed", reason=reason)]
        await self.workspaces.advance(merged.commit)
        done = PatchMerged(run=run.run, commit=merged.commit, message=message)
        return [done, RunSettled(run=run.run, status="completed")]

    async def _verify_merge(self, run: Run, commit: str) -> str:
        name = f"merge-{run.run}"
        tree = await self.workspaces.checkout(commit, name)
        reason = failed_checks(await self.verifier.verify(tree, run.checks, run=run.run))
        await self.workspaces.discard(name)
        return f"after merging with what others changed meanwhile: {reason}" if reason else ""


def refusal(run: Run, taken: Taken) -> str:
    """Why the patch must not be merged, whatever the checks say; empty if it may."""
    if taken.problems:
        return f"refused: {'; '.join(taken.problems)}"
    outside = [path for path in taken.changed_files if run.scope and not is_in_scope(path, run.scope)]
    if outside:
        return f"out of scope: changed {', '.join(outside[:10])}; allowed: {', '.join(run.scope)}"
    return ""


def is_in_scope(path: str, scope: Sequence[str]) -> bool:
    """Whether the path is one of the scope's paths, below one of its folders, or matches one of its globs."""
    parents = _folders(path)
    rules = [rule.removeprefix("./") for rule in scope]
    return any(
        path == rule or rule.rstrip("/") in parents or fnmatchcase(path, rule.replace("**/", "*")) for rule in rules
    )


def judged_by_own_change(checks: Sequence[str], changed: Sequence[str]) -> tuple[str, ...]:
    """A flag for each changed file that a check names, and for each test in a folder that it names."""
    return tuple(
        f"changed {path}, which the check `{check}` names"
        for check in checks
        for path in changed
        if _names(check, path)
    )


def _names(check: str, path: str) -> bool:
    words = {word.removeprefix("./").rstrip("/") for word in WORD.findall(check)}
    return path in words or ("test" in path.lower() and not words.isdisjoint(_folders(path)))


def _folders(path: str) -> set[str]:
    return {str(parent) for parent in PurePosixPath(path).parents}
