"""Worker processes on this machine: begun, begun again when they are lost, ended with the batch.

Each has a pipe as its stdin, and ends in order when that closes: when the batch is over, and when the process of the
batch is gone, however it went. A worker that is killed takes only its own jobs with it; the engine gives them to
others, and they go on from their logs.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.abc

from xnagent.batch.stopping import BatchStop
from xnagent.errors import XnagentError

CLOSING_SECONDS: Final = 20.0
"""How long a worker may take to end when there is nothing to do any more."""
QUICK_SECONDS: Final = 10.0
MOST_QUICK: Final = 3
"""So many ends on its own soon after the beginning mean that it can't work here."""
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0


class WorkerFailedError(XnagentError):
    """Worker processes can't be started, or end at once by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcesses:
    """Implements `dispatch.Workers`."""

    commands: Sequence[Sequence[str]]
    """The command line of each."""
    stop: BatchStop
    environ: Mapping[str, str]
    """What they are begun with."""
    closing_seconds: float = CLOSING_SECONDS
    running: set[anyio.abc.Process] = field(default_factory=set)

    async def work(self, closing: anyio.Event) -> None:
        """Keep as many processes as there are commands."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._hand_on)
            async with anyio.create_task_group() as workers:
                for command in self.commands:
                    workers.start_soon(self._keep, command, closing)
            group.cancel_scope.cancel()

    async def _hand_on(self) -> None:
        """What stops the batch stops the processes."""
        await self.stop.asked.wait()
        self._signal()
        await self.stop.asked_again.wait()
        self._signal()

    def _signal(self) -> None:
        for process in self.running:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM if self.stop.signal == "SIGTERM" else signal.SIGINT)

    async def _keep(self, command: Sequence[str], closing: anyio.Event) -> None:
        quick, pause = 0, FIRST_PAUSE_SECONDS
        while not closing.is_set() and not self.stop.asked.is_set():
            began = anyio.current_time()
            code = await self._one(command, closing)
            is_quick = anyio.current_time() - began < QUICK_SECONDS
            quick = quick + 1 if is_quick and code > 0 else 0
            if quick >= MOST_QUICK:
                raise WorkerFailedError(f"WORKER_FAILED: a worker process ends with {code} again and again; see above")
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS) if is_quick else FIRST_PAUSE_SECONDS
            with anyio.move_on_after(pause):
                await closing.wait()

    async def _one(self, command: Sequence[str], closing: anyio.Event) -> int:
        """One process to its end; its exit code."""
        process = await anyio.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=None,
            env=self.environ,
            start_new_session=True,
        )
        async with process:
            self.running.add(process)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._end_when_closing, process, closing)
                    await process.wait()
                    group.cancel_scope.cancel()
            finally:
                self.running.discard(process)
            return process.returncode or 0

    async def _end_when_closing(self, process: anyio.abc.Process, closing: anyio.Event) -> None:
        """Close its stdin, and make it end if that does not help."""
        await closing.wait()
        if process.stdin is not None:
            await process.stdin.aclose()
        await anyio.sleep(self.closing_seconds)
        with suppress(ProcessLookupError):
            process.kill()
