"""`xnagent worker`: does the jobs of a batch that runs elsewhere on this machine."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio

from xnagent.app.host import Host
from xnagent.batch.local import LocalEngine
from xnagent.batch.queue import Queue, Terms
from xnagent.batch.stopping import BatchStop
from xnagent.batch.workers import OwnWorkers, end_with_stdin
from xnagent.cli.console import Console
from xnagent.cli.options import host_of
from xnagent.cli.run import start_logging
from xnagent.cli.session import hand_on_signals, outlast_signals
from xnagent.core.record import SIGNAL_EXIT_CODE
from xnagent.errors import UsageError
from xnagent.models.gate import Gates


def execute(arguments: Namespace, console: Console) -> int:
    """Work until a signal comes, or until the batch that began it is gone."""
    queue = Path(arguments.queue)
    if not queue.is_file():
        raise UsageError(f"NO_QUEUE: {queue}: no batch has its queue there; a running batch tells where it is with -v")
    start_logging(arguments, console)
    host = replace(host_of(arguments), gates=gates_of(arguments))
    engine = LocalEngine(queue=Queue(path=queue, terms=terms_of(arguments)), clock=host.clock)
    return anyio.run(partial(_work, host, engine, arguments=arguments))


def terms_of(arguments: Namespace) -> Terms:
    """How long a worker may be silent."""
    seconds: float | None = getattr(arguments, "lease_seconds", None)
    return Terms() if seconds is None else Terms(lease_seconds=seconds)


def gates_of(arguments: Namespace) -> Gates:
    """How many calls may be under way at once at one endpoint, and who else uses it."""
    return Gates(at_once=getattr(arguments, "calls_at_once", None), sharers=getattr(arguments, "sharers", 1))


async def _work(host: Host, engine: LocalEngine, *, arguments: Namespace) -> int:
    stop = BatchStop()
    workers = OwnWorkers(host=host, engine=engine, stop=stop, slots=getattr(arguments, "jobs_at_once", 1))
    async with anyio.create_task_group() as group:
        await group.start(hand_on_signals, stop)
        if getattr(arguments, "with_stdin", False):
            end_with_stdin()
        await workers.work(anyio.Event())
        group.cancel_scope.cancel()
    code = 0 if stop.signal is None else SIGNAL_EXIT_CODE[stop.signal]
    outlast_signals(code)
    return code
