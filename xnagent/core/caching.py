"""What is known of a model's cache, and what that says of the next request. Values and pure functions."""

from __future__ import annotations

from typing import Literal

from xnagent.core.values import dataclass

RenderOrder = Literal["tools-system", "system-tools"]
"""What stands first in what the model reads: a change of the second leaves the first cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule:
    """What is known of a model's cache."""

    lifetime_seconds: float | None = None
    """How long an entry is served for certain after its last use; None: nobody says."""
    long_lifetime_seconds: float | None = None
    """The same for entries that were asked to live longer, at a price; None: there are none."""
    minimum_tokens: int | None = None
    """A shorter prefix is not cached; None: nobody says."""
    block_tokens: int | None = None
    """A prefix is served in whole blocks of so many tokens; None: to the token, or nobody says."""
    has_whole_requests: bool = False
    """A prefix is found only where an earlier request or its reply ended (DeepSeek)."""
    lag_seconds: float | None = None
    """How long after an answer began what was read for it is served to others; None: nobody says."""
    order: RenderOrder | None = None
    """None: nobody says."""


def predicted_tokens(rule: CacheRule, held: int | None) -> int | None:
    """What the cache serves of a request that extends one whose input was `held`; None: nothing is known.

    Of that request alone: some providers cache its reply too, and then serve more.
    """
    if held is None:
        return None
    whole = held // rule.block_tokens * rule.block_tokens if rule.block_tokens else held
    return 0 if whole < (rule.minimum_tokens or 0) else whole
