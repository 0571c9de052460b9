"""Gives jobs to an engine in a fair order, as many as may run and can be paid, and writes down what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, cast

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream

from xnagent.app.host import Host
from xnagent.batch.assignment import Record, Report, Use, parse_report, use_of
from xnagent.batch.budget import Purse
from xnagent.batch.engine import JobEngine, JobLost, JobNews, JobOrder
from xnagent.batch.failure import failure_record
from xnagent.batch.jobs import Job
from xnagent.batch.lending import Entry, Lender
from xnagent.batch.plan import Plan, session_of
from xnagent.batch.results import Results
from xnagent.batch.stopping import BatchStop, Signal
from xnagent.config.secrets import mask_for
from xnagent.core.record import SIGNAL_EXIT_CODE
from xnagent.errors import XnagentError
from xnagent.store.place import state_or_none

SOME_FAILED: Final = 4
ALL_FAILED: Final = 3


class WorkerLostError(XnagentError):
    """The processes that worked on a job were lost, one after the other."""


class Workers(Protocol):
    """Who does the jobs."""

    async def work(self, closing: anyio.Event) -> None:
        """Work until `closing` is set and what is in hand has ended; stop early when the batch is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """How a batch ended, earlier runs of it included."""

    total: int
    completed: int
    failed: int
    unfinished: int
    """Jobs that should have run and have no new result: interrupted, not begun, or not paid."""
    signal: Signal | None
    stopped_by: str | None = None
    """`usd`, `tokens` or `deadline`: the limit of the whole batch that kept jobs from their end."""
    cost_usd: float = 0.0
    """Of all results and of what is unfinished, as far as prices are known."""
    tokens: int = 0

    @property
    def exit_code(self) -> int:
        """0 if every job completed, 4 if some did, 3 if none; a signal's own code."""
        if self.signal is not None and self.unfinished:
            return SIGNAL_EXIT_CODE[self.signal]
        if self.completed == self.total:
            return 0
        return SOME_FAILED if self.completed else ALL_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of the whole batch; None: none."""

    usd: float | None = None
    """Earlier runs of the command included, as for `tokens`."""
    tokens: int | None = None
    deadline_seconds: float | None = None
    """Of this run of the command."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """Jobs, where their results go, who does them, and who is told of each."""

    host: Host
    jobs: Sequence[Job]
    plan: Plan
    results: Results
    engine: JobEngine
    workers: Workers
    stop: BatchStop
    news: MemoryObjectSendStream[Record]
    """Gets each result line once it is on the disk, and `{"id", "problem"}` for a job that could not be run now; it
    must be unbounded, and is closed at the end."""
    limits: BatchLimits = field(default_factory=BatchLimits)
    lender: Lender = field(default_factory=lambda: Lender(usd=Purse(), tokens=Purse()))
    waiting: list[Entry] = field(default_factory=list)
    under_way: dict[str, Entry] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    stopped_by: str | None = None

    async def run(self, window: int) -> BatchEnd:
        """Run what is to be done, with so many jobs in the engine at once."""
        await anyio.to_thread.run_sync(self._prepare)
        async with self.news, anyio.create_task_group() as group:
            if not self.waiting:
                return self._end()
            closing = anyio.Event()
            group.start_soon(self.workers.work, closing)
            async with anyio.create_task_group() as watchers:
                watchers.start_soon(self._empty_when_stopped)
                watchers.start_soon(self._stop_at_deadline)
                await self._dispatch(window)
                watchers.cancel_scope.cancel()
            closing.set()
        return self._end()

    def _prepare(self) -> None:
        """Look at what earlier runs of the batch left."""
        for job in self.plan.todo:
            session = session_of(job, self.results.seed, results_so_far=self.results.lines[job.job])
            place = self.host.place(session)
            use = use_of(state_or_none(place)) if place.exists() else Use()
            self.waiting.append(Entry(job=job, session=session, use=use))
        uses = [entry.use for entry in self.waiting]
        usd = self.results.spent_usd + sum(use.usd or 0.0 for use in uses)
        tokens = self.results.spent_tokens + sum(use.tokens for use in uses)
        self.lender = Lender(
            usd=Purse(cap=self.limits.usd, spent=usd), tokens=Purse(cap=self.limits.tokens, spent=tokens)
        )

    async def _dispatch(self, window: int) -> None:
        """Until nothing is under way and nothing more may begin."""
        await self._fill(window)
        while self.under_way:
            for news in await self.engine.collect():
                await self._take(news)
            await self._fill(window)
        if self.waiting and not self.stop.asked.is_set():
            self.stopped_by = self.lender.refused
            for entry in self.waiting:
                self._tell(entry, f"not run: the batch's limit ({self.stopped_by}) leaves too little for it")

    async def _fill(self, window: int) -> None:
        """Submit what may begin. A job that can't be paid now waits for others to give back what they don't use."""
        orders: list[JobOrder] = []
        for entry in tuple(self.waiting):
            if self.stop.asked.is_set() or len(self.under_way) >= window:
                break
            assignment = self.lender.lend(entry, waiting=len(self.waiting))
            if assignment is not None:
                entry.rounds += 1
                self.waiting.remove(entry)
                self.under_way[entry.order_id] = entry
                orders.append(JobOrder(job=entry.order_id, payload=assignment.dump(), priority=entry.job.priority))
        if orders:
            await self.engine.submit(orders)

    async def _take(self, news: JobNews) -> None:
        entry = self.under_way.pop(news.job, None)
        if entry is None:
            return
        report = await self._lost(entry, news) if isinstance(news, JobLost) else parse_report(news.result)
        if report is None:
            report = Report(use=await self._use(entry))
        is_starved = entry.is_starved(report.use)
        self.lender.repay(entry, report.use, is_at_end=report.record is not None and not is_starved)
        if is_starved:
            self.waiting.insert(0, entry)
        elif report.record is not None:
            await self._write(entry.job, report.record)
        elif report.problem is not None:
            self._tell(entry, f"not run: {report.problem}")

    async def _lost(self, entry: Entry, news: JobLost) -> Report:
        state = await anyio.to_thread.run_sync(state_or_none, self.host.place(entry.session))
        error = WorkerLostError(
            f"WORKER_LOST: {news.detail}; look for what ends the process, such as too little memory"
        )
        return Report(use=use_of(state), record=failure_record(error, state=state))

    async def _use(self, entry: Entry) -> Use:
        """What a session used that nobody reported on."""
        return use_of(await anyio.to_thread.run_sync(state_or_none, self.host.place(entry.session)))

    async def _write(self, job: Job, found: Record) -> None:
        record = cast("Record", mask_for(self.host.environ, job.settings).value(found))
        with anyio.CancelScope(shield=True):
            append = partial(self.results.append, job.job, record, digest=job.digest)
            await anyio.to_thread.run_sync(append)
            self.written.add(job.job)
            self.news.send_nowait({"id": job.job, **record})

    def _tell(self, entry: Entry, problem: str) -> None:
        self.news.send_nowait({"id": entry.job.job, "problem": problem})

    async def _empty_when_stopped(self) -> None:
        """Take jobs back that nobody has, and ask for those that somebody has."""
        await self.stop.asked.wait()
        for order in tuple(self.under_way):
            await self.engine.cancel(order, "the batch was stopped")

    async def _stop_at_deadline(self) -> None:
        if self.limits.deadline_seconds is not None:
            await anyio.sleep(self.limits.deadline_seconds)
            self.stopped_by = "deadline"
            self.stop.end()

    def _end(self) -> BatchEnd:
        unfinished = {job.job for job in self.plan.todo} - self.written
        codes = [self.results.done[job.job] for job in self.jobs if job.job not in unfinished]
        completed = codes.count(0)
        if not unfinished:
            self.results.forget_seed()
        return BatchEnd(
            total=len(self.jobs),
            completed=completed,
            failed=len(codes) - completed,
            unfinished=len(unfinished),
            signal=self.stop.signal,
            stopped_by=self.stopped_by,
            cost_usd=round(self.lender.usd.spent, 8),
            tokens=int(self.lender.tokens.spent),
        )
