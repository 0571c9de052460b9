"""Does a job, for every engine alike. What was begun goes on from its log; what is over is only reported."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread

from xnagent.app.host import Host
from xnagent.app.running import SessionSpec, Stop, resume_session, run_session
from xnagent.batch.assignment import Assignment, Report, parse_assignment, use_of
from xnagent.batch.engine import EngineError, JobCancelledError, JobContext, JobPostponedError, LeaseLostError
from xnagent.batch.failure import failure_record
from xnagent.batch.repositories import Repositories
from xnagent.batch.stopping import BatchStop
from xnagent.core.ids import SessionId
from xnagent.core.record import final_record
from xnagent.core.state import SessionState
from xnagent.errors import Caught, StoreBusyError
from xnagent.store.place import state_or_none

BUSY_SECONDS: Final = 2.0
BUSY_ATTEMPTS: Final = 20
"""A session that another process holds is tried so often: its owner may be one that lost the lease and is stopping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHandler:
    """Implements `JobHandler`."""

    host: Host
    stop: BatchStop
    repositories: Repositories
    hands_back: bool = False
    """Whether a session that this process does not finish, because it is stopped, goes to another worker."""

    async def handle(self, context: JobContext) -> str:
        """Run the session to its end, or as far as it comes."""
        assignment = parse_assignment(context.order.payload)
        place = self.host.place(assignment.session)
        stop = self.stop.enter()
        state: SessionState | None = None
        attended = Attended(context=context, stop=stop)
        with Caught(Exception) as caught:
            async with anyio.create_task_group() as group:
                group.start_soon(attended.beat)
                state = await self._attempt(context, assignment, stop=stop)
                group.cancel_scope.cancel()
        self.stop.leave(stop)
        if attended.is_lost:
            raise LeaseLostError(f"LEASE_LOST: {context.order.job}: somebody else has it now")
        if caught.error is not None:
            state = await anyio.to_thread.run_sync(state_or_none, place)
            return _failed(caught.error, context, state=state).dump()
        report = _report(state)
        if report.record is None and self.hands_back and self.stop.asked.is_set() and not attended.is_cancelled:
            raise JobPostponedError("the worker was stopped", after_seconds=0)
        return report.dump()

    async def _attempt(self, context: JobContext, assignment: Assignment, *, stop: Stop) -> SessionState:
        known = await anyio.to_thread.run_sync(state_or_none, self.host.place(assignment.session))
        if known is not None:
            await context.heartbeat(known.request_count)
        return await self._session(assignment, known, stop=stop)

    async def _session(self, assignment: Assignment, known: SessionState | None, *, stop: Stop) -> SessionState:
        """Run it, go on with it, or only read how it ended before that was reported."""
        host, session = self.host, assignment.session
        if known is None or known.started is None:
            await anyio.to_thread.run_sync(_clear, host, session)
            placed = await self.repositories.place(assignment.repository, assignment.commit, stop=stop)
            if placed is None:
                return SessionState()
            spec = SessionSpec(
                objective=assignment.objective,
                repository=placed.folder,
                settings=assignment.settings,
                session=session,
                commit=placed.commit,
                address=placed.address,
            )
            return await run_session(host, spec, stop=stop)
        is_over = known.settled is not None and known.settled.outcome != "interrupted"
        if is_over and not (assignment.goes_on and use_of(known).limit is not None):
            return known
        if (seconds := await anyio.to_thread.run_sync(host.sessions.left_seconds, session)) > 0:
            raise JobPostponedError(f"{session}: commands of a dead worker may still run", after_seconds=seconds)
        return await resume_session(host, session, settings=assignment.settings, message=None, stop=stop)


def _report(state: SessionState | None) -> Report:
    is_over = state is not None and state.settled is not None and state.settled.outcome != "interrupted"
    return Report(use=use_of(state), record=final_record(state) if state is not None and is_over else None)


@dataclass(slots=True, kw_only=True)
class Attended:
    """Shows the engine that the session lives, and stops it when the engine says so."""

    context: JobContext
    stop: Stop
    is_lost: bool = False
    is_cancelled: bool = False

    async def beat(self) -> None:
        """Until cancelled."""
        while True:
            await anyio.sleep(self.context.beat_seconds)
            try:
                await self.context.heartbeat()
            except JobCancelledError:
                self.is_cancelled = True
                self.stop.request("SIGINT")
                return
            except LeaseLostError:
                self.is_lost = True
                self.stop.request("SIGTERM")
                self.stop.request("SIGTERM")
                return


def _failed(error: BaseException, context: JobContext, *, state: SessionState | None) -> Report:
    """A session that an error ended. What lies with the engine is raised, what may be gone soon is postponed."""
    match error:
        case LeaseLostError() | EngineError() | JobPostponedError():
            raise error
        case JobCancelledError():
            return Report(use=use_of(state))
        case StoreBusyError() if context.attempt < BUSY_ATTEMPTS:
            raise JobPostponedError(str(error), after_seconds=BUSY_SECONDS) from error
        case StoreBusyError():
            return Report(use=use_of(state), problem=str(error))
        case _:
            return Report(use=use_of(state), record=failure_record(error, state=state))


def _clear(host: Host, session: SessionId) -> None:
    """Remove what a session left that was killed before its first event. Raises StoreBusyError if it lives."""
    place, work = host.place(session), host.work_folder(session)
    if not place.exists() and not work.exists():
        return
    with place.reserved(now=host.clock.now()):
        state = state_or_none(place)
        if state is not None and state.started is not None:
            raise StoreBusyError(f"SESSION_BUSY: {session} was begun by another process a moment ago")
        if place.exists() and state is None:
            return
        place.forget()
        shutil.rmtree(work, ignore_errors=True)
