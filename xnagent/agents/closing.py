"""The end of a session: check the whole, bring the result home, say how it ended."""

from __future__ import annotations

from xnagent.agents.verifier import Verifier
from xnagent.core.commits import Applied
from xnagent.core.decide import outcome_of
from xnagent.core.events import Outcome, ResultApplied, SessionInterrupted, SessionSettled
from xnagent.core.record import exit_code
from xnagent.core.state import SessionState
from xnagent.core.values import dataclass
from xnagent.errors import RETRYABLE, WorkspaceError
from xnagent.ports import Clock, Log, Workspaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Concludes a session that has nothing left to do."""

    log: Log
    clock: Clock
    workspaces: Workspaces
    verifier: Verifier
    may_apply: bool
    began: float
    """`clock.monotonic()` when this process took the session up."""
    earlier_seconds: float = 0.0
    """What earlier processes spent on it."""

    async def conclude(self) -> None:
        """Apply the result and settle; a message of the user that came meanwhile takes the end back."""
        state = self.log.state
        outcome = outcome_of(state)
        if state.started is not None and state.started.base is not None:
            await self.log.append(await self._apply(state.started.base, outcome))
        if state.finish is None or self.log.ahead.finish is not None:
            await self.log.append(self._settled(state, outcome))

    async def check_whole(self) -> None:
        """Run the session's own checks in a fresh tree of the integrated result."""
        started = self.log.state.started
        if started is not None:
            await self.verifier.verify(self._head(), started.checks, name="final", run=None)

    def _head(self) -> str:
        started = self.log.state.started
        base = "" if started is None or started.base is None else started.base
        return self.log.state.board.session.get("integration_head", base)

    async def _apply(self, base: str, outcome: Outcome) -> ResultApplied:
        wanted = self.may_apply and outcome == "completed"
        try:
            applied = await self.workspaces.apply(base=self._landing(base), head=self._head(), wanted=wanted)
        except WorkspaceError as error:
            applied = Applied(is_applied=False, branch=None, changed_files=(), patch=b"", detail=str(error))
        return ResultApplied(
            is_applied=applied.is_applied,
            branch=applied.branch,
            detail=applied.detail,
            changed_files=applied.changed_files,
            patch=self.log.put(applied.patch, is_verbatim=True) if applied.patch else None,
        )

    def _landing(self, base: str) -> str:
        """What the user's files are held against: what an earlier end of the session brought them, else the base.

        An end that is only repeated (after a crash) starts from the base again: what is there already is no change.
        """
        landed = self.log.state.landed
        return base if landed is None or landed == self._head() else landed

    def _settled(self, state: SessionState, outcome: Outcome) -> SessionSettled:
        """From the state that the outcome was told from: a signal or deadline in between comes too late."""
        error_class, error = error_of(state)
        is_retryable = state.fault is not None and state.fault.fault in RETRYABLE
        return SessionSettled(
            outcome=outcome,
            exit_code=exit_code(state, is_retryable=is_retryable),
            summary="" if state.finish is None else state.finish.summary,
            error_class=error_class,
            error=error,
            duration_seconds=round(self.earlier_seconds + self.clock.monotonic() - self.began, 3),
        )


def error_of(state: SessionState) -> tuple[str | None, str | None]:
    """Class and message of what ended the session before its Planner did; (None, None) if nothing did."""
    if state.interrupted is not None:
        return _why_interrupted(state.interrupted, f"`xnagent resume {state.session}` goes on")
    if state.limit is not None:
        kind = "context_exhausted" if state.limit.limit == "context" else f"limit_{state.limit.limit}"
        return kind, state.limit.detail
    if state.fault is not None:
        return state.fault.fault, state.fault.detail
    return None, None


def _why_interrupted(event: SessionInterrupted, advice: str) -> tuple[str, str]:
    if not event.letter:
        return "interrupted", f"stopped by {event.signal}; {advice}"
    reason = f": {event.reason}" if event.reason else ""
    return "cancelled", f"cancelled from outside{reason}; {advice}"
