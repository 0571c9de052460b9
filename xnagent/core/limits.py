"""How much a session may use, and whether the next request still fits: what can't be paid is not started."""

from __future__ import annotations

import math

from xnagent.core.events import LimitReached
from xnagent.core.ids import AgentId
from xnagent.core.pricing import Price, ceiling_usd
from xnagent.core.spine import Spine
from xnagent.core.state import SessionState, steps_of
from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The user's limits; None: none. Money and tokens are kept by reserving the most that a request can use."""

    usd: float | None = None
    tokens: int | None = None
    """Input and output of all requests."""
    steps: int | None = 1_000
    """Planner and Worker steps together."""
    runs: int | None = 100
    deadline_seconds: float | None = 14_400.0
    run_steps: int = 150
    """Steps of one run; a run that needs more fails."""
    denials: int | None = None
    """Calls that permission rules denied."""


def spent_usd(state: SessionState) -> float | None:
    """Money spent so far; None if the cost of a request is unknown."""
    costs = [totals.cost_usd for totals in state.totals.values()]
    return None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs)


def spent_tokens(state: SessionState) -> int:
    """Tokens used so far, input and output."""
    usages = [totals.usage for totals in state.totals.values()]
    return sum((usage.input_tokens or 0) + (usage.output_tokens or 0) for usage in usages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request that somebody would like to send."""

    agent: AgentId
    input_tokens: int
    """At most."""
    max_output_tokens: int
    price: Price | None
    is_long: bool = False
    """It may write all of itself to a cache for the longer lifetime."""


def refuse_request(state: SessionState, limits: Limits, *, wanted: Wanted) -> LimitReached | None:
    """Why a request of that size must not be sent; None if it may.

    Requests under way are counted at the most that they can use, so that the totals never pass the limit.
    """
    if limits.denials is not None and state.denials >= limits.denials:
        detail = f"denied calls: {state.denials}, and {limits.denials} end the session (permissions.max_denials)"
        return LimitReached(limit="denials", detail=detail)
    others = len(state.in_flight) - (wanted.agent in state.in_flight)
    if limits.steps is not None and sum(steps_of(state)) + others >= limits.steps:
        return LimitReached(limit="steps", detail=f"step limit reached: {limits.steps}")
    return _refuse_tokens(state, limits.tokens, wanted=wanted) or _refuse_money(state, limits.usd, wanted=wanted)


def _refuse_tokens(state: SessionState, limit: int | None, *, wanted: Wanted) -> LimitReached | None:
    if limit is None:
        return None
    under_way = _under_way(state, but=wanted.agent)
    used = wanted.input_tokens + wanted.max_output_tokens + sum(_most_of(state, spine) for spine in under_way)
    size, spent = math.ceil(used * state.overcharge), spent_tokens(state)
    if spent + size <= limit:
        return None
    detail = f"token limit: {spent:,} of {limit:,} used, the next request may use {size:,}"
    return LimitReached(limit="tokens", detail=detail)


def _most_of(state: SessionState, spine: Spine) -> int:
    """The most tokens that a request under way can use."""
    if spine.sent_ceiling_tokens is not None:
        return spine.sent_ceiling_tokens
    return spine.sent_estimate + _output_of(state, spine)


def _ceiling_of(state: SessionState, spine: Spine, *, price: Price | None) -> float | None:
    """What a request under way may cost at its own model's price; where the log does not say, at `price`."""
    if spine.sent_ceiling_usd is not None:
        return spine.sent_ceiling_usd
    return ceiling_usd(spine.sent_estimate, _output_of(state, spine), price=price)


def _output_of(state: SessionState, spine: Spine) -> int:
    manifest = state.manifests.get(spine.sent_manifest)
    return 0 if manifest is None else manifest.max_output_tokens


def _under_way(state: SessionState, *, but: AgentId) -> tuple[Spine, ...]:
    return tuple(state.spines[agent] for agent in state.in_flight if agent != but)


def _refuse_money(state: SessionState, limit: float | None, *, wanted: Wanted) -> LimitReached | None:
    if limit is None:
        return None
    spent, ceiling = spent_usd(state), _ceiling_of_all(state, wanted)
    if spent is None or ceiling is None:
        return LimitReached(limit="usd", detail="a money limit needs a price: the model's price is not known")
    if spent + ceiling > limit:
        detail = f"money limit: ${spent:.4f} of ${limit:.4f} spent, the next request may cost ${ceiling:.4f}"
        return LimitReached(limit="usd", detail=detail)
    return None


def _ceiling_of_all(state: SessionState, wanted: Wanted) -> float | None:
    """The most that the request and those under way can cost together; None: one of them has no price."""
    own = ceiling_usd(wanted.input_tokens, wanted.max_output_tokens, price=wanted.price, is_long=wanted.is_long)
    others = (_ceiling_of(state, spine, price=wanted.price) for spine in _under_way(state, but=wanted.agent))
    ceilings = [own, *others]
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    return sum(known) * state.overcharge if len(known) == len(ceilings) else None


def is_last_step(state: SessionState, limits: Limits) -> bool:
    """Whether the step limit is used up by the steps taken."""
    return limits.steps is not None and sum(steps_of(state)) >= limits.steps
