"""From a spine to the bytes of a request, on any wire: each item is rendered once, what is new goes at the end.

A wire is a `Renderer`: pure functions from manifest and items to bytes. Everything constant comes first and the items
last, so that a request without its closing brackets is a byte prefix of the next one in its lineage.
"""

from __future__ import annotations

import hashlib
import operator
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol, TypeVar

from xnagent.core.ids import AgentId
from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.values import dataclass
from xnagent.models.placement import Block, Markers, place, with_marks
from xnagent.models.slots import pinned
from xnagent.ports import Body

AnyItem = TypeVar("AnyItem", bound=Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a request as rendered."""

    content: bytes
    after: str
    """What the next piece and the closing brackets have to know of what stands before them; `""` at the start."""
    blocks: tuple[Block, ...] = ()
    """Its content blocks, places counted from its own start; only on a wire with cache markers."""
    mark_at: int | None = None
    """Of the head: where a marker at its end may be put in."""


class Renderer(Protocol):
    """What a wire is made of."""

    def head(self, manifest: ManifestRecorded, items: Sequence[Item]) -> Piece:
        """Everything before the first item. Of the items only the first may decide about a byte of it."""

    def group(self, group: Sequence[Item], *, manifest: ManifestRecorded, after: str) -> Piece:
        """One group of items, with what joins it to what stands before it; reasoning of other wires is left out."""

    def closing(self, after: str) -> bytes:
        """The brackets at the end of the request."""

    def markers(self, manifest: ManifestRecorded) -> Markers | None:
        """What is put in at the end of the head and where `placement` says; None: no markers."""


@dataclass(slots=True, kw_only=True)
class _Rendered:
    """What was rendered for an agent's newest lineage; grows with it."""

    lineage: str
    recorded: ManifestRecorded
    """As it stands in the log."""
    manifest: ManifestRecorded
    """As it is rendered for this agent."""
    items: tuple[Item, ...]
    segments: list[bytes]
    blocks: list[Block]
    after: str
    markers: Markers | None
    head_mark: int | None
    ends: list[tuple[int, int]]
    """After each group of the history: how many items and bytes there are."""
    size_bytes: int
    digest: Any
    """A running SHA-256 of the segments; hashlib's type has no public name."""

    def add(self, piece: Piece) -> None:
        """Put the piece at the end."""
        self.blocks += [_shifted(block, self.size_bytes) for block in piece.blocks]
        self.segments.append(piece.content)
        self.size_bytes += len(piece.content)
        self.digest.update(piece.content)
        self.after = piece.after


def render(
    renderer: Renderer,
    manifest: ManifestRecorded,
    *,
    items: Sequence[Item],
    long_items: int = 0,
    agent: AgentId | None = None,
) -> bytes:
    """The body of the request: a pure function of its arguments.

    Cache markers up to `long_items` items ask for the longer lifetime. Without an agent it is pinned to no slot.
    """
    rendered = _begin(renderer, manifest, items=items, agent=agent)
    _extend(renderer, rendered, items=tuple(items))
    return _content(renderer, rendered, long_items=long_items)[0]


class Encoder:
    """Renders each item once: the same bytes as `render`, at the cost of what is new plus one join.

    `Body.segments` are the pieces as rendered, without cache markers: a marker that moves on changes earlier bytes of
    the content, but nothing that the provider's cache compares, so the check for extensions leaves it out as well.
    Joined and closed they are the content, markers apart.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._rendered: dict[str, _Rendered] = {}

    def encode(self, manifest: ManifestRecorded, spine: Spine) -> Body:
        """The request for the spine as it is."""
        rendered = self._rendered.get(spine.agent)
        if rendered is None or rendered.recorded != manifest or not _is_extension(rendered, spine):
            rendered = _begin(self._renderer, manifest, items=spine.items, agent=spine.agent)
            rendered.lineage = spine.lineage
            self._rendered[spine.agent] = rendered
        _extend(self._renderer, rendered, items=spine.items)
        content, digest = _content(self._renderer, rendered, long_items=spine.long_items)
        return Body(content=content, sha256=digest, segments=tuple(rendered.segments), lineage=spine.lineage)


def _is_extension(rendered: _Rendered, spine: Spine) -> bool:
    done, items = rendered.items, spine.items
    if rendered.lineage != spine.lineage or not done or len(items) < len(done):
        return False
    if items[: len(done)] != done:
        return False
    joins_last = len(items) > len(done) and _speaker(done[-1]) == _speaker(items[len(done)])
    return not (joins_last and _speaker(done[-1]) != "user")


def _begin(
    renderer: Renderer, recorded: ManifestRecorded, *, items: Sequence[Item], agent: AgentId | None
) -> _Rendered:
    manifest = pinned(recorded, agent)
    rendered = _Rendered(
        lineage="",
        recorded=recorded,
        manifest=manifest,
        items=(),
        segments=[],
        blocks=[],
        after="",
        markers=renderer.markers(manifest),
        head_mark=None,
        ends=[],
        size_bytes=0,
        digest=hashlib.sha256(),
    )
    head = renderer.head(manifest, items[:1])
    rendered.head_mark = head.mark_at
    rendered.add(head)
    return rendered


def _extend(renderer: Renderer, rendered: _Rendered, *, items: tuple[Item, ...]) -> None:
    done = len(rendered.items)
    for group in _groups(items[done:]):
        readable = _readable(group, model=rendered.manifest.model)
        rendered.add(renderer.group(readable, manifest=rendered.manifest, after=rendered.after))
        done += len(group)
        rendered.ends.append((done, rendered.size_bytes))
    rendered.items = items


def _content(renderer: Renderer, rendered: _Rendered, *, long_items: int) -> tuple[bytes, str]:
    closing = renderer.closing(rendered.after)
    content = b"".join([*rendered.segments, closing])
    if rendered.markers is not None:
        places = [*([] if rendered.head_mark is None else [rendered.head_mark]), *place(rendered.blocks)]
        until = _long_until(rendered, long_items)
        content = with_marks(content, places, markers=rendered.markers, long_until=until)
        return content, hashlib.sha256(content).hexdigest()
    digest = rendered.digest.copy()
    digest.update(closing)
    return content, digest.hexdigest()


def _long_until(rendered: _Rendered, long_items: int) -> int:
    """The byte at which the first so many items end; the head belongs to the first one."""
    reached = bisect_right(rendered.ends, long_items, key=operator.itemgetter(0))
    return rendered.ends[reached - 1][1] if reached else 0


def _shifted(block: Block, by: int) -> Block:
    return block if block.mark_at is None else replace(block, mark_at=block.mark_at + by)


def _groups(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    for speaker, run in groupby(items, key=_speaker):
        if speaker == "user":
            yield from ((item,) for item in run)
        else:
            yield tuple(run)


def _speaker(item: Item) -> str:
    match item:
        case UserText():
            return "user"
        case ToolResult():
            return "tool"
        case Reasoning() | AssistantText() | ToolCall():
            return "assistant"


def _readable(group: tuple[Item, ...], *, model: str) -> tuple[Item, ...]:
    """The group without the payload of reasoning that another model made: a foreign signature is refused (B054).

    What is left of it is reasoning of no wire, which every renderer passes over.
    """
    return tuple(Reasoning(wire="", payload="") if _is_foreign(item, model) else item for item in group)


def _is_foreign(item: Item, model: str) -> bool:
    return isinstance(item, Reasoning) and item.model not in {"", model}


def with_what_follows(group: Sequence[AnyItem]) -> tuple[AnyItem, ...]:
    """The reply without reasoning at its very end: endpoints refuse reasoning that nothing follows."""
    end = len(group)
    while end and isinstance(group[end - 1], Reasoning):
        end -= 1
    return tuple(group[:end])
