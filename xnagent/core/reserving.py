"""What is reserved for runs at work, so that a run which can't be paid to its end is not begun. Pure.

A run that works holds the likely part of its forecast, less what it has used; what it holds is free again when it ends.
That keeps sessions from beginning more than they can pay for; it is no cap. The cap is the ceiling of each request
(`limits.py`), which stands behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xnagent.core.board import Run
from xnagent.core.forecast import AgentUse, Forecast
from xnagent.core.ids import PLANNER, agent_of
from xnagent.core.limits import Limits, spent_tokens, spent_usd
from xnagent.core.state import SessionState, spine_of
from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """A run that is about to be delegated."""

    forecast: Forecast
    least_tokens: int = 0
    """The most that its first request can use: with less than that nothing begins."""
    least_usd: float | None = None
    """The same in money; None: the price is not known."""


def held(state: SessionState, run: Run) -> tuple[float, int]:
    """What a run at work still holds, in dollars and tokens: none where nothing was foreseen."""
    if run.forecast is None:
        return 0.0, 0
    use = state.uses.get(agent_of(run.run)) or AgentUse()
    likely = run.forecast.likely
    usd = max(0.0, (likely.cost_usd or 0.0) - (use.cost_usd or 0.0))
    return usd, max(0, likely.tokens - use.input_tokens - use.output_tokens)


def shortage(state: SessionState, limits: Limits, *, run: Run, holders: Sequence[Run]) -> str | None:
    """Why the run has to wait until others end; None: it may begin.

    Nothing waits for money or tokens while no run is at work: so there is always one that goes on, and the limit of its
    requests decides how far.
    """
    others = [other for other in holders if other.run != run.run]
    if not others or run.forecast is None:
        return None
    holds = [held(state, other) for other in others]
    who = ", ".join(other.run for other in others)
    likely, spent, planner = run.forecast.likely, spent_usd(state), spine_of(state, PLANNER)
    if limits.usd is not None and spent is not None and likely.cost_usd is not None:
        free = limits.usd - spent - sum(usd for usd, _ in holds) - (planner.sent_ceiling_usd or 0.0)
        if likely.cost_usd > free:
            cost, left = f"${likely.cost_usd:.4f}", f"${max(0.0, free):.4f}"
            return f"it likely costs {cost}; of ${limits.usd:.4f}, {left} is free while {who} work"
    if limits.tokens is not None:
        spare = limits.tokens - spent_tokens(state) - sum(tokens for _, tokens in holds) - planner.sent_estimate
        if likely.tokens > spare:
            left = f"{max(0, spare):,} are free while {who} work"
            return f"it likely uses {likely.tokens:,} tokens; of {limits.tokens:,}, {left}"
    return None


def unpayable(state: SessionState, limits: Limits, *, prospect: Prospect) -> str | None:
    """Why not even the run's first request could be paid, whoever ends before; None: it could."""
    spent, left = spent_usd(state), (limits.tokens or 0) - spent_tokens(state)
    if limits.usd is not None and spent is not None and prospect.least_usd is not None:
        rest = limits.usd - spent
        if prospect.least_usd > rest:
            return f"its first request may cost ${prospect.least_usd:.4f}, and ${rest:.4f} of ${limits.usd:.4f} is left"
    if limits.tokens is not None and prospect.least_tokens > left:
        return f"its first request may use {prospect.least_tokens:,} tokens, and {left:,} of {limits.tokens:,} are left"
    return None
