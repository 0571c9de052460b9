"""How long to wait before an attempt is made again, or why not at all."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from xnagent.core.values import dataclass
from xnagent.errors import ModelError

MAX_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Caps in count and time."""

    max_attempts: int = 6
    first_wait_seconds: float = 1.0
    max_wait_seconds: float = 60.0
    """Of our own backoff; a provider that asks for more gets more."""
    max_total_seconds: float = 600.0
    """All waits of one request together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What happened so far with one request."""

    attempts: int
    waited_seconds: float
    key: str
    """Anything that tells this request from others: it decides the jitter, so that a replay waits as long."""


def next_wait_seconds(policy: RetryPolicy, error: ModelError, *, tried: Tried) -> float | None:
    """Seconds to wait before the next attempt; None if there should be none.

    What the provider asks for is the least that is waited (B025); if it does not fit into the total, the request fails
    at once instead of sleeping in vain.
    """
    if not error.is_retryable or tried.attempts >= policy.max_attempts:
        return None
    backoff = min(policy.first_wait_seconds * 2 ** min(tried.attempts - 1, MAX_DOUBLINGS), policy.max_wait_seconds)
    wait = backoff * (0.5 + _jitter(f"{tried.key}/{tried.attempts}"))
    if error.retry_after_seconds is not None and error.retry_after_seconds > 0:
        wait = max(error.retry_after_seconds, min(wait, error.retry_after_seconds * 1.1))
    return wait if tried.waited_seconds + wait <= policy.max_total_seconds else None


def _jitter(key: str) -> float:
    return int.from_bytes(sha256(key.encode()).digest()[:4], "big") / 2**33
