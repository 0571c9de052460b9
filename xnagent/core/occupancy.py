"""How full a request makes its window, and when that is said: too full fails without an error (M114)."""

from __future__ import annotations

from collections.abc import Sequence

from xnagent.core.rebase import Room
from xnagent.core.spine import Spine
from xnagent.core.spine_events import WindowFilled


def filled_share(tokens: int, room: Room) -> float | None:
    """Share of the usable window that so many tokens take; None: nothing of it is usable."""
    return tokens / room.usable_tokens if room.usable_tokens else None


def find_filled(
    spine: Spine, room: Room, *, tokens: int, levels: Sequence[float], request: int
) -> tuple[WindowFilled, ...]:
    """The highest level that a request of so many tokens reaches, if none so high was since the last rebase."""
    share = filled_share(tokens, room)
    reached = max((level for level in levels if share is not None and level <= share), default=0.0)
    if reached <= spine.warned_share:
        return ()
    filled = WindowFilled(
        agent=spine.agent,
        request=request,
        generation=spine.generation,
        level=reached,
        tokens=tokens,
        usable_tokens=room.usable_tokens,
    )
    return (filled,)
