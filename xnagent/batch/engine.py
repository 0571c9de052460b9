"""The engine port: a dispatcher with leases. The sessions are the truth; an engine that loses everything loses nothing.

An engine takes orders, gives each to one worker at a time for as long as the worker shows that it lives, gives it to
another one when it does not, and hands back what the handler said. It delivers at least once: that effects happen once
is the session's own doing. `tests/batch/test_engine.py` says what every engine must do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import anyio

from xnagent.errors import XnagentError


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """A job to be done."""

    job: str
    """Its id: an order with an id that the engine knows already changes nothing."""
    payload: str
    """All that a worker needs to begin or to go on; the engine does not look into it."""
    priority: int = 0
    """Higher ones first; equal ones in the order in which they were submitted, or nearly so if the engine is spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettled:
    """The handler came to an end."""

    job: str
    result: str
    """What it returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLost:
    """Worker after worker was lost with it, without any progress in between; nobody gets it again."""

    job: str
    detail: str


JobNews: TypeAlias = JobSettled | JobLost


class EngineError(XnagentError):
    """The engine itself failed; what it kept is not needed, since the same command run again submits all anew."""


class LeaseLostError(XnagentError):
    """Somebody else has the job now: stop at once and report nothing."""


class JobCancelledError(XnagentError):
    """The job was cancelled: stop in order and return what there is."""


class JobPostponedError(XnagentError):
    """Raised by a handler: the job can't be done now; give it to somebody again after a while."""

    def __init__(self, message: str, *, after_seconds: float) -> None:
        """Why, and how long to wait."""
        super().__init__(message)
        self.after_seconds = after_seconds


class JobContext(Protocol):
    """A job in a worker's hands."""

    @property
    def order(self) -> JobOrder:
        """What is to be done."""

    @property
    def attempt(self) -> int:
        """1 for the first worker that got it."""

    @property
    def beat_seconds(self) -> float:
        """How often `heartbeat` has to be called."""

    async def heartbeat(self, progress: int | None = None) -> None:
        """Show that the worker lives; `progress` grows when the job gets on, so that it does not count as hopeless.

        Raises LeaseLostError or JobCancelledError.
        """


class JobHandler(Protocol):
    """Does jobs; the same one for every engine."""

    async def handle(self, context: JobContext) -> str:
        """Do it, calling `heartbeat` meanwhile; what it returns is handed back as the result.

        May raise JobPostponedError, LeaseLostError and EngineError; nothing else.
        """


class JobEngine(Protocol):
    """Dispatches jobs to workers, here or elsewhere."""

    async def submit(self, orders: Sequence[JobOrder]) -> None:
        """Take orders; those whose id is known already change nothing."""

    async def cancel(self, job: str, reason: str) -> None:
        """Ask for an end: a job that nobody has is settled at once with an empty result, else its heartbeat raises."""

    async def collect(self) -> Sequence[JobNews]:
        """What came to an end and was not handed back yet; waits until there is something."""

    async def work(self, handler: JobHandler, *, slots: int, closing: anyio.Event) -> None:
        """Be a worker for so many jobs at once, until `closing` is set and the jobs in hand have ended."""
