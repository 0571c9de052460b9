"""`xnagent batch`: many sessions from one file."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final, cast

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from xnagent.app.host import Host
from xnagent.batch.dispatch import Batch, BatchEnd, BatchStop, Record
from xnagent.batch.jobs import Defaults, Job, read_jobs
from xnagent.batch.results import Results, open_results
from xnagent.cli.console import Console
from xnagent.cli.options import boxing, folder_of, host_of, settings_of
from xnagent.cli.run import start_logging
from xnagent.cli.session import hand_on_signals, outlast_signals
from xnagent.errors import UsageError
from xnagent.inspect.plain import line, money

LINE_WIDTH: Final = 300


def execute(arguments: Namespace, console: Console) -> int:
    """Check every line, then run those that have no result."""
    repository, host = folder_of(arguments), host_of(arguments)
    settings = settings_of(arguments, host, repository=repository)
    out = Path(arguments.out)
    if getattr(arguments, "ephemeral", False):
        raise UsageError("USAGE: a batch keeps its sessions, so that it can go on; leave --ephemeral out")
    if out.resolve() == Path(arguments.jobs).resolve():
        raise UsageError("USAGE: --out names the file of jobs itself; choose another")
    host.sessions.check()
    jobs = read_jobs(Path(arguments.jobs), host, defaults=Defaults(repository=repository, settings=settings))
    start_logging(arguments, console)
    with open_results(out) as results:
        for problem in results.problems:
            console.warn(f"RESULTS_DAMAGED: {problem}")
        done = sum(job.job in results.done for job in jobs)
        console.say(f"{boxing(settings.sandbox.mode)}\n{len(jobs)} jobs, {done} of them have a result already")
        work = Work(host=host, jobs=jobs, results=results, at_once=getattr(arguments, "jobs_at_once", 1))
        end = anyio.run(_run, work, console)
    _tell(end, console)
    return end.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What there is to do."""

    host: Host
    jobs: Sequence[Job]
    results: Results
    at_once: int


async def _run(work: Work, console: Console) -> BatchEnd:
    stop = BatchStop()
    news, told = anyio.create_memory_object_stream[Record](math.inf)
    batch = Batch(host=work.host, jobs=work.jobs, results=work.results, stop=stop, news=news)
    async with anyio.create_task_group() as group:
        await group.start(hand_on_signals, stop)
        async with anyio.create_task_group() as inner:
            inner.start_soon(partial(_follow, told, console=console, total=len(work.jobs)))
            end = await batch.run(work.at_once)
        group.cancel_scope.cancel()
    outlast_signals(end.exit_code)
    return end


async def _follow(told: MemoryObjectReceiveStream[Record], *, console: Console, total: int) -> None:
    count = 0
    async with told:
        async for record in told:
            count += "problem" not in record
            await anyio.to_thread.run_sync(partial(_show, record, f"[{count}/{total}]", console=console))


def _show(record: Record, place: str, *, console: Console) -> None:
    if "problem" in record:
        console.warn(line(f"{record['id']}: not run: {record['problem']}", LINE_WIDTH))
        return
    if console.output == "jsonl":
        console.record(record)
    error = cast("dict[str, str] | None", record["error"])
    usage = cast("dict[str, float | None]", record["usage"])
    why = f": {error['message']}" if error else ""
    console.say(line(f"{place} {record['id']}: {record['outcome']}, {money(usage['cost_usd'])}{why}", LINE_WIDTH))


def _tell(end: BatchEnd, console: Console) -> None:
    left = f", {end.unfinished} unfinished: run the same command again to go on" if end.unfinished else ""
    console.say(f"{end.completed} of {end.total} jobs completed, {end.failed} did not{left}")
    if console.output != "text":
        console.record({"type": "batch", **asdict(end), "exit_code": end.exit_code})
