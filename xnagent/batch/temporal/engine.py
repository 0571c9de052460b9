"""Jobs at a Temporal server: one activity each, which any worker of the queue takes and goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Final

import anyio
import anyio.abc
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from xnagent.batch.engine import (
    EngineError,
    JobCancelledError,
    JobHandler,
    JobNews,
    JobOrder,
    JobPostponedError,
    JobSettled,
    LeaseLostError,
)
from xnagent.batch.remote import Remote
from xnagent.batch.temporal.attempts import Attempt, again, memory_of
from xnagent.batch.temporal.connecting import connect, has_standalone_activities, is_being_cancelled
from xnagent.batch.temporal.executions import Executions, StandaloneActivities, WrappedActivities
from xnagent.batch.temporal.wrapping import ACTIVITY, WrappedJob

BEATS: Final = 6
"""So many heartbeats fit into a lease."""
LONGEST_NAME: Final = 200
GRACE: Final = timedelta(days=30)
"""A worker that closes waits for its jobs; what hurries them is not its business."""
WRAPPED_NOTE: Final = (
    "the Temporal server knows no activities of their own (1.31 and newer do), so each job is a workflow with one"
)


@dataclass(slots=True, kw_only=True)
class TemporalEngine:
    """Implements `RemoteEngine`."""

    client: Client
    remote: Remote
    executions: Executions
    group: anyio.abc.TaskGroup
    """Owns what waits for jobs to end."""
    known: set[str] = field(default_factory=set)
    waiting: dict[str, anyio.CancelScope] = field(default_factory=dict)
    news: list[JobNews] = field(default_factory=list)
    bell: anyio.Event = field(default_factory=anyio.Event)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about this server."""
        return (WRAPPED_NOTE,) if isinstance(self.executions, WrappedActivities) else ()

    async def submit(self, orders: Sequence[JobOrder]) -> None:
        """One after the other, so that they come in this order."""
        for order in orders:
            if order.job in self.known:
                continue
            self.known.add(order.job)
            await self._start(order)
            scope = self.waiting[order.job] = anyio.CancelScope()
            self.group.start_soon(self._watch, order, scope)

    async def _start(self, order: JobOrder) -> None:
        try:
            await self.executions.start(order, self._name(order.job))
        except RPCError as error:
            raise EngineError(f"ENGINE_FAILED: {order.job} can't be submitted: {error.message}") from error

    async def _watch(self, order: JobOrder, scope: anyio.CancelScope) -> None:
        """Until it ends; a server that lost it gets it again."""
        with scope:
            while True:
                try:
                    news = await self.executions.outcome(order, self._name(order.job))
                except LookupError:
                    await self._start(order)
                except RPCError as error:
                    raise EngineError(f"ENGINE_FAILED: {order.job}: {error.message}") from error
                else:
                    self._tell(news)
                    return

    def _tell(self, news: JobNews) -> None:
        self.waiting.pop(news.job, None)
        self.news.append(news)
        self.bell.set()

    async def cancel(self, job: str, reason: str) -> None:
        """Whoever has it hears of it with the next heartbeat."""
        try:
            await self.executions.cancel(self._name(job), reason)
        except RPCError as error:
            raise EngineError(f"ENGINE_FAILED: {job} can't be cancelled: {error.message}") from error

    def let_go(self) -> None:
        """Wait for nothing any more."""
        for job, scope in tuple(self.waiting.items()):
            scope.cancel()
            self._tell(JobSettled(job=job, result=""))

    async def collect(self) -> Sequence[JobNews]:
        """What ended meanwhile."""
        while not self.news:
            self.bell = anyio.Event()
            await self.bell.wait()
        found, self.news = tuple(self.news), []
        return found

    async def work(self, handler: JobHandler, *, slots: int, closing: anyio.Event) -> None:
        """Poll the queue with so many slots."""
        async with anyio.create_task_group() as group:
            hands = _Hands(engine=self, handler=handler, group=group)

            @activity.defn(name=ACTIVITY)
            async def session(order: JobOrder) -> str:
                return await hands.do(order)

            worker = Worker(
                self.client,
                task_queue=self.remote.task_queue,
                activities=[session],
                max_concurrent_activities=slots,
                max_task_queue_activities_per_second=self.remote.starts_per_second,
                graceful_shutdown_timeout=GRACE,
            )
            group.start_soon(_close, worker, closing)
            await worker.run()
            group.cancel_scope.cancel()

    def attempt(self, order: JobOrder) -> Attempt:
        """The attempt that the activity that runs now is."""
        info = activity.info()
        return Attempt(
            order=order,
            name=info.workflow_id or info.activity_id,
            attempt=info.attempt,
            beat_seconds=self.remote.terms.lease_seconds / BEATS,
            memory=memory_of(info),
            pulse=self.client.get_async_activity_handle(task_token=info.task_token),
            executions=self.executions,
        )

    def _name(self, job: str) -> str:
        name = f"{self.remote.batch}/{job}"
        return name if len(name) <= LONGEST_NAME else f"{self.remote.batch}/{sha256(job.encode()).hexdigest()}"


async def _close(worker: Worker, closing: anyio.Event) -> None:
    await closing.wait()
    await worker.shutdown()


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """What a handler said, for the activity that waits for it."""

    is_known: anyio.Event = field(default_factory=anyio.Event)
    result: str | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hands:
    """Does a worker's activities in a task group of ours.

    The client cancels an activity's own task wherever it stands; a session ends in order, when a heartbeat says so.
    """

    engine: TemporalEngine
    handler: JobHandler
    group: anyio.abc.TaskGroup

    async def do(self, order: JobOrder) -> str:
        """One attempt at a job."""
        attempt = self.engine.attempt(order)
        attempt.check(self.engine.remote.terms)
        outcome = _Outcome()
        self.group.start_soon(partial(self._handle, attempt, outcome=outcome))
        while not outcome.is_known.is_set():
            try:
                await outcome.is_known.wait()
            except asyncio.CancelledError:
                _go_on()
        if outcome.result is None:
            raise outcome.error or again("the worker ended")
        return outcome.result

    async def _handle(self, attempt: Attempt, *, outcome: _Outcome) -> None:
        try:
            outcome.result = await self.handler.handle(attempt)
        except LeaseLostError as error:
            outcome.error = again(str(error))
        except JobPostponedError as error:
            outcome.error = await _postponed(attempt, error)
        finally:
            outcome.is_known.set()


async def _postponed(attempt: Attempt, error: JobPostponedError) -> Exception:
    with suppress(LeaseLostError, JobCancelledError):
        await attempt.excuse()
    return again(str(error), after_seconds=error.after_seconds)


def _go_on() -> None:
    """What the client tells by cancelling, the next heartbeat tells too."""
    if is_being_cancelled() and (task := asyncio.current_task()) is not None:
        task.uncancel()


@asynccontextmanager
async def connected(remote: Remote) -> AsyncIterator[TemporalEngine]:
    """An engine at the server that `remote` names. Raises UsageError if it can't be reached.

    Where jobs are wrapped, each engine also moves the wrappers on, so that they end while no worker is there.
    """
    client = await connect(remote)
    is_standalone = await has_standalone_activities(client)
    kind = StandaloneActivities if is_standalone else WrappedActivities
    executions = kind(client=client, task_queue=remote.task_queue, terms=remote.terms)
    async with anyio.create_task_group() as group:
        if not is_standalone:
            group.start_soon(Worker(client, task_queue=remote.task_queue, workflows=[WrappedJob]).run)
        yield TemporalEngine(client=client, remote=remote, executions=executions, group=group)
        group.cancel_scope.cancel()
