"""An engine that is a server elsewhere: where it is, how it is reached, and a batch that has no workers of its own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

import anyio

from xnagent.batch.engine import JobEngine
from xnagent.batch.queue import Terms
from xnagent.batch.stopping import BatchStop
from xnagent.errors import UsageError

TEMPORAL: Final = "xnagent.batch.temporal.engine"
"""Loaded only when it is used: what it needs is an extra."""
TASK_QUEUE: Final = "xnagent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Where the server is, and what it is told about jobs."""

    environ: Mapping[str, str] = field(repr=False)
    """What the server's own settings are read from (`TEMPORAL_ADDRESS`, `TEMPORAL_API_KEY`, `TEMPORAL_TLS…`)."""
    address: str | None = None
    """`HOST:PORT`; None: as `environ` says, else this machine."""
    namespace: str | None = None
    task_queue: str = TASK_QUEUE
    """Workers do the jobs of the queue that they are at, whichever batch submitted them."""
    batch: str = "batch"
    """What this batch's jobs are told apart by from those of others."""
    terms: Terms = field(default_factory=Terms)
    starts_per_second: float | None = None
    """How many jobs may begin in a second, at all workers of the queue together; None: no limit."""


class RemoteEngine(JobEngine, Protocol):
    """An engine whose jobs go on while the batch's process is away."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about this server."""

    def let_go(self) -> None:
        """Wait for nothing any more: everything under way is settled with an empty result, here alone."""


class _EngineModule(Protocol):
    def connected(self, remote: Remote) -> AbstractAsyncContextManager[RemoteEngine]: ...


def temporal_engine(remote: Remote) -> AbstractAsyncContextManager[RemoteEngine]:
    """An engine at a Temporal server. Raises UsageError if it can't be reached, before anything is submitted."""
    try:
        module = cast("_EngineModule", importlib.import_module(TEMPORAL))
    except ImportError as error:
        raise UsageError(
            f"ENGINE_EXTRA_MISSING: --engine temporal needs Temporal's client, which cannot be loaded ({error}); "
            f"install it with: pip install 'xnagent[temporal]'"
        ) from error
    return module.connected(remote)


class WorkersElsewhere:
    """Implements `dispatch.Workers` where others do the work."""

    async def work(self, closing: anyio.Event) -> None:
        """Wait for the end."""
        await closing.wait()


async def release_when_asked_again(engine: RemoteEngine, stop: BatchStop) -> None:
    """Who asks twice to stop does not wait for sessions elsewhere to end in order."""
    await stop.asked_again.wait()
    engine.let_go()
