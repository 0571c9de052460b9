"""The engine that is always there: a queue in a file, workers on the same machine, in this process or in others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

import anyio
import anyio.to_thread

from xnagent.batch.engine import (
    EngineError,
    JobCancelledError,
    JobHandler,
    JobNews,
    JobOrder,
    JobPostponedError,
    LeaseLostError,
)
from xnagent.batch.queue import Lease, Queue, owner_name
from xnagent.ports import Clock

POLL_SECONDS: Final = 0.1
"""How soon a process notices what another one wrote."""
SERIALS: Final = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalContext:
    """A leased job."""

    queue: Queue
    lease: Lease
    clock: Clock

    @property
    def order(self) -> JobOrder:
        """What is to be done."""
        return self.lease.order

    @property
    def attempt(self) -> int:
        """How many had it, this one included."""
        return self.lease.epoch

    @property
    def beat_seconds(self) -> float:
        """A third of the lease."""
        return self.queue.terms.beat_seconds

    async def heartbeat(self, progress: int | None = None) -> None:
        """Renew the lease."""
        renew = partial(self.queue.renew, self.lease, progress=progress, now=self.clock.monotonic())
        try:
            reason = await anyio.to_thread.run_sync(renew)
        except LookupError:
            raise LeaseLostError(f"LEASE_LOST: {self.order.job}: somebody else has it now") from None
        if reason is not None:
            raise JobCancelledError(reason)


@dataclass(slots=True, kw_only=True)
class LocalEngine:
    """Implements `JobEngine` on a queue. What it does itself wakes it at once; what others write, it polls for."""

    queue: Queue
    clock: Clock
    poll_seconds: float = POLL_SECONDS
    owner: str = field(default_factory=lambda: f"{owner_name(os.getpid())}-{next(SERIALS)}")
    _news: anyio.Event = field(default_factory=anyio.Event)

    async def submit(self, orders: Sequence[JobOrder]) -> None:
        """Into the queue."""
        await anyio.to_thread.run_sync(self.queue.submit, orders)
        self._ring()

    async def cancel(self, job: str, reason: str) -> None:
        """Into the queue; whoever has the job sees it at its next heartbeat."""
        await anyio.to_thread.run_sync(self.queue.cancel, job, reason)
        self._ring()

    async def collect(self) -> Sequence[JobNews]:
        """Out of the queue."""
        while True:
            bell = self._news
            collect = partial(self.queue.collect, now=self.clock.monotonic())
            if found := await anyio.to_thread.run_sync(collect):
                return found
            await self._pause(bell)

    async def work(self, handler: JobHandler, *, slots: int, closing: anyio.Event) -> None:
        """Claim as many as there are slots free, also until the queue is gone: its batch is over."""
        free = _Slots(left=slots)
        async with anyio.create_task_group() as group:
            while not closing.is_set():
                bell = self._news
                leases = await self._claim(free.left)
                if leases is None:
                    return
                for lease in leases:
                    free.left -= 1
                    group.start_soon(partial(self._one, handler, lease, free=free))
                await self._pause(bell, closing)

    async def _claim(self, slots: int) -> tuple[Lease, ...] | None:
        """None: there is no queue any more."""
        if not slots:
            return ()
        claim = partial(self.queue.claim, self.owner, count=slots, now=self.clock.monotonic())
        try:
            return await anyio.to_thread.run_sync(claim)
        except EngineError:
            if self.queue.path.exists():
                raise
            return None

    async def _one(self, handler: JobHandler, lease: Lease, *, free: _Slots) -> None:
        try:
            await self._done(handler, lease)
        finally:
            free.left += 1
            self._ring()

    async def _done(self, handler: JobHandler, lease: Lease) -> None:
        context = LocalContext(queue=self.queue, lease=lease, clock=self.clock)
        try:
            result = await handler.handle(context)
        except LeaseLostError:
            return
        except JobPostponedError as error:
            put_back = partial(self.queue.put_back, lease, not_before=self.clock.monotonic() + error.after_seconds)
            await anyio.to_thread.run_sync(put_back)
            return
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.queue.settle, lease, result)

    async def _pause(self, bell: anyio.Event, closing: anyio.Event | None = None) -> None:
        async with anyio.create_task_group() as group:
            if closing is not None:
                group.start_soon(_then_cancel, closing, group.cancel_scope)
            with anyio.move_on_after(self.poll_seconds):
                await bell.wait()
            group.cancel_scope.cancel()

    def _ring(self) -> None:
        bell, self._news = self._news, anyio.Event()
        bell.set()


@dataclass(slots=True, kw_only=True)
class _Slots:
    left: int


async def _then_cancel(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
