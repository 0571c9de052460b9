"""The engines that the conformance suite is run over, and a handler that does what a test says."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import pytest

from tests.temporal_server import Server
from xnagent.app.host import SystemClock
from xnagent.batch.engine import JobContext, JobEngine, JobOrder
from xnagent.batch.local import LocalEngine
from xnagent.batch.queue import Queue, Terms
from xnagent.batch.remote import Remote, temporal_engine

SECONDS = 30


class Place(Protocol):
    """Where one engine keeps its jobs; each `connect` is another process's view of it."""

    is_exact: bool
    """Whether jobs of one priority begin exactly in the order in which they were submitted."""

    async def connect(self) -> JobEngine: ...


class LocalPlace:
    is_exact = True

    def __init__(self, folder: Path, terms: Terms) -> None:
        self.queue = Queue(path=folder / "queue.db", terms=terms)
        self.queue.create()

    async def connect(self) -> JobEngine:
        return LocalEngine(queue=self.queue, clock=SystemClock(), poll_seconds=0.02)


@dataclass
class TemporalPlace:
    is_exact = False
    server: Server
    terms: Terms
    stack: AsyncExitStack
    batch: str = field(default_factory=lambda: f"b-{uuid.uuid4().hex[:12]}")

    async def connect(self) -> JobEngine:
        remote = Remote(
            environ={}, address=self.server.address, task_queue=self.batch, batch=self.batch, terms=self.terms
        )
        return await self.stack.enter_async_context(temporal_engine(remote))


ENGINES = {"local": None, "temporal": "temporal_server", "temporal-wrapped": "older_temporal_server"}
"""Each engine, and the fixture that starts its server."""


@asynccontextmanager
async def place_of(request: pytest.FixtureRequest, backend: str, *, terms: Terms) -> AsyncIterator[Place]:
    if (server := ENGINES[request.param]) is None:
        yield LocalPlace(request.getfixturevalue("tmp_path"), terms)
        return
    if backend != "asyncio":
        pytest.skip("Temporal's client runs on asyncio only")
    async with AsyncExitStack() as stack:
        yield TemporalPlace(request.getfixturevalue(server), terms, stack)


@dataclass
class Doing:
    """A handler that calls a function."""

    what: Callable[[JobContext], Awaitable[str]]

    async def handle(self, context: JobContext) -> str:
        return await self.what(context)


def orders(*jobs: str) -> list[JobOrder]:
    return [JobOrder(job=job, payload=f"payload of {job}") for job in jobs]


async def results(engine: JobEngine, *, count: int) -> dict[str, str]:
    """So many ends, by job; each job once."""
    found: dict[str, str] = {}
    with anyio.fail_after(SECONDS):
        while len(found) < count:
            for news in await engine.collect():
                assert news.job not in found
                found[news.job] = getattr(news, "result", "lost")
    return found
