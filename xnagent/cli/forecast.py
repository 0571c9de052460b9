"""What it would cost to go on: the next request of every agent that is at work, and all that come after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xnagent.agents.lasting import lifetime_of
from xnagent.app.crew import worker_policy
from xnagent.app.prospects import ASSUMED_LIFETIME_SECONDS, SessionProspects, outset_of
from xnagent.app.running import is_over
from xnagent.config.entry import Role
from xnagent.core.checkpoint import checkpoint
from xnagent.core.due import Conditions, is_due
from xnagent.core.fallback import model_in_force
from xnagent.core.forecast import Forecast, Outset, add_forecasts, forecast_request
from xnagent.core.ids import PLANNER, AgentId, agent_of, role_of
from xnagent.core.pricing import cost_usd
from xnagent.core.rebase import Room, plan_rebase
from xnagent.core.rent import Rates
from xnagent.core.spine import Spine, estimate
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.state import SessionState, active_runs, ratio_of, spine_of
from xnagent.core.text import Json
from xnagent.core.tokens import Usage
from xnagent.inspect.foreseen import ends_text, forecast_fields, forecast_table
from xnagent.inspect.plain import count, money, seconds, table
from xnagent.models.catalog import ModelEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRequest:
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
    rebase: Rebase | None
    """What replaces the spine before it, if that is due now."""
    forecast: Forecast
    """Of this agent from now to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebase:
    """A rebase that is due."""

    cause: str
    tokens_after: int
    forecast: Forecast
    """Of the request that comes after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A session that could go on."""

    state: SessionState
    age_seconds: float
    """Since its log grew last: how long its caches have had to expire."""
    chains: Mapping[Role, Sequence[ModelEntry]]
    """Each role's model and its fallbacks."""
    prospects: SessionProspects
    has_message: bool = False
    """The user says something more, which opens a session again that is over."""


def forecasts(standing: Standing) -> list[NextRequest]:
    """The Planner's next request and those of the runs that go on; none if the session is over."""
    state = standing.state
    if is_over(state) and not standing.has_message:
        return []
    agents = [PLANNER, *(agent_of(run.run) for run in active_runs(state))]
    return [_forecast(standing, agent) for agent in agents]


def _in_force(state: SessionState, agent: AgentId, *, chain: Sequence[ModelEntry]) -> ModelEntry:
    entries = {entry.name: entry for entry in chain}
    return entries[model_in_force(state, agent, chain=list(entries))]


def _role(agent: AgentId) -> Role:
    return "planner" if role_of(agent) == "planner" else "worker"


def _forecast(standing: Standing, agent: AgentId) -> NextRequest:
    state = standing.state
    entry = _in_force(state, agent, chain=standing.chains[_role(agent)])
    spine = spine_of(state, agent)
    manifest = state.manifests.get(spine.sent_manifest or state.role_manifest.get(_role(agent), ""))
    head = (manifest or standing.prospects.manifest(_role(agent), entry)).head_tokens
    total = estimate(spine, head, ratio=ratio_of(state, entry.name))
    cached = min(total, _sent(spine, manifest, model=entry.name))
    rebase = _rebase(standing, agent, entry=entry, head_tokens=head)
    lasts = lifetime_of(spine, entry.cache)
    outset = outset_of(
        state,
        agent,
        size_tokens=total if rebase is None else rebase.tokens_after,
        warm_tokens=cached if rebase is None else min(head, cached),
        lasts_seconds=lasts,
    )
    outset = replace(outset, is_warm=_is_warm(standing, lasts))
    return NextRequest(
        agent=agent,
        model=entry.name,
        cached_tokens=cached,
        fresh_tokens=total - cached,
        cache_lifetime_seconds=lasts,
        price_usd=cost_usd(Usage(input_tokens=total, cached_tokens=cached, output_tokens=0), entry.price),
        price_without_cache_usd=cost_usd(Usage(input_tokens=total, cached_tokens=0, output_tokens=0), entry.price),
        rebase=rebase,
        forecast=standing.prospects.agent(state, agent, outset=outset, entry=entry),
    )


def _is_warm(standing: Standing, lasts_seconds: float | None) -> bool:
    return standing.age_seconds <= (ASSUMED_LIFETIME_SECONDS if lasts_seconds is None else lasts_seconds)


def _rebase(standing: Standing, agent: AgentId, *, entry: ModelEntry, head_tokens: int) -> Rebase | None:
    """What a rebase would leave that is due before the next request, and what that request would use then."""
    state, settings, prospects = standing.state, standing.prospects.settings, standing.prospects
    policy = settings.spine.to_policy() if agent == PLANNER else worker_policy(settings)
    spine, terms = spine_of(state, agent), prospects.terms(_role(agent), entry)
    room = Room(
        window_tokens=entry.window_tokens,
        max_output_tokens=terms.max_output_tokens,
        head_tokens=head_tokens,
        ratio=ratio_of(state, entry.name),
    )
    lasts = lifetime_of(spine, entry.cache)
    conditions = Conditions(
        rates=None if entry.price is None else Rates(price=entry.price, cache=entry.cache, is_long=spine.is_long_lived),
        has_expired=lasts is not None and standing.age_seconds > lasts,
    )
    cause = is_due(spine, room, policy=policy, conditions=conditions)
    if cause is None:
        return None
    plan = plan_rebase(spine, checkpoint(state, agent), room=room, policy=policy)
    if not plan.has_gain(policy):
        return None
    habits = prospects.planner_habits() if agent == PLANNER else prospects.worker_habits(state)
    is_warm = _is_warm(standing, lasts)
    outset = Outset(prefix_tokens=plan.tokens_after, warm_tokens=head_tokens, is_warm=is_warm)
    after = forecast_request(outset, habits, terms=terms)
    return Rebase(cause=cause, tokens_after=plan.tokens_after, forecast=after)


def _sent(spine: Spine, manifest: ManifestRecorded | None, *, model: str) -> int:
    """Tokens that the model has seen in this lineage: another model has seen none."""
    if manifest is None or manifest.model != model or not spine.requests:
        return 0
    return spine.sent_estimate if spine.anchor_tokens is None else spine.anchor_tokens


def whole_forecast(standing: Standing, rows: list[NextRequest]) -> Forecast:
    """What the session uses from here to its end."""
    return add_forecasts([*(row.forecast for row in rows), standing.prospects.further_runs(standing.state)])


def forecast_text(rows: list[NextRequest], whole: Forecast) -> str:
    """As tables."""
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
    parts = [
        table(("agent", "model", "cached", "fresh", "kept for", "price", "price without cache"), cells),
        *(_rebase_line(row.agent, row.rebase) for row in rows if row.rebase is not None),
        f"\nfrom here to the end, with runs that are not delegated yet\n{forecast_table(whole)}",
    ]
    return "\n".join(parts)


def _rebase_line(agent: AgentId, rebase: Rebase) -> str:
    after = f"{count(rebase.tokens_after)} tokens, the next request {ends_text(rebase.forecast)}"
    return f"{agent} is rebased before that ({rebase.cause}): {after}"


def forecast_record(session: str, rows: list[NextRequest], *, whole: Forecast) -> dict[str, Json]:
    """As one object."""
    requests: list[Json] = [_request_record(row) for row in rows]
    foreseen = forecast_fields(whole) if rows else None
    return {"type": "forecast", "session": session, "requests": requests, "forecast": foreseen}


def _request_record(row: NextRequest) -> dict[str, Json]:
    rebase = row.rebase
    due: dict[str, Json] | None = None
    if rebase is not None:
        after = forecast_fields(rebase.forecast)
        due = {"cause": rebase.cause, "tokens_after": rebase.tokens_after, "forecast": after}
    return {
        "agent": row.agent,
        "model": row.model,
        "cached_tokens": row.cached_tokens,
        "fresh_tokens": row.fresh_tokens,
        "cache_lifetime_seconds": row.cache_lifetime_seconds,
        "price_usd": row.price_usd,
        "price_without_cache_usd": row.price_without_cache_usd,
        "rebase": due,
        "forecast": forecast_fields(row.forecast),
    }
