"""From what a Worker handed in to what counts: take the patch, merge it, check the merge, move the head.

A run is checked on its merge with the integration head as that is then. If the head moved meanwhile, merge and checks
are done again with the queue held, so that the second verdict is the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import anyio

from xnagent.agents.hooking import Hooks, hook_refusal
from xnagent.agents.own_change import judged_by_own_change
from xnagent.agents.verifier import Verifier, failed_checks
from xnagent.core.board import Run
from xnagent.core.commits import Conflict, Merged, Taken
from xnagent.core.events import Event, PatchMerged, PatchTaken, RunSettled
from xnagent.core.hooks import Merging, Occasion, of_merge
from xnagent.core.ids import RunId
from xnagent.core.trees import merge_message
from xnagent.core.values import dataclass
from xnagent.ports import Log, Workspaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Settles runs that were handed in as completed. The integration head moves for one run at a time."""

    log: Log
    workspaces: Workspaces
    verifier: Verifier
    hooks: Hooks | None = None
    """The user's, around merges."""
    queue: anyio.Lock = field(default_factory=anyio.Lock)

    async def judge(self, run: RunId) -> None:
        """Append what the run comes to; the last event is its RunSettled."""
        attempt = self.log.state.board.runs[run]
        taken = await self.workspaces.take(run, attempt.base or "")
        await self.log.append(self._patch_taken(attempt, taken))
        if reason := refusal(attempt, taken):
            await self.log.append(RunSettled(run=run, status="failed", reason=reason))
            return
        checked = await self._tried(attempt, taken) if attempt.checks else None
        if isinstance(checked, RunSettled):
            await self.log.append(checked)
            return
        async with self.queue:
            if checked is None or (taken.changed_files and checked.head != self._head(attempt)):
                checked = await self._tried(attempt, taken)
            await self.log.append(*await self._close(attempt, taken, checked=checked))

    async def end_checks(self, run: RunId) -> None:
        """Stop the checks that a killed process left running."""
        attempt = self.log.state.board.runs[run]
        if attempt.claim == "completed" and attempt.checks and attempt.base:
            await self.verifier.end(attempt.base, attempt.checks, name=_tree_name(run))

    def _patch_taken(self, run: Run, taken: Taken) -> PatchTaken:
        return PatchTaken(
            run=run.run,
            patch=self.log.put(taken.patch, is_verbatim=True),
            commit=taken.commit,
            changed_files=taken.changed_files,
            flags=judged_by_own_change(run.checks, taken.changed_files),
        )

    def _head(self, run: Run) -> str:
        return self.log.state.board.session.get("integration_head", run.base or "")

    async def _tried(self, run: Run, taken: Taken) -> _Checked | RunSettled:
        """The merge with the head, checked; how the run settles if that cannot be, or a check fails."""
        head = self._head(run)
        merged = await self._merged(run, taken, head=head)
        if isinstance(merged, Conflict):
            reason = f"merge conflict: the integrated result changed the same places meanwhile. {merged.detail}".strip()
            return RunSettled(run=run.run, status="failed", reason=reason, conflicts=merged.paths)
        name = _tree_name(run.run)
        evidence = await self.verifier.verify(merged.commit, run.checks, name=name, run=run.run) if run.checks else ()
        if reason := failed_checks(evidence):
            reason = f"after merging with what others changed meanwhile: {reason}" if merged.has_moved else reason
            return RunSettled(run=run.run, status="failed", reason=reason + left_behind(taken))
        return _Checked(head=head, commit=merged.commit)

    async def _merged(self, run: Run, taken: Taken, *, head: str) -> Merged | Conflict:
        if not taken.changed_files:
            return Merged(commit=head, has_moved=False)
        message = self._message(run)
        return await self.workspaces.merge(head=head, base=run.base or "", commit=taken.commit, message=message)

    def _message(self, run: Run) -> str:
        return merge_message(run.task, self.log.state.board.tasks[run.task].title, run=run.run)

    async def _close(self, run: Run, taken: Taken, *, checked: _Checked | RunSettled) -> Sequence[Event]:
        if isinstance(checked, RunSettled):
            return [checked]
        completed = RunSettled(run=run.run, status="completed")
        if not taken.changed_files:
            return [completed]
        if reason := await self._refused(run, taken, checked=checked):
            return [RunSettled(run=run.run, status="failed", reason=f"merge refused: {reason}")]
        await self.workspaces.advance(checked.commit)
        return [PatchMerged(run=run.run, commit=checked.commit, message=self._message(run)), completed]

    async def _refused(self, run: Run, taken: Taken, *, checked: _Checked) -> str:
        """Why a hook of the user does not let it be merged; empty: it may."""

        def occasion() -> Occasion:
            merge = Merging(run=run.run, head=checked.head, commit=checked.commit, patch=taken.patch)
            return of_merge(self.log.state, merge, on="before_merge")

        return await hook_refusal(self.hooks, "before_merge", make=occasion)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """A merge that passed the checks, and the head that it was made with."""

    head: str
    commit: str


def _tree_name(run: RunId) -> str:
    return f"merge-{run}"


def refusal(run: Run, taken: Taken) -> str:
    """Why the patch must not be merged, whatever the checks say; empty if it may."""
    if taken.problems:
        return f"refused: {'; '.join(taken.problems)}"
    outside = [path for path in taken.changed_files if run.scope and not is_in_scope(path, run.scope)]
    if outside:
        return f"out of scope: changed {', '.join(outside[:10])}; allowed: {', '.join(run.scope)}"
    return ""


def left_behind(taken: Taken) -> str:
    """What the Worker's own try of a check may have found and the result does not have; empty if there is nothing."""
    if not taken.ignored:
        return ""
    return f" (checks run on a fresh checkout; not in it, because git ignores them: {', '.join(taken.ignored)})"


def is_in_scope(path: str, scope: Sequence[str]) -> bool:
    """Whether the path is one of the scope's paths, below one of its folders, or matches one of its globs."""
    parents = {str(parent) for parent in PurePosixPath(path).parents}
    rules = [rule.removeprefix("./") for rule in scope]
    return any(
        path == rule or rule.rstrip("/") in parents or fnmatchcase(path, rule.replace("**/", "*")) for rule in rules
    )
