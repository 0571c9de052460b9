"""All runs under all strategies and providers, and what comes out of it as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from xnagent.core.text import Json
from xnagent.lab.caches import Provider
from xnagent.lab.floor import costs_of, floor_of, workload_of
from xnagent.lab.history import Terms
from xnagent.lab.strategies import OURS, STRATEGIES
from xnagent.lab.tally import Bill, Meter, Tally, total
from xnagent.lab.threads import Recorded, Run, Thread
from xnagent.lab.work import Work, work_of

RECORDED = "recorded"
"""The name of what really was sent, at the provider's prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be compared."""

    strategies: Sequence[str]
    terms: Sequence[Terms]
    """One for each provider."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """One run, replayed."""

    name: str
    client: str
    steps: int
    threads: int
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    """By provider and strategy."""
    floors: dict[str, float] = field(default_factory=dict)
    """By provider: the least that the work can cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How long the requests of one thread are under each strategy."""

    thread: str
    provider: str
    sizes: Mapping[str, Sequence[int]]
    """By strategy: input tokens of each request."""


@dataclass(slots=True, kw_only=True)
class Report:
    """All runs, replayed."""

    plan: Plan
    runs: list[Replayed] = field(default_factory=list)
    longest: Thread | None = None
    """The thread with the most steps."""

    @property
    def providers(self) -> list[Provider]:
        """In the order asked for."""
        return [terms.provider for terms in self.plan.terms]

    def sum(self, provider: str, strategy: str) -> Tally:
        """Over all runs."""
        return total(run.tallies[provider, strategy] for run in self.runs if (provider, strategy) in run.tallies)

    def floor(self, provider: str) -> float:
        """Over all runs."""
        return sum(run.floors[provider] for run in self.runs)


def replay(runs: Iterable[Run], plan: Plan, *, tell: Callable[[Replayed], None] | None = None) -> Report:
    """Replay all runs; `tell` hears of each one when it is done."""
    report = Report(plan=plan)
    for run in runs:
        if run.threads:
            report.runs.append(_replayed(run, plan))
            report.longest = max((*run.threads, report.longest or run.threads[0]), key=lambda one: len(one.steps))
        if tell is not None and run.threads:
            tell(report.runs[-1])
    return report


def curve(report: Report) -> Curve | None:
    """The requests of the longest thread, at the first provider."""
    if report.longest is None or not report.plan.terms:
        return None
    work, terms = work_of(report.longest), report.plan.terms[0]
    sizes = {
        name: [request.total for request in STRATEGIES[name](work, terms) if request.chain == "main"]
        for name in report.plan.strategies
    }
    return Curve(thread=report.longest.name, provider=terms.provider.name, sizes=sizes)


def _replayed(run: Run, plan: Plan) -> Replayed:
    works = [work_of(thread) for thread in run.threads]
    done = Replayed(name=run.name, client=run.client, steps=run.steps, threads=len(works))
    for terms in plan.terms:
        name = terms.provider.name
        floors = (floor_of(workload_of(work, terms, is_bare=True), costs_of(terms)) for work in works)
        done.floors[name] = sum(floor.usd for floor in floors if isfinite(floor.usd))
        for strategy in plan.strategies:
            done.tallies[name, strategy] = total(played(work, strategy, terms=terms) for work in works)
        recorded = _recorded(run.threads, terms.provider)
        if recorded is not None:
            done.tallies[name, RECORDED] = recorded
    return done


def played(work: Work, strategy: str, *, terms: Terms) -> Tally:
    """One thread under one strategy."""
    return Meter(terms.provider).play(STRATEGIES[strategy](work, terms), steps=len(work.turns))


def _recorded(threads: Sequence[Thread], provider: Provider) -> Tally | None:
    """What really was sent, if the provider reported it for every step."""
    steps = [step for thread in threads for step in thread.steps]
    known = [(step.recorded, step.output_tokens) for step in steps if step.recorded is not None]
    if not known or len(known) < len(steps):
        return None
    bill, tally = Bill(provider.price), Tally(steps=len(steps))
    for recorded, output in known:
        _add_recorded(tally, bill, recorded=recorded, output=output)
    tally.usd, tally.uncached_usd = bill.usd, bill.uncached_usd
    return tally


def _add_recorded(tally: Tally, bill: Bill, *, recorded: Recorded, output: int) -> None:
    long = recorded.written_long
    bill.add(recorded.prompt, cached=recorded.cached, written=recorded.written, long=long, output=output)
    tally.input += recorded.prompt
    tally.cached += recorded.cached
    tally.written += recorded.written
    tally.written_long += long
    tally.output += output
    tally.peak = max(tally.peak, recorded.prompt)


def document(report: Report) -> dict[str, Json]:
    """The report as JSON."""
    providers: list[Json] = [
        {"name": one.name, "model": one.model, "cache": one.units, "window_tokens": terms.window_tokens}
        for terms in report.plan.terms
        for one in [terms.provider]
    ]
    totals: list[Json] = [
        _row(report.sum(provider.name, strategy), provider=provider.name, strategy=strategy, floor=floor)
        for provider in report.providers
        for floor in [report.floor(provider.name)]
        for strategy in [*report.plan.strategies, RECORDED]
    ]
    runs: list[Json] = [_run(run) for run in report.runs]
    return {"type": "lab", "providers": providers, "totals": totals, "runs": runs, "losses": _losses(report)}


def _run(run: Replayed) -> dict[str, Json]:
    results: list[Json] = [
        _row(tally, provider=provider, strategy=strategy, floor=run.floors[provider])
        for (provider, strategy), tally in run.tallies.items()
    ]
    return {
        "run": run.name,
        "client": run.client,
        "steps": run.steps,
        "threads": run.threads,
        "results": results,
    }


def _row(tally: Tally, *, provider: str, strategy: str, floor: float) -> dict[str, Json]:
    is_whole = not tally.unfinished and strategy != RECORDED
    return {
        "provider": provider,
        "strategy": strategy,
        "steps": tally.steps,
        "unfinished_steps": tally.unfinished,
        "input_tokens": tally.input,
        "cached_tokens": tally.cached,
        "written_tokens": tally.written,
        "written_long_tokens": tally.written_long,
        "output_tokens": tally.output,
        "extra_calls": tally.extra_calls,
        "rebases": tally.lineages,
        "peak_tokens": tally.peak,
        "repeated_tokens": tally.repeated,
        "cost_usd": tally.usd,
        "uncached_usd": tally.uncached_usd,
        "share_of_uncached": tally.share,
        "reuse": tally.reuse,
        "lost_changed_tokens": tally.lost_changed,
        "lost_lifetime_tokens": tally.lost_lifetime,
        "lost_rounding_tokens": tally.lost_rounding,
        "floor_usd": floor,
        "to_floor": tally.usd / floor if floor and is_whole else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A run in which another strategy is cheaper than the product's."""

    provider: str
    run: str
    steps: int
    strategy: str
    usd: float
    """What it costs less."""
    share: float
    """That as a share of what the product's costs."""
    why: str


def losses(report: Report) -> list[Loss]:
    """The runs in which the product's way is not the cheapest one that does all the work, and why."""
    found = (
        _loss(run, provider.name, strategies=report.plan.strategies)
        for provider in report.providers
        for run in report.runs
    )
    return [loss for loss in found if loss is not None]


def _loss(run: Replayed, provider: str, *, strategies: Iterable[str]) -> Loss | None:
    ours = run.tallies.get((provider, OURS))
    others = [name for name in strategies if not name.startswith(OURS) and not run.tallies[provider, name].unfinished]
    if ours is None or not others:
        return None
    best = min(others, key=lambda name: run.tallies[provider, name].usd)
    other = run.tallies[provider, best]
    if other.usd >= ours.usd:
        return None
    saved = ours.usd - other.usd
    why = _why(ours, other)
    return Loss(
        provider=provider, run=run.name, steps=run.steps, strategy=best, usd=saved, share=saved / ours.usd, why=why
    )


def _why(ours: Tally, other: Tally) -> str:
    if not ours.lineages:
        return "no rebase was due, so baseline, deltas and notes were only added"
    if ours.input >= other.input:
        return "its rebases freed less than deltas, notes and reading again added"
    if ours.extra_calls > other.extra_calls:
        return "fewer tokens, but what rebases wrote and what was read again cost more"
    return "fewer tokens, but what its rebases wrote cost more than the reading that they saved"


def _losses(report: Report) -> list[Json]:
    return [
        {
            "provider": loss.provider,
            "run": loss.run,
            "steps": loss.steps,
            "strategy": loss.strategy,
            "cheaper_usd": loss.usd,
            "cheaper_share": loss.share,
            "why": loss.why,
        }
        for loss in losses(report)
    ]
