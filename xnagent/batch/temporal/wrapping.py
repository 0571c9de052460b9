"""A workflow around one job's activity, for servers that don't know activities of their own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

from xnagent.batch.engine import JobOrder

ACTIVITY: Final = "xnagent-session"
LOST: Final = "JobLost"
"""The type of error with which a worker gives a job up for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What the server is told about a job's life."""

    longest_seconds: float
    heartbeat_seconds: float
    retry_seconds: float


def retry_policy(timing: Timing) -> RetryPolicy:
    """A lost job goes to somebody else at once; how often, the worker decides, who knows whether it got on."""
    return RetryPolicy(initial_interval=timedelta(seconds=timing.retry_seconds), backoff_coefficient=1.0)


@workflow.defn(name="xnagent-job", sandboxed=False)
class WrappedJob:
    """Hands its order to the activity and its result back."""

    @workflow.run
    async def run(self, order: JobOrder, timing: Timing) -> str:
        """Do the job."""
        result: str = await workflow.execute_activity(
            ACTIVITY,
            order,
            result_type=str,
            start_to_close_timeout=timedelta(seconds=timing.longest_seconds),
            heartbeat_timeout=timedelta(seconds=timing.heartbeat_seconds),
            retry_policy=retry_policy(timing),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        return result

    @workflow.query
    def reason(self) -> str:
        """Why its end was asked for."""
        return workflow.cancellation_reason() or ""
