"""What a simulated cache found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """The part of a prompt that was there, and up to which marks it is kept now."""

    cached_bytes: int
    last_mark: int = -1
    """Number of the last block with a mark; -1: there is none."""
    long_mark: int = -1
    """The last one with the longer lifetime."""
