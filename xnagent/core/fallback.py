"""Which model an agent goes on with when its own has failed for good: a pure function of the log and of a list."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, TypedDict

from xnagent.core.ids import AgentId, role_of
from xnagent.core.pricing import Price, write_usd
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ModelReplaced, RequestFailed
from xnagent.core.state import SessionState, spine_of
from xnagent.core.values import dataclass
from xnagent.errors import RETRYABLE

FALLS_BACK: Final = RETRYABLE | {"authentication", "quota", "not_found", "content_refused", "protocol"}
"""Faults after which another model may do better, once the retries are used up. Not those that are ours to cure: a
request that is too long, that asks for too much output, or that is wrong."""
OF_THE_CONTENT: Final = frozenset({"content_refused"})
"""Faults that say nothing of how the model will answer another agent."""
CHOSEN: Final = "chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model that may answer a role."""

    model: str
    price: Price | None = None


def model_in_force(state: SessionState, agent: AgentId, *, chain: Sequence[str]) -> str:
    """The first model of the list that the agent has not given up; the last one if it has given up all."""
    gone = state.given_up.get(agent, ())
    return next((model for model in chain if model not in gone), chain[-1])


def replacement(state: SessionState, failed: RequestFailed, *, chain: Sequence[Candidate]) -> ModelReplaced | None:
    """What follows a request that failed for good; None if no other model may or can take over.

    `state` may be from before or after the failure. Every model is given up at most once, so there are fewer breaks
    than models.
    """
    if failed.fault not in FALLS_BACK or not chain:
        return None
    current = model_in_force(state, failed.agent, chain=[one.model for one in chain])
    gone = {current, *state.given_up.get(failed.agent, ())}
    heir = next((one for one in chain if one.model not in gone), None)
    if heir is None:
        return None
    return ModelReplaced(
        agent=failed.agent,
        replaced=current,
        model=heir.model,
        cause=failed.fault,
        detail=failed.detail,
        request=failed.request,
        **_loss(spine_of(state, failed.agent), heir),
    )


def choice(state: SessionState, agent: AgentId, *, heir: Candidate, wire: str) -> ModelReplaced | None:
    """The break that the user's choice of another model makes; None if the lineage was sent to this one, or nowhere."""
    spine = spine_of(state, agent)
    sent = state.manifests.get(spine.sent_manifest)
    if sent is None or (sent.model, sent.wire) == (heir.model, wire):
        return None
    return ModelReplaced(
        agent=agent,
        replaced=sent.model,
        model=heir.model,
        cause=CHOSEN,
        detail=f"the settings name {heir.model} on the {wire} wire",
        request=None,
        **_loss(spine, heir),
    )


def forgive(state: SessionState, roles: Collection[str]) -> SessionState:
    """The state in which the agents of these roles have given up no model: the user names theirs anew."""
    kept = {name: gone for name, gone in state.given_up.items() if role_of(AgentId(name)) not in roles}
    return replace(state, given_up=kept)


class _Loss(TypedDict):
    lineage: str
    lost_tokens: int
    price_usd: float | None


def _loss(spine: Spine, heir: Candidate) -> _Loss:
    estimated = spine.sent_estimate if spine.requests > 1 else 0
    lost = estimated if spine.anchor_tokens is None else spine.anchor_tokens
    price = None if heir.price is None else write_usd(lost, heir.price)
    return {"lineage": spine.lineage, "lost_tokens": lost, "price_usd": price}
