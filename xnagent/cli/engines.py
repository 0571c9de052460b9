"""Which engine a batch or a worker uses, and who does the work."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from xnagent.app.host import Host
from xnagent.batch.dispatch import Workers
from xnagent.batch.engine import JobEngine
from xnagent.batch.local import LocalEngine
from xnagent.batch.processes import WorkerProcesses
from xnagent.batch.queue import Queue, Terms, queue_path, remove
from xnagent.batch.remote import (
    TASK_QUEUE,
    Remote,
    WorkersElsewhere,
    release_when_asked_again,
    temporal_engine,
)
from xnagent.batch.stopping import BatchStop
from xnagent.batch.workers import OwnWorkers
from xnagent.cli.console import Console
from xnagent.cli.hosting import worker_environ
from xnagent.errors import UsageError

SERVER_OPTIONS = ("address", "namespace", "task_queue", "starts_per_second")
"""What only an engine with a server has."""


def is_remote(arguments: Namespace) -> bool:
    """Whether the jobs go over a server. Raises UsageError for options that the engine does not have."""
    if getattr(arguments, "engine", "local") == "temporal":
        if hasattr(arguments, "queue"):
            raise UsageError("USAGE: --queue is for --engine local; with temporal, choose --address and --task-queue")
        return True
    for option in SERVER_OPTIONS:
        if hasattr(arguments, option):
            raise UsageError(f"USAGE: --{option.replace('_', '-')} is for --engine temporal")
    return False


def terms_of(arguments: Namespace) -> Terms:
    """How long a worker may be silent."""
    seconds: float | None = getattr(arguments, "lease_seconds", None)
    return Terms() if seconds is None else Terms(lease_seconds=seconds)


def remote_of(arguments: Namespace, host: Host, *, batch: str) -> Remote:
    """The server that the arguments and the environment name."""
    return Remote(
        environ=host.environ,
        address=getattr(arguments, "address", None),
        namespace=getattr(arguments, "namespace", None),
        task_queue=getattr(arguments, "task_queue", TASK_QUEUE),
        batch=batch,
        terms=terms_of(arguments),
        starts_per_second=getattr(arguments, "starts_per_second", None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Who does a batch's work."""

    host: Host
    arguments: Namespace
    batch: str
    """What tells the batch from others."""

    @property
    def at_once(self) -> int:
        """Sessions at the same time, in all processes."""
        return int(getattr(self.arguments, "jobs_at_once", self.processes or 1))

    @property
    def processes(self) -> int:
        """Worker processes; 0: the batch's own does the work, or workers elsewhere."""
        asked = int(getattr(self.arguments, "processes", 0))
        return min(asked, int(getattr(self.arguments, "jobs_at_once", asked)))

    @asynccontextmanager
    async def ready(self, stop: BatchStop, *, console: Console) -> AsyncIterator[tuple[JobEngine, Workers]]:
        """An engine, and who works for it. Raises UsageError if the engine's server can't be reached."""
        if not is_remote(self.arguments):
            queue = Queue(path=queue_path(self.host.home, self.batch), terms=terms_of(self.arguments))
            await anyio.to_thread.run_sync(queue.create)
            if console.verbosity > 0:
                console.say(f"queue {queue.path}")
            engine = LocalEngine(queue=queue, clock=self.host.clock)
            try:
                yield engine, self._local_workers(engine, stop=stop)
            finally:
                remove(queue.path)
            return
        async with temporal_engine(remote_of(self.arguments, self.host, batch=self.batch)) as remote:
            for note in remote.notes:
                console.say(note)
            if not self.processes:
                queue_name = getattr(self.arguments, "task_queue", TASK_QUEUE)
                console.say(f"jobs wait for workers: xnagent worker --engine temporal --task-queue {queue_name}")
            async with anyio.create_task_group() as group:
                group.start_soon(release_when_asked_again, remote, stop)
                yield remote, self._remote_workers(stop)
                group.cancel_scope.cancel()

    def _local_workers(self, engine: LocalEngine, *, stop: BatchStop) -> Workers:
        if not self.processes:
            return OwnWorkers(host=self.host, engine=engine, stop=stop, slots=self.at_once)
        return self._workers(["--engine", "local", "--queue", str(engine.queue.path.absolute())], stop=stop)

    def _remote_workers(self, stop: BatchStop) -> Workers:
        if not self.processes:
            return WorkersElsewhere()
        words = ["--engine", "temporal"]
        for option in SERVER_OPTIONS:
            if (value := getattr(self.arguments, option, None)) is not None:
                words += [f"--{option.replace('_', '-')}", str(value)]
        return self._workers(words, stop=stop)

    def _workers(self, engine: Sequence[str], *, stop: BatchStop) -> Workers:
        count, all_slots = self.processes, self.at_once
        shares = [all_slots // count + (number < all_slots % count) for number in range(count)]
        commands = [self._command(engine, slots=slots) for slots in shares]
        return WorkerProcesses(commands=commands, stop=stop, environ=worker_environ(self.arguments, self.host))

    def _command(self, engine: Sequence[str], *, slots: int) -> list[str]:
        """The command line of a worker process."""
        command = [sys.executable, "-m", "xnagent", "worker", *engine]
        command += ["--home", str(self.host.home.absolute()), "-j", str(slots), "--with-stdin"]
        command += ["--sharers", str(self.processes), "--lease-seconds", str(terms_of(self.arguments).lease_seconds)]
        if (calls := self.host.gates.at_once) is not None:
            command += ["--calls-at-once", str(max(calls // self.processes, 1))]
        if (log := getattr(self.arguments, "log_file", None)) is not None:
            command += ["--log-file", str(log)]
        return command


@asynccontextmanager
async def workers_engine(arguments: Namespace, host: Host, *, console: Console) -> AsyncIterator[JobEngine]:
    """The engine that a worker works for. Raises UsageError if there is none."""
    if is_remote(arguments):
        async with temporal_engine(remote_of(arguments, host, batch="worker")) as engine:
            for note in engine.notes:
                console.say(note)
            yield engine
        return
    yield await anyio.to_thread.run_sync(_existing_queue, arguments, host)


def _existing_queue(arguments: Namespace, host: Host) -> JobEngine:
    if not hasattr(arguments, "queue"):
        raise UsageError("USAGE: which jobs? Name the --queue of a batch that runs, or a server with --engine temporal")
    queue = Path(arguments.queue)
    if not queue.is_file():
        raise UsageError(f"NO_QUEUE: {queue}: no batch has its queue there; a running batch tells where it is with -v")
    return LocalEngine(queue=Queue(path=queue, terms=terms_of(arguments)), clock=host.clock)
