"""What a strategy sends, in the only terms that a prefix cache and a bill need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Purpose = Literal["step", "summary", "reread"]
Chain = Literal["main", "summary"]


@dataclass(slots=True, kw_only=True)
class Request:
    """One model call.

    The ordered segments of two requests with the same ids at their beginning are one number here: how many tokens of
    this request are, from its first on, those of the chain's request before. So a request costs the same to replay
    whatever it holds.
    """

    common: int
    """Tokens that it begins with as the chain's request before did, or as that one's reply continued it."""
    total: int
    """All its input."""
    stable: int
    """Tokens that the next request can begin with, as far as the client knows: there a cache marker stands."""
    fixed: int
    """System, tools and first message: they outlast a rebase, and a marker stands behind them too."""
    reply: int = 0
    """What its reply adds to the history in the same bytes; 0: it does not come back."""
    output: int = 0
    """What is generated."""
    at: float | None = None
    """Seconds; None: not known, then no cache has expired."""
    chain: Chain = "main"
    purpose: Purpose = "step"
    begins: bool = False
    """Whether it begins a lineage: nothing promises that it extends the request before."""
    repeated: int = 0
    """New tokens that had been sent before, in the same bytes, as the answer to an earlier call."""
