"""A worker's attempt at a job: heartbeats to the server, and what is remembered from one attempt to the next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from xnagent.batch.engine import EngineError, JobCancelledError, JobOrder, LeaseLostError
from xnagent.batch.queue import Terms
from xnagent.batch.temporal.connecting import PASSING
from xnagent.batch.temporal.executions import Executions
from xnagent.batch.temporal.wrapping import LOST

SHORTEST_ANSWER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the server keeps from one attempt to the next, with each heartbeat."""

    progress: int = 0
    excused: int = 0
    """So many of the attempts are not held against the job: it got on afterwards, or was postponed in order."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """Implements `JobContext`. A server that is away does not stop the session: the store says whose it is."""

    order: JobOrder
    name: str
    attempt: int
    beat_seconds: float
    memory: Memory
    pulse: AsyncActivityHandle
    executions: Executions

    async def heartbeat(self, progress: int | None = None) -> None:
        """Tell the server, and hear from it."""
        if progress is not None and progress > self.memory.progress:
            self.memory = Memory(progress=progress, excused=self.attempt - 1)
        activity.heartbeat(self.memory)
        wait = timedelta(seconds=max(self.beat_seconds, SHORTEST_ANSWER_SECONDS))
        try:
            await self.pulse.heartbeat(self.memory, rpc_timeout=wait)
        except AsyncActivityCancelledError as error:
            if error.details is None or error.details.cancel_requested:
                raise JobCancelledError(await self.executions.reason(self.name)) from error
            raise _lost(self.order) from error
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise _lost(self.order) from error
            if error.status not in PASSING:
                raise EngineError(f"ENGINE_FAILED: {self.order.job}: {error.message}") from error

    async def excuse(self) -> None:
        """What comes of this attempt is not held against the job."""
        self.memory = Memory(progress=self.memory.progress, excused=self.memory.excused + 1)
        await self.heartbeat()

    def check(self, terms: Terms) -> None:
        """Give the job up, for good, if it was lost too often in a row without having got on."""
        losses = self.attempt - 1 - self.memory.excused
        if losses > terms.most_losses:
            raise ApplicationError(f"the worker was lost {losses} times in a row", type=LOST, non_retryable=True)


def memory_of(info: activity.Info) -> Memory:
    """What the attempt before left."""
    if not info.heartbeat_details:
        return Memory()
    kept = info.heartbeat_details[0]
    return Memory(progress=int(kept["progress"]), excused=int(kept["excused"]))


def again(message: str, *, after_seconds: float | None = None) -> ApplicationError:
    """An end of this attempt after which somebody gets the job again."""
    delay = None if after_seconds is None else timedelta(seconds=after_seconds)
    return ApplicationError(message, next_retry_delay=delay, category=ApplicationErrorCategory.BENIGN)


def _lost(order: JobOrder) -> LeaseLostError:
    return LeaseLostError(f"LEASE_LOST: {order.job}: somebody else has it now")
