"""Runs the jobs that have no result yet, several at a time. Each is a session of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream

from xnagent.app.host import Host
from xnagent.app.running import SessionSpec, Stop, resume_session, run_session
from xnagent.batch.failure import Caught, failure_record
from xnagent.batch.jobs import Job
from xnagent.batch.results import Results
from xnagent.core.ids import SessionId
from xnagent.core.record import SIGNAL_EXIT_CODE, final_record
from xnagent.core.state import SessionState
from xnagent.core.text import Json
from xnagent.errors import StoreBusyError, UsageError
from xnagent.store.place import Place, state_or_none

SESSION_DIGITS: Final = 16
SOME_FAILED: Final = 4
ALL_FAILED: Final = 3
Signal = Literal["SIGINT", "SIGTERM"]
Record = dict[str, Json]


class BatchStop:
    """A request to stop, handed on to every session that runs; no further job begins."""

    def __init__(self) -> None:
        self.signal: Signal | None = None
        self._running: set[Stop] = set()

    def request(self, signal: Signal) -> None:
        """Ask to stop; the second time, at once."""
        self.signal = self.signal or signal
        for stop in self._running:
            stop.request(signal)

    def enter(self) -> Stop:
        """The stop of a session that begins."""
        stop = Stop()
        self._running.add(stop)
        return stop

    def leave(self, stop: Stop) -> None:
        """The session ended."""
        self._running.discard(stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """How a batch ended, earlier runs of it included."""

    total: int
    completed: int
    failed: int
    unfinished: int
    """Jobs without a result: interrupted, or not begun."""
    signal: Signal | None

    @property
    def exit_code(self) -> int:
        """0 if every job completed, 4 if some did, 3 if none; a signal's own code."""
        if self.signal is not None and self.unfinished:
            return SIGNAL_EXIT_CODE[self.signal]
        if self.completed == self.total:
            return 0
        return SOME_FAILED if self.completed else ALL_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Jobs, where their results go, and who is told of each."""

    host: Host
    jobs: Sequence[Job]
    results: Results
    stop: BatchStop
    news: MemoryObjectSendStream[Record]
    """Gets each result line once it is on the disk, and `{"id", "problem"}` for a job that could not be run now; it
    must be unbounded, and is closed at the end."""
    writing: anyio.Lock = field(default_factory=anyio.Lock)
    """Held from the line to its news, so that both come in one order."""

    async def run(self, at_once: int) -> BatchEnd:
        """Run what has no result yet."""
        queue = iter([job for job in self.jobs if job.job not in self.results.done])
        async with self.news, anyio.create_task_group() as group:
            for _ in range(min(at_once, len(self.jobs))):
                group.start_soon(self._work, queue)
        return self._end()

    def _end(self) -> BatchEnd:
        codes = [self.results.done[job.job] for job in self.jobs if job.job in self.results.done]
        if len(codes) == len(self.jobs):
            self.results.forget_seed()
        completed = codes.count(0)
        return BatchEnd(
            total=len(self.jobs),
            completed=completed,
            failed=len(codes) - completed,
            unfinished=len(self.jobs) - len(codes),
            signal=self.stop.signal,
        )

    async def _work(self, queue: Iterator[Job]) -> None:
        for job in queue:
            if self.stop.signal is not None:
                return
            await self._one(job)

    async def _one(self, job: Job) -> None:
        with Caught(StoreBusyError) as busy:
            record = await self._record(job)
            if record is None:
                return
            with anyio.CancelScope(shield=True):
                async with self.writing:
                    await anyio.to_thread.run_sync(self.results.append, job.job, record)
                    self.news.send_nowait({"id": job.job, **record})
        if busy.error is not None:
            self.news.send_nowait({"id": job.job, "problem": str(busy.error)})

    async def _record(self, job: Job) -> Record | None:
        """The final record of the job's session; None if it was interrupted and goes on another time."""
        session = session_of(job, self.results.seed)
        stop = self.stop.enter()
        state: SessionState | None = None
        with Caught(Exception) as caught:
            state = await self._session(job, session, stop=stop)
        self.stop.leave(stop)
        if isinstance(caught.error, StoreBusyError):
            raise caught.error
        if caught.error is not None:
            return failure_record(caught.error, state=state_or_none(self.host.place(session)))
        if state is None or state.settled is None or state.settled.outcome == "interrupted":
            return None
        return final_record(state)

    async def _session(self, job: Job, session: SessionId, *, stop: Stop) -> SessionState:
        """Run it, go on with it, or only read how it ended before its line was written."""
        place = self.host.place(session)
        known = await anyio.to_thread.run_sync(state_or_none, place)
        if known is None or known.started is None:
            await anyio.to_thread.run_sync(_clear, place, self.host.work_folder(session))
            spec = SessionSpec(
                objective=job.objective,
                repository=_folder(job.repository),
                settings=job.settings,
                session=session,
                commit=job.commit,
            )
            return await run_session(self.host, spec, stop=stop)
        if known.settled is not None and known.settled.outcome != "interrupted":
            return known
        return await resume_session(self.host, session, settings=job.settings, message=None, stop=stop)


def session_of(job: Job, seed: str) -> SessionId:
    """The job's session: the same one whenever this batch goes on."""
    digest = sha256(f"{seed}\0{job.job}\0{job.digest}".encode()).hexdigest()
    return SessionId(f"s-{digest[:SESSION_DIGITS]}")


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"NO_FOLDER: {path}: there is no such folder; name the repository with repo")
    return path


def _clear(place: Place, work: Path) -> None:
    """Remove what a session left that was killed before its first event."""
    if place.exists() and state_or_none(place) is None:
        return
    place.forget()
    shutil.rmtree(work, ignore_errors=True)
