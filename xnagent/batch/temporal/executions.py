"""A job at the server: an activity of its own, or, where the server does not know those, one in a workflow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from temporalio.client import ActivityFailureError, Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import ActivityIDConflictPolicy, Priority, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from xnagent.batch.engine import JobLost, JobNews, JobOrder, JobSettled
from xnagent.batch.queue import Terms
from xnagent.batch.temporal.connecting import lasting
from xnagent.batch.temporal.wrapping import ACTIVITY, LOST, Timing, WrappedJob, retry_policy

LONGEST_SECONDS: Final = 30 * 86_400.0
"""Of one attempt; a session has its own deadline."""
RETRY_SECONDS: Final = 1.0
MIDDLE_PRIORITY: Final = 3
LOWEST_PRIORITY: Final = 5


class Executions(Protocol):
    """Jobs at the server, by their names there. All wait while the server is away."""

    async def start(self, order: JobOrder, name: str) -> None:
        """Hand it to the server; one that is there already and not over changes nothing."""

    async def outcome(self, order: JobOrder, name: str) -> JobNews:
        """Wait for its end. Raises LookupError if the server does not know it any more."""

    async def cancel(self, name: str, reason: str) -> None:
        """Ask for its end; nothing if it is over or unknown."""

    async def reason(self, name: str) -> str:
        """Why its end was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneActivities:
    """Implements `Executions` (a public preview: server 1.31 or newer)."""

    client: Client
    task_queue: str
    terms: Terms

    async def start(self, order: JobOrder, name: str) -> None:
        """An activity of this id."""
        timing = timing_of(self.terms)
        await lasting(
            lambda: self.client.start_activity(
                ACTIVITY,
                order,
                id=name,
                task_queue=self.task_queue,
                result_type=str,
                start_to_close_timeout=timedelta(seconds=timing.longest_seconds),
                heartbeat_timeout=timedelta(seconds=timing.heartbeat_seconds),
                id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
                retry_policy=retry_policy(timing),
                priority=priority_of(order),
            )
        )

    async def outcome(self, order: JobOrder, name: str) -> JobNews:
        """What the activity returned."""
        handle = self.client.get_activity_handle(name, result_type=str)
        try:
            return JobSettled(job=order.job, result=await lasting(handle.result))
        except ActivityFailureError as error:
            return news_of(order, error.cause)
        except RPCError as error:
            raise _lookup(error, name) from error

    async def cancel(self, name: str, reason: str) -> None:
        """Its next heartbeat is answered with that."""
        handle = self.client.get_activity_handle(name)
        try:
            await lasting(lambda: handle.cancel(reason=reason))
        except RPCError as error:
            _let_pass(error)

    async def reason(self, name: str) -> str:
        """As the server keeps it."""
        found = await lasting(self.client.get_activity_handle(name).describe)
        return found.canceled_reason or "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedActivities:
    """Implements `Executions` for servers that know activities only in workflows."""

    client: Client
    task_queue: str
    terms: Terms

    async def start(self, order: JobOrder, name: str) -> None:
        """A workflow of this id with one activity."""
        await lasting(
            lambda: self.client.start_workflow(
                WrappedJob.run,
                args=[order, timing_of(self.terms)],
                id=name,
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                priority=priority_of(order),
            )
        )

    async def outcome(self, order: JobOrder, name: str) -> JobNews:
        """What the workflow returned."""
        handle: WorkflowHandle[WrappedJob, str] = self.client.get_workflow_handle(name, result_type=str)
        try:
            return JobSettled(job=order.job, result=await lasting(handle.result))
        except WorkflowFailureError as error:
            return news_of(order, error.cause)
        except RPCError as error:
            raise _lookup(error, name) from error

    async def cancel(self, name: str, reason: str) -> None:
        """The workflow hands it on to its activity."""
        handle = self.client.get_workflow_handle(name)
        try:
            await lasting(lambda: handle.cancel(reason=reason))
        except RPCError as error:
            _let_pass(error)

    async def reason(self, name: str) -> str:
        """As the workflow tells it."""
        handle: WorkflowHandle[WrappedJob, str] = self.client.get_workflow_handle(name)
        return await lasting(lambda: handle.query(WrappedJob.reason)) or "cancelled"


def timing_of(terms: Terms) -> Timing:
    """What the server is told about a job's life."""
    return Timing(
        longest_seconds=LONGEST_SECONDS,
        heartbeat_seconds=terms.lease_seconds,
        retry_seconds=min(RETRY_SECONDS, terms.lease_seconds),
    )


def priority_of(order: JobOrder) -> Priority:
    """The server has five steps, 1 the highest."""
    return Priority(priority_key=min(max(MIDDLE_PRIORITY - order.priority, 1), LOWEST_PRIORITY))


def news_of(order: JobOrder, cause: BaseException | None) -> JobNews:
    """An end without a result: given up by a worker, cancelled while nobody had it, or ended by an operator."""
    while cause is not None and not isinstance(cause, ApplicationError):
        cause = cause.__cause__
    if cause is not None and cause.type == LOST:
        return JobLost(job=order.job, detail=cause.message)
    return JobSettled(job=order.job, result="")


def _lookup(error: RPCError, name: str) -> Exception:
    return LookupError(name) if error.status is RPCStatusCode.NOT_FOUND else error


def _let_pass(error: RPCError) -> None:
    """What is over can't be cancelled, and need not be."""
    if error.status not in {RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION}:
        raise error
