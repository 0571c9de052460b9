"""The Worker: takes one run from where it is to its end."""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

import anyio

from xnagent.agents.desk import Desk, HaltError, RunFailedError, Seat, Succession
from xnagent.agents.hooking import hook_refusal
from xnagent.agents.judging import Judge
from xnagent.agents.keeping import Keeper
from xnagent.agents.prompting import (
    FULL,
    LAST_STEP,
    SUBMIT_NUDGE,
    brief_message,
    harness_message,
    inbox_message,
    project_message,
)
from xnagent.agents.results import close_calls
from xnagent.agents.room import append_news, is_full, make_room
from xnagent.agents.step import do_calls, step
from xnagent.agents.summarizing import close_attempt
from xnagent.core.events import RunInterrupted, RunLaunched, RunSettled, RunSubmitted
from xnagent.core.hooks import of_run
from xnagent.core.ids import RunId, agent_of
from xnagent.core.items import AssistantText, ToolResult, closed_groups, text_of
from xnagent.core.spine import Spine
from xnagent.core.state import SessionState, spine_of, work_of
from xnagent.core.text import clean, clip
from xnagent.core.values import dataclass
from xnagent.core.view import SUMMARY_CHARACTERS
from xnagent.errors import ModelError, UsageError, WorkspaceError
from xnagent.ports import Artifacts, Workspace

SAVING_SECONDS: Final = 10.0
"""For a last save when the session is stopped."""


class Seats(Succession, Protocol):
    """Gives a run its model and tools."""

    async def worker(self, run: RunId, workspace: Workspace) -> Seat:
        """The seat of the run's Worker."""

    async def release(self, run: RunId) -> None:
        """Let go of what only the run's Worker used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAgent:
    """Drives runs."""

    desk: Desk
    seats: Seats
    keeper: Keeper
    judge: Judge

    async def drive(self, run: RunId) -> None:
        """From queued, working, submitted or interrupted to settled; cancelled: the run is interrupted or cancelled."""
        try:
            await self._drive(run)
        except (RunFailedError, ModelError, WorkspaceError, UsageError) as error:
            await self._close(run, code="STOPPED")
            await self.desk.log.append(RunSettled(run=run, status="failed", reason=f"{_kind(error)}{error}"))
        except HaltError as error:
            await self._close(run, code="LIMIT")
            await self.desk.log.append(RunInterrupted(run=run, reason=str(error)))
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._close(run, code="CANCELLED")
                await self._stopped(run)
            raise

    async def _drive(self, run: RunId) -> None:
        workspace = await self._launch(run)
        await close_attempt(self.desk, agent_of(run))
        if self._is_handed_in(run) and has_lost_work(self.desk.log.state, run):
            raise WorkspaceError("its folder was lost after the hand-in; delegate the task again")
        if not self._is_handed_in(run):
            await self._work(run, workspace)
        await self._close(run, code="CLOSED")
        await self._judge(run)

    async def _work(self, run: RunId, workspace: Workspace) -> None:
        """Step by step up to the hand-in; whatever ends it, nothing of the Worker's is left running."""
        try:
            seat = await self.seats.worker(run, workspace)
            while not self._is_handed_in(run):
                await self._step(run, seat)
                await self.keeper.save(run)
                seat = await self.seats.in_force(seat)
        finally:
            await self.seats.release(run)

    def _is_handed_in(self, run: RunId) -> bool:
        return self.desk.log.state.board.runs[run].claim is not None

    async def _launch(self, run: RunId) -> Workspace:
        log = self.desk.log
        known = log.state.board.runs[run]
        base = known.base or log.state.board.session.get("integration_head", "")
        if known.status == "queued":
            await let_begin(self.desk, run)
        workspace = await self.keeper.open(run, base)
        if known.status != "submitted":
            await log.append(RunLaunched(run=run, base=base))
        if not spine_of(log.state, agent_of(run)).items:
            await log.append(brief_message(log.ahead, run))
        return workspace

    async def _step(self, run: RunId, seat: Seat) -> None:
        """One step, whatever state a crash left the history in."""
        spine = spine_of(self.desk.log.state, seat.agent)
        if spine.is_open:
            await do_calls(self.desk, seat)
            return
        if spine.pending_request is None:
            await self._prepare(run, seat)
            if self._is_handed_in(run):
                return
        await step(self.desk, seat)

    async def _prepare(self, run: RunId, seat: Seat) -> None:
        log = self.desk.log
        steps = work_of(log.state, seat.agent).steps
        if steps >= self.desk.limits.run_steps:
            message = f"step limit of the run reached ({self.desk.limits.run_steps}) without a hand-in"
            raise RunFailedError(message)
        if await self._hand_in_text(run, seat):
            return
        await make_room(self.desk, seat)
        await append_news(self.desk, seat, make=partial(project_message, agent=seat.agent))
        await append_news(self.desk, seat, make=partial(inbox_message, run=run))
        await tell_last(self.desk, seat, run=run, steps=steps)

    async def _hand_in_text(self, run: RunId, seat: Seat) -> bool:
        """After a reply without a call: ask once for the hand-in, then take the text for it."""
        state = self.desk.log.state
        text = unanswered_text(spine_of(state, seat.agent))
        if text is None:
            return False
        if not work_of(state, seat.agent).nudged:
            await self.desk.log.append(harness_message(run, SUBMIT_NUDGE))
            return False
        await self.desk.log.append(RunSubmitted(run=run, status="completed", summary=handed_up(self.desk.log, text)))
        return True

    async def _judge(self, run: RunId) -> None:
        submitted = self.desk.log.state.board.runs[run]
        if submitted.claim == "completed":
            await self.judge.judge(run)
            return
        await self.desk.log.append(
            RunSettled(run=run, status="failed", reason=f"the Worker handed in as {submitted.claim}")
        )

    async def _close(self, run: RunId, *, code: str) -> None:
        await close_calls(self.desk, agent_of(run), code=code)

    async def _stopped(self, run: RunId) -> None:
        state = self.desk.log.state
        reason = work_of(state, agent_of(run)).cancel_reason
        if reason is not None or state.finish is not None:
            why = reason if reason is not None else "the Planner finished while it ran"
            await self.desk.log.append(RunSettled(run=run, status="cancelled", reason=why))
            return
        with anyio.move_on_after(SAVING_SECONDS):
            await self.keeper.save(run)
        await self.desk.log.append(RunInterrupted(run=run, reason="the session was stopped"))

    async def settle_queued(self, run: RunId) -> None:
        """A run that nobody drives: cancelled before it began, or before a crash, which may have left its commands."""
        if self.desk.log.state.board.runs[run].base is not None:
            await end_commands(self, run)
            await self._close(run, code="CANCELLED")
        reason = work_of(self.desk.log.state, agent_of(run)).cancel_reason or "the Planner finished before it began"
        await self.desk.log.append(RunSettled(run=run, status="cancelled", reason=reason))


async def tell_last(desk: Desk, seat: Seat, *, run: RunId, steps: int) -> None:
    """Ask for the hand-in where this is the last step: by their number, or because nothing more fits (M104)."""
    told = spine_of(desk.log.state, seat.agent).items
    last, full = harness_message(run, LAST_STEP), harness_message(run, FULL)
    if steps and steps == desk.limits.run_steps - 1:
        if told[-1:] != last.items:
            await desk.log.append(last)
        return
    if not steps or told[-1:] == full.items or not await is_full(desk, seat):
        return
    if full.items[0] in told:
        raise RunFailedError("context exhausted: asked to hand in while there was room, the Worker went on")
    await desk.log.append(full)


async def let_begin(desk: Desk, run: RunId) -> None:
    """Ask the user's hooks before a run first begins. Raises RunFailedError with the reason that one of them gives."""
    reason = await hook_refusal(desk.hooks, "before_run", make=lambda: of_run(desk.log.state, run, on="before_run"))
    if reason:
        raise RunFailedError(f"not begun: {reason}")


async def end_commands(agent: WorkerAgent, run: RunId) -> None:
    """Stop what a killed process left running for the run: its commands and checks."""
    state = agent.desk.log.state
    tree = await agent.keeper.workspaces.open_run(run, state.board.runs[run].base or "")
    spools = [tool.spool for (owner, _), tool in state.started_tools.items() if owner == agent_of(run)]
    for spool in filter(None, spools):
        await agent.judge.verifier.shell.recover(tree, spool)
    await agent.judge.end_checks(run)


def has_lost_work(state: SessionState, run: RunId) -> bool:
    """Whether the tree was made again without something that the run had changed."""
    restored = work_of(state, agent_of(run)).tree.restored
    return restored is not None and bool(restored.lost)


def handed_up(artifacts: Artifacts, text: str) -> str:
    """A report for the Planner; where it is too long, its ends and a ticket to the whole."""
    if len(text) <= SUMMARY_CHARACTERS:
        return text
    ticket = artifacts.put(clean(text).encode())
    return clip(text, SUMMARY_CHARACTERS, head_share=0.7, how_to_get=f"read {ticket} for the whole")


def unanswered_text(spine: Spine) -> str | None:
    """The text of the last reply, if it made no call and nothing stands after it; else None."""
    if not spine.items or not isinstance(spine.items[-1], AssistantText):
        return None
    group = closed_groups(spine.items)[-1]
    return None if any(isinstance(item, ToolResult) for item in group) else text_of(group)


def _kind(error: Exception) -> str:
    if isinstance(error, ModelError):
        return f"the model's provider failed ({error.fault}): "
    return "workspace: " if isinstance(error, WorkspaceError) else ""
