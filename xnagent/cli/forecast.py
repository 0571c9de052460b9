"""What it would cost to go on: the next request of every agent that is at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xnagent.agents.lasting import lifetime_of
from xnagent.app.running import is_over
from xnagent.config.entry import Role
from xnagent.core.fallback import model_in_force
from xnagent.core.ids import PLANNER, AgentId, agent_of, role_of
from xnagent.core.pricing import cost_usd
from xnagent.core.spine import Spine, estimate
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.state import SessionState, active_runs, spine_of
from xnagent.core.text import Json
from xnagent.core.tokens import Usage
from xnagent.inspect.plain import count, money, seconds, table
from xnagent.models.catalog import ModelEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The next request of one agent, as far as the log tells."""

    agent: AgentId
    model: str
    cached_tokens: int
    """What the provider's cache holds if it has not expired."""
    cache_lifetime_seconds: float | None
    """How long it is kept after the last request; None: nobody says."""
    fresh_tokens: int
    price_usd: float | None
    """Of the input, with that cache."""
    price_without_cache_usd: float | None


def forecasts(state: SessionState, chains: Mapping[Role, Sequence[ModelEntry]]) -> list[Forecast]:
    """The Planner's next request and those of the runs that go on; none if the session is over.

    `chains` are each role's model and its fallbacks.
    """
    if is_over(state):
        return []
    agents = [PLANNER, *(agent_of(run.run) for run in active_runs(state))]
    return [_forecast(state, agent, entry=_in_force(state, agent, chain=chains[_role(agent)])) for agent in agents]


def _in_force(state: SessionState, agent: AgentId, *, chain: Sequence[ModelEntry]) -> ModelEntry:
    entries = {entry.name: entry for entry in chain}
    return entries[model_in_force(state, agent, chain=list(entries))]


def _role(agent: AgentId) -> Role:
    return "planner" if role_of(agent) == "planner" else "worker"


def _forecast(state: SessionState, agent: AgentId, *, entry: ModelEntry) -> Forecast:
    spine = spine_of(state, agent)
    manifest = state.manifests.get(spine.sent_manifest or state.role_manifest.get(_role(agent), ""))
    head = 0
    if manifest is not None:
        head = manifest.head_tokens
    total = estimate(spine, head)
    cached = min(total, _sent(spine, manifest, model=entry.name))
    return Forecast(
        agent=agent,
        model=entry.name,
        cached_tokens=cached,
        fresh_tokens=total - cached,
        cache_lifetime_seconds=lifetime_of(spine, entry.cache),
        price_usd=cost_usd(Usage(input_tokens=total, cached_tokens=cached, output_tokens=0), entry.price),
        price_without_cache_usd=cost_usd(Usage(input_tokens=total, cached_tokens=0, output_tokens=0), entry.price),
    )


def _sent(spine: Spine, manifest: ManifestRecorded | None, *, model: str) -> int:
    """Tokens that the model has seen in this lineage: another model has seen none."""
    if manifest is None or manifest.model != model or not spine.requests:
        return 0
    return spine.sent_estimate if spine.anchor_tokens is None else spine.anchor_tokens


def forecast_text(rows: list[Forecast]) -> str:
    """As a table."""
    if not rows:
        return "the session is over; nothing would be sent (say more with --message TEXT)"
    cells = [
        (
            row.agent,
            row.model,
            count(row.cached_tokens),
            count(row.fresh_tokens),
            seconds(row.cache_lifetime_seconds),
            money(row.price_usd),
            money(row.price_without_cache_usd),
        )
        for row in rows
    ]
    return table(("agent", "model", "cached", "fresh", "kept for", "price", "price without cache"), cells)


def forecast_record(session: str, rows: list[Forecast]) -> dict[str, Json]:
    """As one object."""
    requests: list[Json] = [
        {
            "agent": row.agent,
            "model": row.model,
            "cached_tokens": row.cached_tokens,
            "fresh_tokens": row.fresh_tokens,
            "cache_lifetime_seconds": row.cache_lifetime_seconds,
            "price_usd": row.price_usd,
            "price_without_cache_usd": row.price_without_cache_usd,
        }
        for row in rows
    ]
    return {"type": "forecast", "session": session, "requests": requests}
