"""`xnagent worker`: does the jobs of batches that run elsewhere, on this machine or at a server."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from functools import partial

import anyio

from xnagent.app.host import Host
from xnagent.app.running import make_home
from xnagent.batch.stopping import BatchStop
from xnagent.batch.workers import OwnWorkers, end_with_stdin
from xnagent.cli.console import Console
from xnagent.cli.engines import is_remote, workers_engine
from xnagent.cli.hosting import acting_host_of
from xnagent.cli.run import start_logging
from xnagent.cli.session import hand_on_signals, outlast_signals
from xnagent.core.record import SIGNAL_EXIT_CODE
from xnagent.models.gate import Gates


def execute(arguments: Namespace, console: Console) -> int:
    """Work until a signal comes, or until the batch that began it is gone."""
    is_remote(arguments)
    start_logging(arguments, console)
    host = replace(acting_host_of(arguments), gates=gates_of(arguments))
    make_home(host)
    host.sessions.check()
    return anyio.run(partial(_work, host, arguments, console=console))


def gates_of(arguments: Namespace) -> Gates:
    """How many calls may be under way at once at one endpoint, and who else uses it."""
    return Gates(at_once=getattr(arguments, "calls_at_once", None), sharers=getattr(arguments, "sharers", 1))


async def _work(host: Host, arguments: Namespace, *, console: Console) -> int:
    stop = BatchStop()
    slots: int = getattr(arguments, "jobs_at_once", 1)
    is_child = getattr(arguments, "with_stdin", False)
    hands_back = is_remote(arguments) or not is_child
    async with workers_engine(arguments, host, console=console) as engine, anyio.create_task_group() as group:
        workers = OwnWorkers(host=host, engine=engine, stop=stop, slots=slots, hands_back=hands_back)
        await group.start(hand_on_signals, stop)
        if is_child:
            end_with_stdin()
        await workers.work(anyio.Event())
        group.cancel_scope.cancel()
    code = 0 if stop.signal is None else SIGNAL_EXIT_CODE[stop.signal]
    outlast_signals(code)
    return code
