"""Did the cache serve less of a request than it must have held; if so, what is the likely cause."""

from __future__ import annotations

from typing import Final

from xnagent.core.caching import CacheRule
from xnagent.core.spine_events import DriftCause
from xnagent.core.values import dataclass

LEAST_TOKENS: Final = 1_024
"""Less than this is no drift: blocks, estimates and rounding explain it."""
LEAST_SHARE: Final = 0.1
"""Nor is less than this share of the prediction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A request that was answered, and the one before it in its lineage."""

    predicted_tokens: int | None
    """Input of the request before, as reported: what a cache of any kind holds. None: nothing is known."""
    reported_tokens: int | None
    """What the provider says came from its cache; None: it says nothing."""
    is_extension: bool
    """Whether the request extends the one before it, byte for byte."""
    is_first_of_process: bool
    is_first_of_model: bool
    pause_seconds: float
    """From the reply before to this request; without meaning for the first one of a process."""


def find_drift(served: Served, rule: CacheRule) -> DriftCause | None:
    """The likely cause, if much less came from the cache than predicted; None: it did its work, or nothing is known."""
    predicted, reported = served.predicted_tokens, served.reported_tokens
    if predicted is None or reported is None:
        return None
    if reported >= predicted - max(LEAST_TOKENS, LEAST_SHARE * predicted):
        return None
    return _cause(served, rule, predicted=predicted)


def _cause(served: Served, rule: CacheRule, *, predicted: int) -> DriftCause:
    if served.is_first_of_model:
        return "model_changed"
    if not served.is_extension:
        return "prefix_broken"
    if rule.minimum_tokens is not None and predicted < rule.minimum_tokens:
        return "below_minimum"
    if served.is_first_of_process:
        return "process_changed"
    if rule.lifetime_seconds is not None and served.pause_seconds > rule.lifetime_seconds:
        return "lifetime"
    return "unknown"
