"""`--dry-run`: what a command is going to use, without a request, a file or a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xnagent.app.host import Host
from xnagent.app.prospects import session_prospects
from xnagent.batch.jobs import Job
from xnagent.batch.plan import make_plan
from xnagent.batch.results import peek_results
from xnagent.cli.console import Console
from xnagent.config import Settings
from xnagent.core.forecast import Forecast, add_forecasts
from xnagent.core.limits import Limits
from xnagent.core.text import Json
from xnagent.inspect.foreseen import forecast_fields, forecast_table, held_against
from xnagent.inspect.plain import line, money, table

SHOWN_JOBS = 20


def tell_session(host: Host, settings: Settings, *, objective: str, console: Console) -> int:
    """What a session with this objective is going to use."""
    forecast = session_prospects(host, settings).session(objective)
    _tell(forecast, settings.limits.to_limits(), console=console, more={"session": None})
    return 0


def tell_batch(host: Host, jobs: Sequence[Job], *, out: Path, limits: Limits, may_retry: bool, console: Console) -> int:
    """What the jobs that have no result yet are going to use: the sum of their sessions."""
    plan = make_plan(jobs, peek_results(out), may_retry=may_retry)
    found = {job.job: session_prospects(host, job.settings).session(job.objective) for job in plan.todo}
    total = add_forecasts(found.values())
    listed: list[Json] = [{"id": job, **forecast_fields(forecast)} for job, forecast in found.items()]
    if console.output == "text":
        console.answer(f"{len(found)} of {len(jobs)} jobs to do\n{_jobs_table(found)}\n\nall of them")
    _tell(total, limits, console=console, more={"total": len(jobs), "todo": len(found), "jobs": listed})
    return 0


def _jobs_table(found: dict[str, Forecast]) -> str:
    rows = [
        (line(job, 40), money(one.low.cost_usd), money(one.likely.cost_usd), money(one.high.cost_usd))
        for job, one in list(found.items())[:SHOWN_JOBS]
    ]
    more = f"\n… and {len(found) - SHOWN_JOBS} more" if len(found) > SHOWN_JOBS else ""
    return table(("job", "low", "likely", "high"), rows) + more if rows else ""


def _tell(forecast: Forecast, limits: Limits, *, console: Console, more: dict[str, Json]) -> None:
    if console.output == "text":
        console.answer("\n".join(part for part in (forecast_table(forecast), held_against(forecast, limits)) if part))
        return
    given: dict[str, Json] = {"usd": limits.usd, "tokens": limits.tokens}
    console.record({"type": "forecast", **more, "forecast": forecast_fields(forecast), "limits": given})
