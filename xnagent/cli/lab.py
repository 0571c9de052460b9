"""`xnagent lab`: what recorded work costs under other strategies, caches and prices. No model is asked."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from xnagent.app.host import Host
from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.cli.looking import LAB_PROVIDERS
from xnagent.cli.options import settings_of
from xnagent.config import Settings
from xnagent.config.entry import catalog_of, model_entry
from xnagent.errors import UsageError
from xnagent.inspect.plain import count, line, money, table
from xnagent.lab.caches import Provider, uncached, units_of
from xnagent.lab.history import Terms
from xnagent.lab.logs import run_of
from xnagent.lab.page import page
from xnagent.lab.reading import read_runs
from xnagent.lab.report import RECORDED, Loss, Plan, Replayed, Report, document, losses, replay
from xnagent.lab.strategies import STRATEGIES
from xnagent.lab.table import COLUMNS, cells, percent
from xnagent.lab.threads import Run

PRICED_AS: Final[Mapping[str, str]] = {
    "deepseek": "deepseek-flash",
    "openai": "gpt-5",
    "anthropic": "claude-sonnet-5-5",
    "no-cache": "qwen/qwen3-coder-plus",
}
"""Whose prices stand for each provider, unless `--price` names another model."""
WINDOW_TOKENS: Final = 200_000
"""That of most recorded runs."""
OUTPUT_TOKENS: Final = 32_000
SHOWN_LOSSES: Final = 20


ENDINGS: Final = (".json", ".jsonl", ".gz")


def execute(arguments: Namespace, console: Console) -> int:
    """Replay and show."""
    host = host_of(arguments)
    settings = settings_of(arguments, host, repository=None)
    plan = Plan(
        strategies=tuple(getattr(arguments, "strategy", None) or STRATEGIES), terms=all_terms(arguments, settings)
    )
    is_live = console.is_terminal and console.verbosity == 0

    def tell(run: Replayed) -> None:
        if is_live:
            console.draw(line(f"{run.name}: {count(run.steps)} steps"))

    report = replay(_runs(arguments, host), plan, tell=tell)
    if is_live:
        console.draw("")
    if not report.runs:
        raise UsageError("RUN_EMPTY: no model call is in what was given; there is nothing to replay")
    file: str | None = getattr(arguments, "out", None)
    if file is not None:
        _write(Path(file), page(report))
    if console.output == "text":
        console.answer(report_text(report))
    else:
        console.record(document(report))
    return 0


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"OUT_UNWRITABLE: {file}: {error.strerror or error}") from error


def _runs(arguments: Namespace, host: Host) -> Iterator[Run]:
    limit: int = getattr(arguments, "limit", 0)
    given: Sequence[str] = getattr(arguments, "runs", None) or [row.session for row in host.sessions.rows()]
    if not given:
        raise UsageError("RUN_MISSING: no session is in the store; name a file with recorded runs")
    left = limit or math.inf
    for one in given:
        for run in _runs_of(one, host):
            if left <= 0:
                return
            left -= 1
            yield run


def _runs_of(given: str, host: Host) -> Iterator[Run]:
    path = Path(given)
    if path.exists():
        yield from read_runs(path)
    elif path.name.endswith(ENDINGS) or path.name != given:
        raise UsageError(f"RUN_UNREADABLE: {given}: there is no such file")
    else:
        place = host.place(given)
        yield run_of(place.events(), name=place.read_session())


def all_terms(arguments: Namespace, settings: Settings) -> tuple[Terms, ...]:
    """The conditions at each provider that is asked for, with its prices."""
    chosen = _prices(arguments)
    return tuple(
        _terms(name, chosen[name], arguments=arguments, settings=settings)
        for name in getattr(arguments, "provider", None) or LAB_PROVIDERS
    )


def _prices(arguments: Namespace) -> dict[str, str]:
    """By provider: `MODEL` for all of them, `PROVIDER=MODEL` for one."""
    chosen = dict(PRICED_AS)
    for given in getattr(arguments, "price", []):
        name, _, model = given.partition("=")
        if name in chosen and model:
            chosen[name] = model
        else:
            chosen = dict.fromkeys(chosen, given)
    return chosen


def _terms(name: str, model: str, *, arguments: Namespace, settings: Settings) -> Terms:
    catalog = catalog_of(settings)
    if model not in catalog:
        raise UsageError(f'PRICE_UNKNOWN: the model "{model}" is not in the table; `xnagent models` lists known ones')
    entry = model_entry(Settings(), "planner", name=model, catalog=catalog)
    if entry.price is None:
        raise UsageError(f'PRICE_UNKNOWN: the model "{model}" has no price in the table; name another with --price')
    units, rule = units_of(name, entry.cache)
    window: int = getattr(arguments, "window", 0) or min(WINDOW_TOKENS, entry.window_tokens)
    reread_share: float | None = getattr(arguments, "reread_share", None)
    provider = Provider(
        name=name,
        model=model,
        units=units,
        rule=rule,
        price=uncached(entry.price) if units == "none" else entry.price,
    )
    terms = Terms(
        provider=provider,
        window_tokens=window,
        max_output_tokens=min(entry.max_output_tokens, OUTPUT_TOKENS, window // 4),
        policy=settings.spine.to_policy(),
    )
    return terms if reread_share is None else replace(terms, reread_share=reread_share)


def report_text(report: Report) -> str:
    """A table for each provider, and where the product's way is not the cheapest."""
    steps = sum(run.steps for run in report.runs)
    threads = sum(run.threads for run in report.runs)
    parts = [f"{count(len(report.runs))} runs, {count(threads)} agents, {count(steps)} steps"]
    parts += [_provider_text(report, terms) for terms in report.plan.terms]
    parts.append(_losses_text(losses(report)))
    return "\n\n".join(part for part in parts if part)


def _provider_text(report: Report, terms: Terms) -> str:
    provider = terms.provider
    floor = report.floor(provider.name)
    rows = [cells(strategy, report.sum(provider.name, strategy), floor=floor) for strategy in report.plan.strategies]
    recorded = report.sum(provider.name, RECORDED)
    if recorded.steps:
        rows.append(cells(RECORDED, recorded, floor=0.0))
    title = f"{provider.name}, priced as {provider.model}, window {count(terms.window_tokens)}, floor {money(floor)}"
    return f"{title}\n{table(COLUMNS, rows)}"


def _losses_text(found: Iterable[Loss]) -> str:
    """Where another strategy is cheaper: the largest first."""
    ordered = sorted(found, key=lambda loss: -loss.usd)
    if not ordered:
        return ""
    rows = [
        (
            loss.provider,
            line(loss.run, 40),
            count(loss.steps),
            loss.strategy,
            money(loss.usd),
            percent(loss.share),
            loss.why,
        )
        for loss in ordered[:SHOWN_LOSSES]
    ]
    more = (
        f"\n({count(len(ordered) - SHOWN_LOSSES)} more; --output json lists all)" if len(ordered) > SHOWN_LOSSES else ""
    )
    columns = ("provider", "run", "steps", "cheaper", "by", "share", "why")
    return f"Not the cheapest in {count(len(ordered))} cases\n{table(columns, rows)}{more}"
