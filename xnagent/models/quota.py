"""How much a provider still allows, as its headers tell, and how long to wait before it would refuse. Pure.

Times are seconds on one monotonic clock. What is not known never makes anybody wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final

from xnagent.core.values import dataclass

LONGEST_WAIT_SECONDS: Final = 60.0
"""A provider that tells of a later reset refills all the time; after that the call is tried."""
SHORTEST_WAIT_SECONDS: Final = 0.05
SAME_WINDOW_SECONDS: Final = 1.0
"""Resets that differ by no more are the same one, told in whole seconds."""
AWAITING_SECONDS: Final = 1.0
"""How long to wait for the next answer's headers where the allowance is used up and nothing is known of its reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What is left of one counted thing."""

    remaining: float
    limit: float | None = None
    reset_at: float | None = None
    """When it is whole again; None: nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the headers of one answer say."""

    allowances: Mapping[str, Allowance] = field(default_factory=dict)
    """By what is counted: `requests`, `tokens`, `input_tokens`, `output_tokens`."""
    pause_seconds: float | None = None
    """The provider asks for a pause, of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What is known of the limits of one model at one endpoint."""

    allowances: Mapping[str, Allowance] = field(default_factory=dict)
    not_before: float = 0.0
    """The provider asked for a pause until then."""


Need = Mapping[str, float]
"""What a call will use, by what is counted."""


def learned(quota: Quota, reading: Reading, *, now: float, pending: Need | None = None) -> Quota:
    """The quota after an answer. `pending` is what calls need that began and were not answered yet.

    Answers overtake each other, and each tells only of calls that had arrived when it began. So within a window what
    we counted ourselves holds where it is less; what a later reset tells replaces it, with the pending calls taken off.
    """
    quota, pause = refilled(quota, now=now), reading.pause_seconds or 0.0
    told = {
        name: _joined(quota.allowances.get(name), one, pending=(pending or {}).get(name, 0.0))
        for name, one in reading.allowances.items()
    }
    return Quota(
        allowances={**quota.allowances, **told},
        not_before=max(quota.not_before, now + min(pause, LONGEST_WAIT_SECONDS)) if pause else quota.not_before,
    )


def _joined(known: Allowance | None, told: Allowance, *, pending: float) -> Allowance:
    is_same = known is not None and (
        known.reset_at is None or told.reset_at is None or told.reset_at <= known.reset_at + SAME_WINDOW_SECONDS
    )
    if known is not None and is_same:
        return replace(told, remaining=min(known.remaining, told.remaining))
    return replace(told, remaining=told.remaining - pending)


def refilled(quota: Quota, *, now: float) -> Quota:
    """The quota as time goes by: an allowance whose reset is over is whole again, or unknown if its limit is."""
    if not quota.allowances:
        return quota
    kept = {name: _refilled(one, now) for name, one in quota.allowances.items()}
    return replace(quota, allowances={name: one for name, one in kept.items() if one is not None})


def _refilled(allowance: Allowance, now: float) -> Allowance | None:
    if allowance.reset_at is None or allowance.reset_at > now:
        return allowance
    return None if allowance.limit is None else Allowance(remaining=allowance.limit, limit=allowance.limit)


def taken(quota: Quota, need: Need) -> Quota:
    """The quota when a call begins, before any answer tells of it."""
    if not quota.allowances:
        return quota
    rest = {name: replace(one, remaining=one.remaining - need.get(name, 0.0)) for name, one in quota.allowances.items()}
    return replace(quota, allowances=rest)


def wait_seconds(quota: Quota, need: Need, *, now: float, sharers: int = 1) -> float:
    """How long a call must wait now; 0: it may begin. `sharers` processes use the same allowance side by side."""
    waits = [quota.not_before - now]
    waits += [_wait(one, need.get(name, 0.0), now=now, sharers=sharers) for name, one in quota.allowances.items()]
    longest = max(waits)
    return 0.0 if longest <= 0 else min(max(longest, SHORTEST_WAIT_SECONDS), LONGEST_WAIT_SECONDS)


def _wait(allowance: Allowance, need: float, *, now: float, sharers: int) -> float:
    """A call that is larger than the whole allowance waits only until that is whole."""
    wanted = min(need, allowance.limit or need) * sharers
    wanted = min(wanted, allowance.limit or wanted)
    if need == 0 or allowance.remaining >= wanted:
        return 0.0
    if allowance.reset_at is None:
        return AWAITING_SECONDS
    reset = allowance.reset_at - now
    if reset <= LONGEST_WAIT_SECONDS or allowance.limit is None or allowance.limit <= allowance.remaining:
        return reset
    return reset * (wanted - allowance.remaining) / (allowance.limit - allowance.remaining)
