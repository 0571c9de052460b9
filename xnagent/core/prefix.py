"""Is this request an extension of the last one in its lineage; if not, what broke and what does it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BYTES_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """The first place where a request differs from its predecessor."""

    segment: str
    """`head` (system, tools and what else stands before the messages), or `group N`."""
    index: int
    """Index of the first segment that differs."""
    lost_bytes: int
    """Bytes of the predecessor from there on: no prefix cache can serve them."""
    detail: str

    @property
    def lost_tokens(self) -> int:
        """About as many tokens."""
        return self.lost_bytes // BYTES_PER_TOKEN


def find_break(before: Sequence[bytes], after: Sequence[bytes]) -> Break | None:
    """The first segment of `before` that `after` does not begin with; None if it extends it.

    Segments are a request as the wire rendered it: the head, then one for each group. What was not changed is the same
    object, so the check costs one comparison by identity for each segment.
    """
    for index, old in enumerate(before):
        new = after[index] if index < len(after) else None
        if new is old or new == old:
            continue
        lost = sum(len(segment) for segment in before[index:])
        name = "head" if index == 0 else f"group {index}"
        return Break(segment=name, index=index, lost_bytes=lost, detail=_difference(old, new))
    return None


def _difference(old: bytes, new: bytes | None) -> str:
    if new is None:
        return "it is missing"
    at = next(
        (n for n, (left, right) in enumerate(zip(old, new, strict=False)) if left != right), min(len(old), len(new))
    )
    return f"first differing byte {at}: {old[at : at + 40]!r} became {new[at : at + 40]!r}"
