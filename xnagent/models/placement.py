"""Where cache breakpoints go on a wire that wants them named: a pure function of the history's blocks.

The rule that they serve (Anthropic's): a request may hold four breakpoints; the cache is written at breakpoints alone;
each of them is served by the longest entry that ends at it or at most 19 blocks before it. So the entry which the
request before has written at its end is found for certain only if a breakpoint stands exactly there, however many
blocks came since: one step with 25 parallel calls adds 50.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from xnagent.core.values import dataclass

MOST_BREAKPOINTS: Final = 4
"""In a whole request: one at the end of system and tools, the others in the history."""
LOOK_BACK_BLOCKS: Final = 20
"""How many positions a breakpoint looks at, its own included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One content block of the history, as the cache counts it."""

    speaker: Literal["user", "assistant"]
    mark_at: int | None
    """Where in the request's content a marker may be put in; None: not on this block (empty, or reasoning)."""


def place(blocks: Sequence[Block]) -> tuple[int, ...]:
    """The places of at most three markers, ascending.

    The objective's (what a rebase leaves in the cache), the end of the request before this one (where the model took
    over for the last time), and the end of this one.
    """
    ends = (min(1, len(blocks)), _last_reply(blocks), len(blocks))
    chosen = (_last_markable(blocks, end) for end in ends)
    return tuple(sorted({place for place in chosen if place is not None}))


def _last_reply(blocks: Sequence[Block]) -> int:
    """Where the newest reply begins; 0 if there is none."""
    end = len(blocks)
    while end and blocks[end - 1].speaker == "user":
        end -= 1
    while end and blocks[end - 1].speaker == "assistant":
        end -= 1
    return end


def _last_markable(blocks: Sequence[Block], end: int) -> int | None:
    marks = (blocks[n].mark_at for n in range(end - 1, -1, -1))
    return next((mark for mark in marks if mark is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """What is put in to mark a block: by how long what ends there is to live."""

    short: bytes
    long: bytes


def with_marks(content: bytes, places: Iterable[int], *, markers: Markers, long_until: int = 0) -> bytes:
    """The content with a marker put in at each of the places, which are ascending; the long one before `long_until`."""
    parts, done = [], 0
    for at in places:
        parts += [content[done:at], markers.long if at < long_until else markers.short]
        done = at
    return b"".join([*parts, content[done:]])
