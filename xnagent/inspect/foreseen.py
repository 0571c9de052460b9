"""Forecasts for people and scripts, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import cast

from xnagent.core.forecast import AgentUse, Amount, Forecast, error_share, total_use
from xnagent.core.ids import agent_of
from xnagent.core.limits import Limits
from xnagent.core.state import SessionState
from xnagent.core.text import Json
from xnagent.inspect.plain import UNKNOWN, count, money, table

TITLES = ("", "requests", "input", "cached", "written", "output", "price")


def forecast_fields(forecast: Forecast) -> dict[str, Json]:
    """As an object: `low`, `likely`, `high`, each with its tokens and its money, and `samples`."""
    return cast("dict[str, Json]", asdict(forecast))


def forecast_table(forecast: Forecast) -> str:
    """As a table of three rows, and what it is based on."""
    ends = (("low", forecast.low), ("likely", forecast.likely), ("high", forecast.high))
    based = f"from {forecast.samples} agents seen" if forecast.samples else "assumed: nothing like it was seen yet"
    return f"{table(TITLES, [(name, *_cells(amount)) for name, amount in ends])}\n{based}"


def _cells(amount: Amount) -> Iterable[str]:
    return (
        count(amount.requests),
        count(amount.input_tokens),
        count(amount.cached_tokens),
        count(amount.written_tokens),
        count(amount.output_tokens),
        money(amount.cost_usd),
    )


def held_against(forecast: Forecast, limits: Limits) -> str:
    """How a forecast stands to the limits of money and tokens; empty without one."""
    parts = []
    if limits.usd is not None:
        ends = (forecast.low.cost_usd, forecast.likely.cost_usd, forecast.high.cost_usd)
        parts.append(f"limit {money(limits.usd)}: {_standing(ends, limits.usd)}")
    if limits.tokens is not None:
        sizes = (forecast.low.tokens, forecast.likely.tokens, forecast.high.tokens)
        parts.append(f"limit {count(limits.tokens)} tokens: {_standing(sizes, limits.tokens)}")
    return "; ".join(parts)


def _standing(ends: tuple[float | None, float | None, float | None], limit: float) -> str:
    low, likely, high = ends
    if low is None or likely is None or high is None:
        return "the price is not known"
    if low > limit:
        return "not enough even if all goes well"
    if likely > limit:
        return "likely not enough"
    return "may not be enough" if high > limit else "enough"


def outcome_fields(forecast: Forecast | None, use: AgentUse) -> dict[str, Json]:
    """A forecast beside what was used: `error_share` is 0.1 where a tenth more was used than was likely."""
    if forecast is None:
        return {"forecast": None, "error_share": None, "is_within": None}
    error = error_share(forecast, use)
    return {
        "forecast": forecast_fields(forecast),
        "error_share": None if error is None else round(error, 4),
        "is_within": _is_within(forecast, use),
    }


def _is_within(forecast: Forecast, use: AgentUse) -> bool:
    """Whether what was used lies between the low and the high end: in money, else in tokens."""
    low, high, used = forecast.low.cost_usd, forecast.high.cost_usd, use.cost_usd
    if low is None or high is None or used is None:
        return forecast.low.tokens <= use.input_tokens + use.output_tokens <= forecast.high.tokens
    return low <= used <= high


def session_outcome(state: SessionState) -> dict[str, Json]:
    """What the session was expected to use and what it used, and the same for each of its runs."""
    started = state.started
    used = total_use(state.uses)
    runs: list[Json] = [
        {"run": run.run, **_used(use), **outcome_fields(run.forecast, use)}
        for run in state.board.runs.values()
        if (use := state.uses.get(agent_of(run.run))) is not None
    ]
    return {**_used(used), **outcome_fields(None if started is None else started.forecast, used), "runs": runs}


def _used(use: AgentUse) -> dict[str, Json]:
    return {"tokens": use.input_tokens + use.output_tokens, "cost_usd": use.cost_usd}


def outcome_line(state: SessionState) -> str:
    """The session's forecast and what became of it, in one line; empty if there was none."""
    forecast = None if state.started is None else state.started.forecast
    used = total_use(state.uses)
    return "" if forecast is None or not used.steps else f"forecast: {ends_text(forecast)}; {used_text(forecast, used)}"


def ends_text(forecast: Forecast) -> str:
    """`$0.0100 ($0.0020 to $0.0900)`, or tokens where no price is known."""
    low, likely, high = forecast.low, forecast.likely, forecast.high
    if likely.cost_usd is None:
        return f"{count(likely.tokens)} tokens ({count(low.tokens)} to {count(high.tokens)})"
    return f"{money(likely.cost_usd)} ({money(low.cost_usd)} to {money(high.cost_usd)})"


def used_text(forecast: Forecast, use: AgentUse) -> str:
    """`used $0.0080, 20 % less than likely`."""
    spent = count(use.input_tokens + use.output_tokens) + " tokens"
    if forecast.likely.cost_usd is not None and use.cost_usd is not None:
        spent = money(use.cost_usd)
    return f"used {spent}, {error_text(error_share(forecast, use))}"


def error_text(error: float | None) -> str:
    """`20 % less than likely`."""
    if error is None:
        return UNKNOWN
    return f"{abs(error):.0%} {'more' if error >= 0 else 'less'} than likely"
