"""The engines that the conformance suite is run over, and a handler that does what a test says."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from xnagent.app.host import SystemClock
from xnagent.batch.engine import JobContext, JobEngine, JobOrder
from xnagent.batch.local import LocalEngine
from xnagent.batch.queue import Queue, Terms

SECONDS = 30


class Place:
    """Where one engine keeps its jobs; each `connect` is another process's view of it."""

    def connect(self) -> JobEngine:
        raise NotImplementedError


class LocalPlace(Place):
    def __init__(self, folder: Path, terms: Terms) -> None:
        self.queue = Queue(path=folder / "queue.db", terms=terms)
        self.queue.create()

    def connect(self) -> JobEngine:
        return LocalEngine(queue=self.queue, clock=SystemClock(), poll_seconds=0.02)


@contextmanager
def local(folder: Path, terms: Terms) -> Iterator[Place]:
    yield LocalPlace(folder, terms)


ENGINES = {"local": local}


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
