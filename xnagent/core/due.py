"""Whether a spine is to be rebased before its next request; if not, why not. Sizes alone: no item is looked at."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from xnagent.core.rebase import RebaseCause, RebasePolicy, Room, frees_enough, scale_of, size_of, tail_budget
from xnagent.core.rent import Costs, Rates, Rent, Sizes, costs, is_worth
from xnagent.core.spine import Spine
from xnagent.core.values import dataclass

LEAST_CHECKPOINT_TOKENS: Final = 400
"""No checkpoint is smaller."""
RETRY_GROWTH_SHARE: Final = 0.1
"""After a refusal the spine must have grown by this share of the usable window."""
MOST_REFUSALS: Final = 3
"""In a row; then rebases are suspended (T10)."""
COOL_DOWN_REQUESTS: Final = 3
"""So many requests after a rebase there is no other because of the soft limit (T9)."""
CAUTION: Final = 0.5
"""By this share what is only estimated may turn out larger (M105)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What is known of the model's prices and cache when a request is about to be sent."""

    rates: Rates | None = None
    """None: no price is known, and the economic rule has nothing to say."""
    has_expired: bool = False
    """What the last request left in the cache is no longer served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the policy says."""

    cause: RebaseCause | None
    """None: no rebase."""
    why: str
    """For people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All that the rules need to know of a spine."""

    sizes: Sizes
    most_tokens: int
    """The next request, where what is only estimated is larger."""
    rent: Rent = field(default_factory=Rent)
    requests: int | None = None
    """Sent since the last rebase; None: there was none."""
    refused_at: int | None = None
    """Size at which a rebase was last refused."""
    refusals: int = 0
    is_suspended: bool = False


def standing_of(spine: Spine, room: Room, *, policy: RebasePolicy, conditions: Conditions) -> Standing:
    """What a spine's sums tell."""
    return Standing(
        sizes=sizes_of(spine, room, policy=policy, has_expired=conditions.has_expired),
        most_tokens=most_likely(spine, room),
        rent=spine.rent,
        requests=spine.requests if spine.generation else None,
        refused_at=spine.refused_at,
        refusals=spine.refusals,
        is_suspended=spine.is_suspended,
    )


def is_over(spine: Spine, room: Room, *, policy: RebasePolicy) -> bool:
    """Whether the spine as it is must not be sent: over the hard limit, or maybe over the window."""
    return _is_over(size_of(spine, room), most_likely(spine, room), room=room, policy=policy)


def _is_over(size: int, most: int, *, room: Room, policy: RebasePolicy) -> bool:
    return size > policy.hard_share * room.usable_tokens or most > room.usable_tokens


def most_likely(spine: Spine, room: Room) -> int:
    """The size, where what came after the newest report is larger than estimated."""
    unknown = 0 if spine.anchor_tokens is None else spine.tokens_since_anchor * room.ratio
    return size_of(spine, room) + round(CAUTION * unknown)


def sizes_of(spine: Spine, room: Room, *, policy: RebasePolicy, has_expired: bool = False) -> Sizes:
    """The spine before its next request and as a rebase would leave it, as far as its sums tell.

    A rebase drops what stands up to the newest state message that was sent; of what came later, a Worker's whole work,
    it keeps as much as a tail may have, and what no request has held yet. The checkpoint is taken to be as large as the
    last whole view of the state. What came back after the last rebase is taken to come back after the next one too.
    """
    scale, fixed = scale_of(spine, room), room.head_tokens + spine.first_tokens
    told = max(spine.first_tokens, spine.told_tokens)
    unread = spine.tokens - spine.sent_tokens
    tail = min(max(0, spine.tokens - told), max(unread, tail_budget(room, policy)))
    after = fixed + max(LEAST_CHECKPOINT_TOKENS, spine.view_tokens) + tail + spine.wanted_tokens
    held = 0 if has_expired or not spine.requests else spine.held_tokens or spine.sent_estimate
    whole = size_of(spine, room)
    return Sizes(
        whole_tokens=whole,
        after_tokens=min(whole, round(after * scale)),
        fixed_tokens=round(fixed * scale),
        held_tokens=min(whole, held),
    )


def costs_of(spine: Spine, room: Room, *, policy: RebasePolicy, conditions: Conditions) -> Costs | None:
    """Rent and price before the next request; None: no price is known."""
    if conditions.rates is None:
        return None
    return costs(sizes_of(spine, room, policy=policy, has_expired=conditions.has_expired), conditions.rates)


def is_due(
    spine: Spine, room: Room, *, policy: RebasePolicy, conditions: Conditions | None = None
) -> RebaseCause | None:
    """Why the spine should be rebased now, before anything is appended; None if it should not."""
    return verdict(spine, room, policy=policy, conditions=conditions).cause


def verdict(spine: Spine, room: Room, *, policy: RebasePolicy, conditions: Conditions | None = None) -> Verdict:
    """The same with its reason."""
    known = conditions or Conditions()
    if len(spine.items) <= spine.head + 1:
        return _no("there is nothing that a rebase could drop")
    if spine.is_open:
        return _no("calls wait for their results")
    if spine.pending_request is not None:
        return _no(f"request {spine.pending_request} is under way and is sent again as it is")
    if spine.is_rebase_asked:
        return Verdict(cause="asked", why="you asked for it")
    standing = standing_of(spine, room, policy=policy, conditions=known)
    return due_by_size(standing, room, policy=policy, conditions=known)


def due_by_size(standing: Standing, room: Room, *, policy: RebasePolicy, conditions: Conditions) -> Verdict:
    """The rules on sizes alone: `economic` is rent or buy (`rent.py`), `threshold` stands behind it."""
    size, usable = standing.sizes.whole_tokens, room.usable_tokens
    is_hard = _is_over(size, standing.most_tokens, room=room, policy=policy)
    held_back = _held_back(standing, usable=usable, is_hard=is_hard)
    if held_back is not None:
        is_other = policy.policy == "economic" and _is_other(standing, policy)
        return _economic(standing, policy=policy, conditions=conditions) if is_other else held_back
    if is_hard:
        return Verdict(
            cause="hard", why=f"{size:,} tokens are over the hard limit of {policy.hard_share * usable:,.0f}"
        )
    if size > policy.soft_share * usable:
        return _soft(standing, limit=policy.soft_share * usable)
    if policy.policy == "threshold":
        return _no(f"{size:,} tokens are below the soft limit of {policy.soft_share * usable:,.0f}")
    return _economic(standing, policy=policy, conditions=conditions)


def _no(why: str) -> Verdict:
    return Verdict(cause=None, why=why)


def _held_back(standing: Standing, *, usable: int, is_hard: bool) -> Verdict | None:
    """After a refusal: the hard limit asks on, until there were three; then nothing does before the spine has grown."""
    if standing.refused_at is None:
        return None
    again = standing.refused_at + RETRY_GROWTH_SHARE * usable
    if standing.sizes.whole_tokens >= again or (is_hard and not standing.is_suspended):
        return None
    times = f"{standing.refusals} in a row" if standing.refusals > 1 else "the last one"
    return _no(
        f"{times} would have freed too little at {standing.refused_at:,} tokens; the next try is at {again:,.0f}"
    )


def _is_other(standing: Standing, policy: RebasePolicy) -> bool:
    """Whether money need not wait for a tenth of the window, because a refusal says little of the spine as it is.

    It has grown by a tenth of itself, or what was new at the refusal can go now and would free twice what is asked for.
    """
    if standing.refused_at is None or standing.is_suspended:
        return False
    sizes = standing.sizes
    has_grown = sizes.whole_tokens >= (1 + RETRY_GROWTH_SHARE) * standing.refused_at
    gain = sizes.whole_tokens - sizes.after_tokens
    return has_grown or frees_enough(sizes.whole_tokens, sizes.whole_tokens - gain // 2, policy=policy)


def _soft(standing: Standing, *, limit: float) -> Verdict:
    if standing.requests is not None and standing.requests < COOL_DOWN_REQUESTS:
        return _no(f"only {standing.requests} requests were sent since the last rebase")
    return Verdict(cause="soft", why=f"{standing.sizes.whole_tokens:,} tokens are over the soft limit of {limit:,.0f}")


def _economic(standing: Standing, *, policy: RebasePolicy, conditions: Conditions) -> Verdict:
    if conditions.rates is None:
        return _no("no price is known, and the soft limit is not reached")
    sizes, rent = standing.sizes, standing.rent
    now = costs(sizes, conditions.rates)
    price = now.price_usd if rent.lowest_usd is None else min(now.price_usd, rent.lowest_usd)
    spent = rent.paid_usd + now.rent_usd
    sums = f"re-reading costs ${spent:.6f} since the last rebase, the next request included; a rebase ${price:.6f}"
    if not is_worth(rent, now):
        return _no(sums)
    if not frees_enough(sizes.whole_tokens, sizes.after_tokens, policy=policy):
        return _no(f"it would leave about {sizes.after_tokens:,} of {sizes.whole_tokens:,} tokens, too many")
    return Verdict(cause="expired" if conditions.has_expired else "economic", why=sums)
