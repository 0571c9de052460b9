"""Is this request an extension of the last one in its lineage; if not, what broke and what does it cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final

from xnagent.core.caching import RenderOrder
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.values import dataclass

BYTES_PER_TOKEN: Final = 4
FIRST_MESSAGE: Final = 1
"""Index of its segment."""
CHECKPOINT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """The first place where a request differs from its predecessor."""

    segment: str
    """`tools`, `system`, `head` (both unchanged: what else stands before the messages), or `group N`."""
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
    if after[: len(before)] == before:
        return None
    for index, old in enumerate(before):
        new = after[index] if index < len(after) else None
        if new is old or new == old:
            continue
        lost = sum(len(segment) for segment in before[index:])
        name = "head" if index == 0 else f"group {index}"
        return Break(segment=name, index=index, lost_bytes=lost, detail=_difference(old, new))
    return None


def find_named(
    before: Sequence[bytes],
    after: Sequence[bytes],
    *,
    manifests: tuple[ManifestRecorded, ManifestRecorded],
    order: RenderOrder | None,
) -> Break | None:
    """As `find_break`, with a broken head named by its part.

    Other parameters of the same model, which stand in the head too, are no part of what it reads: they break nothing.
    """
    found = find_break(before, after)
    if found is None or found.index > 0:
        return found
    named = in_head(found, manifests, order=order)
    old, new = manifests
    if named.segment != "head" or old == new or (old.model, old.wire) != (new.model, new.wire) or not after:
        return named
    return find_break((after[0], *before[1:]), after)


def segment_name(index: int, *, agent: AgentId, generation: int) -> str:
    """What a segment behind the head is: the first message, the checkpoint of a rebase, or `group N`."""
    if index == FIRST_MESSAGE:
        return "objective" if agent == PLANNER else "brief"
    return "checkpoint" if index == CHECKPOINT and generation else f"group {index}"


def in_head(found: Break, manifests: tuple[ManifestRecorded, ManifestRecorded], *, order: RenderOrder | None) -> Break:
    """The break, named after the first part of the head that differs, in the order in which the model reads them.

    The part before it is still cached. Where nobody says in which order the model reads the two, nothing counts as
    kept, and the tools are looked at first.
    """
    before, after = manifests
    names = ("system", "tools") if order == "system-tools" else ("tools", "system")
    changed = next((name for name in names if getattr(before, name) != getattr(after, name)), None)
    if changed is None:
        return found
    is_second = order is not None and changed == names[1]
    kept = len(getattr(before, names[0]).encode()) if is_second else 0
    detail = _tool_difference(before.tools, after.tools) if changed == "tools" else found.detail
    return replace(found, segment=changed, detail=detail, lost_bytes=max(0, found.lost_bytes - kept))


def _tool_difference(before: str, after: str) -> str:
    old, new = json.loads(before or "[]"), json.loads(after or "[]")
    pairs = zip_longest(old, new)
    number, left, right = next((n, a, b) for n, (a, b) in enumerate(pairs, 1) if a != b)
    was, now = ("nothing" if tool is None else f"`{tool['name']}`" for tool in (left, right))
    return f"tool {number}: " + (f"the definition of {was} changed" if was == now else f"{was} became {now}")


def _difference(old: bytes, new: bytes | None) -> str:
    if new is None:
        return "it is missing"
    at = next(
        (n for n, (left, right) in enumerate(zip(old, new, strict=False)) if left != right), min(len(old), len(new))
    )
    return f"first differing byte {at}: {old[at : at + 40]!r} became {new[at : at + 40]!r}"
