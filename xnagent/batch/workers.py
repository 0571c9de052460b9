"""The worker's side: a handler and an engine, in the batch's own process or in one of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Final

import anyio

from xnagent.app.host import Host
from xnagent.batch.engine import JobEngine
from xnagent.batch.handler import SessionHandler
from xnagent.batch.repositories import Repositories
from xnagent.batch.stopping import BatchStop

GRACE_SECONDS: Final = 15.0
"""Between the steps with which a worker ends whose batch is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWorkers:
    """Implements `dispatch.Workers` in this process."""

    host: Host
    engine: JobEngine
    stop: BatchStop
    slots: int
    hands_back: bool = False
    """Whether others go on with what this process does not finish when it is stopped."""

    async def work(self, closing: anyio.Event) -> None:
        """Handle jobs until there is nothing more to do."""
        handler = SessionHandler(
            host=self.host, stop=self.stop, repositories=Repositories(self.host), hands_back=self.hands_back
        )
        async with anyio.create_task_group() as group:
            ending = anyio.Event()
            for event in (closing, self.stop.asked):
                group.start_soon(_then_set, event, ending)
            await self.engine.work(handler, slots=self.slots, closing=ending)
            group.cancel_scope.cancel()


async def _then_set(first: anyio.Event, then: anyio.Event) -> None:
    await first.wait()
    then.set()


def end_with_stdin() -> None:
    """From now on this process ends when its stdin closes: in order, then at once, then by force.

    A thread, so that it also ends when its event loop hangs.
    """
    threading.Thread(target=_watch_stdin, daemon=True).start()


def _watch_stdin() -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        os.kill(os.getpid(), number)
        time.sleep(GRACE_SECONDS)
