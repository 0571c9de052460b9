"""`xnagent batch`: many sessions from one file."""

from __future__ import annotations

import importlib
import math
import os
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from xnagent.app.boxing import choose
from xnagent.app.host import Host
from xnagent.batch.assignment import Record
from xnagent.batch.dispatch import Batch, BatchEnd, BatchLimits
from xnagent.batch.jobs import Defaults, Job, read_jobs
from xnagent.batch.plan import Plan, make_plan
from xnagent.batch.polyglot import pass_rates, write_jobs
from xnagent.batch.results import Results, open_results
from xnagent.batch.stopping import BatchStop
from xnagent.batch.swebench import Predictions, by_name, job_fields, results_beside
from xnagent.cli.actions import within_actions
from xnagent.cli.console import Console
from xnagent.cli.dry_run import tell_batch
from xnagent.cli.engines import Crew, is_remote
from xnagent.cli.hosting import acting_host_of
from xnagent.cli.options import folder_of, settings_of
from xnagent.cli.run import start_logging
from xnagent.cli.session import hand_on_signals, outlast_signals
from xnagent.cli.tally import Display, PlainDisplay, Tally, told
from xnagent.cli.tracing import Trace, traced
from xnagent.cli.worker import gates_of
from xnagent.config import Settings
from xnagent.config.entry import Role, model_entry
from xnagent.config.load import with_settings
from xnagent.config.secrets import mask_for
from xnagent.config.sources import Setting
from xnagent.core.limits import Limits
from xnagent.errors import UsageError
from xnagent.export import github
from xnagent.inspect.plain import count, line, money

EXERCISES: Final = ".exercises"
"""Ends the name of the folder beside the results in which exercises have their repositories."""
LISTED: Final = 8
SUMMARIZED: Final = 200
ROLES: Final[tuple[Role, ...]] = ("planner", "worker")


def execute(arguments: Namespace, console: Console) -> int:
    """Check every line, then run those that have no result."""
    repository, host = folder_of(arguments), replace(acting_host_of(arguments), gates=gates_of(arguments))
    settings = settings_of(arguments, host, repository=repository)
    target, kind = Path(arguments.out), getattr(arguments, "format", "jobs")
    defaults = _defaults(arguments, repository, settings=settings)
    out = target if defaults.translate is None else results_beside(target)
    if getattr(arguments, "ephemeral", False):
        raise UsageError("USAGE: a batch keeps its sessions, so that it can go on; leave --ephemeral out")
    if Path(arguments.jobs).resolve() in {out.resolve(), target.resolve()}:
        raise UsageError("USAGE: --out names the file of jobs itself; choose another")
    is_remote(arguments)
    host.sessions.check()
    is_dry = getattr(arguments, "dry_run", False)
    source = Path(arguments.jobs)
    if kind == "polyglot":
        jobs = _exercises(
            source, host, defaults=defaults, place=None if is_dry else out.absolute().with_suffix(EXERCISES)
        )
    else:
        jobs = read_jobs(source, host, defaults=defaults)
    limits, may_retry = _limits(arguments, jobs), getattr(arguments, "retry_failed", False)
    if is_dry:
        whole = Limits(usd=limits.usd, tokens=limits.tokens)
        return tell_batch(host, jobs, out=out, limits=whole, may_retry=may_retry, console=console)
    console.mask = mask_for(host.environ, settings)
    start_logging(arguments, console)
    with ExitStack() as stack:
        results = stack.enter_context(open_results(out))
        predictions = None
        if target != out:
            predictions = stack.enter_context(Predictions(path=target, host=host, jobs=by_name(jobs)))
        plan = make_plan(jobs, results, may_retry=may_retry)
        console.say(choose(settings.sandbox, host.environ).told)
        crew = Crew(host=host, arguments=arguments, batch=results.seed)
        work = Work(host=host, jobs=jobs, plan=plan, results=results, limits=limits, crew=crew, predictions=predictions)
        work.has_languages = kind == "polyglot"
        return _work(work, console)


def _work(work: Work, console: Console) -> int:
    with within_actions(dict(os.environ), console) as actions, traced(dict(os.environ), console) as trace:
        work.trace = trace
        _introduce(work, console)
        work.results.remember({job.job: job.digest for job in work.jobs})
        end = anyio.run(_run, work, console)
        _tell(end, work, console=console)
        if actions is not None:
            told: Record = {**asdict(end), "exit_code": end.exit_code}
            actions.summarize(github.batch_summary(told, work.told))
            actions.output(github.batch_outputs(told))
        return end.exit_code


def _defaults(arguments: Namespace, repository: Path, *, settings: Settings) -> Defaults:
    """What lines do not say. Benchmarks have repositories of their own, so nothing is written to a checkout."""
    folder: str | None = getattr(arguments, "repos", None)
    kind = getattr(arguments, "format", "jobs")
    if folder is not None and kind != "swebench":
        raise UsageError("USAGE: --repos is for --format swebench")
    if kind == "jobs":
        return Defaults(repository=repository, settings=settings)
    if getattr(arguments, "apply", False):
        raise UsageError(f"USAGE: with --format {kind} nothing is written to a checkout; leave --apply out")
    untouched = with_settings(settings, [Setting(path=("apply",), value=False, origin=f"--format {kind}")])
    translate = job_fields(None if folder is None else Path(folder)) if kind == "swebench" else None
    return Defaults(repository=repository, settings=untouched, translate=translate)


def _exercises(folder: Path, host: Host, *, defaults: Defaults, place: Path | None) -> list[Job]:
    """A job for each exercise; its repository is in `place`, or, where nothing may be left behind, nowhere for long."""
    with ExitStack() as stack:
        if place is None:
            place = Path(stack.enter_context(TemporaryDirectory(prefix="xnagent-exercises-")))
        write = partial(write_jobs, folder, place, environ=host.environ, checks=defaults.settings.checks)
        without = [Setting(path=("checks",), value=[], origin="--format polyglot")]
        own = replace(defaults, repository=place, settings=with_settings(defaults.settings, without))
        return read_jobs(anyio.run(write), host, defaults=own)


def _limits(arguments: Namespace, jobs: Sequence[Job]) -> BatchLimits:
    """The limits of the whole batch. Raises UsageError where one can't be kept."""
    limits = BatchLimits(
        usd=getattr(arguments, "batch_usd", None),
        tokens=getattr(arguments, "batch_tokens", None),
        deadline_seconds=getattr(arguments, "batch_deadline", None),
    )
    for job in jobs if limits.usd is not None else ():
        for entry in (model_entry(job.settings, role) for role in ROLES):
            if entry.price is None:
                raise UsageError(
                    f"BATCH_USD: {job.job}: the price of {entry.name} is not known, so --batch-usd can't be kept; "
                    f'give it one ([models."{entry.name}".price]), or limit tokens with --batch-tokens'
                )
    return limits


def _introduce(work: Work, console: Console) -> None:
    jobs, plan, results = work.jobs, work.plan, work.results
    for problem in results.problems:
        console.warn(f"RESULTS_DAMAGED: {problem}")
    for problem in work.predictions.catch_up(results.path, results.lines) if work.predictions is not None else ():
        console.warn(problem)
    done = sum(job.job in results.done for job in jobs)
    console.say(f"{len(jobs)} jobs, {done} of them have a result already")
    notes = (
        ("JOBS_CHANGED", plan.changed, "the line is not what it was; begins anew, the last result counts"),
        ("JOBS_REMOVED", plan.removed, "known from before, and no line names it any more; its result stays"),
        ("JOBS_RETRIED", plan.retried, "did not complete; runs again in a new session, the last result counts"),
    )
    for code, names, what in notes:
        if names:
            more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
            console.say(f"{code}: {', '.join(names[:LISTED])}{more}: {what}")


@dataclass(slots=True, kw_only=True)
class Work:
    """What there is to do, and who is told of it."""

    host: Host
    jobs: Sequence[Job]
    plan: Plan
    results: Results
    limits: BatchLimits
    crew: Crew
    predictions: Predictions | None = None
    has_languages: bool = False
    """Ids of jobs begin with a language, whose share of passed ones is told."""
    trace: Trace | None = None
    told: list[Record] = field(default_factory=list)
    """The first jobs that came to an end, for a summary."""


async def _run(work: Work, console: Console) -> BatchEnd:
    stop = BatchStop()
    news, told_of = anyio.create_memory_object_stream[Record](math.inf)
    async with news, told_of, work.crew.ready(stop, console=console) as (engine, workers):
        batch = Batch(
            host=work.host,
            jobs=work.jobs,
            plan=work.plan,
            results=work.results,
            engine=engine,
            workers=workers,
            stop=stop,
            news=news,
            limits=work.limits,
        )
        async with anyio.create_task_group() as group:
            await group.start(hand_on_signals, stop)
            async with anyio.create_task_group() as inner:
                inner.start_soon(partial(_follow, told_of, work, console=console))
                end = await batch.run(work.crew.at_once + work.crew.processes)
            group.cancel_scope.cancel()
    outlast_signals(end.exit_code)
    return end


async def _follow(told_of: MemoryObjectReceiveStream[Record], work: Work, *, console: Console) -> None:
    done = len(work.jobs) - len(work.plan.todo)
    tally = Tally(total=len(work.jobs), done=done, began=time.monotonic())
    display = _display(console)
    display.show(tally, "")
    try:
        async with told_of:
            async for record in told_of:
                show = partial(_show, record, tally, display=display, console=console)
                await anyio.to_thread.run_sync(partial(_take, record, work, show=show, console=console))
    finally:
        display.close()


def _take(record: Record, work: Work, *, show: Callable[[], None], console: Console) -> None:
    show()
    if "problem" in record:
        return
    if len(work.told) < SUMMARIZED:
        work.told.append(record)
    if work.predictions is not None and (problem := work.predictions.add(record)) is not None:
        console.warn(problem)
    if work.trace is not None and record["session"]:
        work.trace.whole(work.host.place(str(record["session"])))


def _display(console: Console) -> Display:
    if console.is_terminal and console.verbosity == 0:
        return cast("Display", importlib.import_module("xnagent.cli.live").LiveDisplay())
    return PlainDisplay(console)


def _show(record: Record, tally: Tally, *, display: Display, console: Console) -> None:
    if "problem" in record:
        display.show(tally, line(f"{record['id']}: {record['problem']}", 300))
        return
    if console.output == "jsonl":
        console.record(record)
    tally.count(record)
    display.show(tally, told(record, tally, now=time.monotonic()))


def _tell(end: BatchEnd, work: Work, *, console: Console) -> None:
    left = f", {end.unfinished} unfinished: run the same command again to go on" if end.unfinished else ""
    if end.stopped_by is not None:
        option = f"--batch-{end.stopped_by}"
        left += f" ({option} is used up; give it more)" if end.stopped_by != "deadline" else f" ({option} came)"
    console.say(f"{end.completed} of {end.total} jobs completed, {end.failed} did not{left}")
    console.say(f"{money(end.cost_usd)}, {count(end.tokens)} tokens in all")
    rates = pass_rates(work.results, [job.job for job in work.jobs]) if work.has_languages else {}
    for language, (passed, total) in rates.items():
        console.say(f"{language}: {passed} of {total} passed ({passed / total:.1%})")
    if console.output != "text":
        more = (
            {"languages": {name: {"passed": one[0], "total": one[1]} for name, one in rates.items()}} if rates else {}
        )
        console.record({"type": "batch", **asdict(end), "exit_code": end.exit_code, **more})
