"""When a spine is replaced by a checkpoint, and by what. No model is asked (I4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from xnagent.core.ids import TICKET
from xnagent.core.items import AssistantText, Item, ToolCall, ToolResult, UserText, closed_groups
from xnagent.core.pricing import Price, price_for, reread_usd, write_usd
from xnagent.core.spine import Spine, estimate
from xnagent.core.text import canonical, clip
from xnagent.core.tokens import estimate_items

RebaseCause = Literal["soft", "hard", "economic", "overflow"]

MARGIN_TOKENS: Final = 256
CHECKPOINT_FLOOR_TOKENS: Final = 400
"""No checkpoint is smaller; below this the economic rule need not render one."""
RETRY_GROWTH_SHARE: Final = 0.1
"""After a refusal the spine must have grown by this share of the usable window."""
MAX_UNANSWERED_REBASES: Final = 2
SHORTEST_CLIP: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RebasePolicy:
    """The user's choice (`spine.*` in the settings)."""

    policy: Literal["economic", "threshold"] = "economic"
    soft_share: float = 0.6
    """Share of the usable window from which the spine is rebased before the step's news is appended."""
    hard_share: float = 0.9
    """Share that a request never passes."""
    min_gain_share: float = 0.2
    """A rebase must free this share of what is there, else it is refused (I7)."""
    tail_share: float = 0.25
    """At most this share of the usable window is kept as tail."""
    result_characters: int = 6_000
    """Tool results and texts in the tail are clipped to this."""
    argument_characters: int = 2_000
    """Arguments of calls in the tail that are longer are replaced by a marker."""
    warn_shares: tuple[float, ...] = (0.5, 0.75, 0.9)
    """Shares of the usable window that are told when a request first reaches them (M114)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much fits into a request."""

    window_tokens: int
    max_output_tokens: int
    head_tokens: int
    """System text and tools."""

    @property
    def usable_tokens(self) -> int:
        """What is left of the window for input once the output has its place (M62)."""
        return max(0, self.window_tokens - self.max_output_tokens - MARGIN_TOKENS)


def room_for(spine: Spine, room: Room, *, cause: str) -> Room:
    """The room to plan a rebase for: after an overflow, what fits is less than what was sent."""
    if cause != "overflow":
        return room
    usable = min(room.usable_tokens, spine.sent_estimate)
    return replace(room, window_tokens=usable + room.max_output_tokens + MARGIN_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebasePlan:
    """What the spine would become."""

    items: tuple[Item, ...]
    tokens_before: int
    tokens_after: int
    items_dropped: int
    checkpoint_tokens: int
    unreferenced: int = 0
    """Dropped texts and results that no state and no ticket names: they are in the log only (M26)."""

    def has_gain(self, policy: RebasePolicy) -> bool:
        """Whether it frees enough (I7)."""
        return self.tokens_before - self.tokens_after >= max(1, policy.min_gain_share * self.tokens_before)


def is_over(spine: Spine, room: Room, *, policy: RebasePolicy) -> bool:
    """Whether the spine as it is must not be sent."""
    return estimate(spine, room.head_tokens) > policy.hard_share * room.usable_tokens


def is_due(spine: Spine, room: Room, *, policy: RebasePolicy, price: Price | None = None) -> RebaseCause | None:
    """Why the spine should be rebased now, before anything is appended; None if it should not.

    `economic` is rent or buy: once the droppable part has been re-read for as much money as it costs to write the
    checkpoint, it goes; never worse than twice the best schedule in hindsight. `threshold` stands behind it.
    """
    if len(spine.items) <= spine.head + 1 or spine.is_open or spine.pending_request is not None:
        return None
    size = estimate(spine, room.head_tokens)
    if spine.refused_at is not None and size - spine.refused_at < RETRY_GROWTH_SHARE * room.usable_tokens:
        return "hard" if is_over(spine, room, policy=policy) else None
    if is_over(spine, room, policy=policy):
        return "hard"
    if size > policy.soft_share * room.usable_tokens:
        return "soft"
    return "economic" if policy.policy == "economic" and _has_paid(spine, price, size=size) else None


def _has_paid(spine: Spine, price: Price | None, *, size: int) -> bool:
    price = None if price is None else price_for(price, size)
    if price is None or price.cached_usd <= 0:
        return False
    kept = spine.tokens - spine.tokens_at_state + CHECKPOINT_FLOOR_TOKENS
    return reread_usd(spine.reread_tokens, price) >= write_usd(kept, price)


def plan_rebase(spine: Spine, checkpoint: str, *, room: Room, policy: RebasePolicy) -> RebasePlan:
    """The spine's first message, the checkpoint, and the tail: what came after the newest state message.

    The tail is cut only between closed groups, from its old end, until it fits into its share of the window; large
    results, texts and arguments in it are clipped. Reasoning is kept whole with its reply.
    """
    boundary = spine.head if spine.state_at is None else max(spine.head, spine.state_at + 1)
    message = UserText(text=checkpoint, origin="state")
    tail = _tail(spine.items[boundary:], policy, budget=int(policy.tail_share * room.usable_tokens))
    items = (*spine.items[: spine.head], message, *tail)
    before = estimate(spine, room.head_tokens)
    dropped = spine.items[spine.head : len(spine.items) - len(tail)]
    return RebasePlan(
        items=items,
        tokens_before=before,
        tokens_after=round((room.head_tokens + estimate_items(items)) * _scale(spine, room)),
        items_dropped=len(dropped),
        unreferenced=sum(map(_is_only_in_log, dropped)),
        checkpoint_tokens=estimate_items([message]),
    )


def _is_only_in_log(item: Item) -> bool:
    return isinstance(item, AssistantText | ToolResult) and bool(item.text) and not TICKET.search(item.text)


def _scale(spine: Spine, room: Room) -> float:
    """What the provider counts for one estimated token, so that before and after are measured alike (T8)."""
    estimated = room.head_tokens + spine.tokens
    return estimate(spine, room.head_tokens) / estimated if estimated else 1.0


def _tail(items: Sequence[Item], policy: RebasePolicy, *, budget: int) -> tuple[Item, ...]:
    kept: list[tuple[Item, ...]] = []
    room = budget
    for group in reversed(closed_groups(items)):
        clipped = tuple(clip_item(item, policy) for item in group)
        clipped = clipped if kept else _squeezed(group, policy, budget=budget)
        room -= estimate_items(clipped)
        if room < 0:
            break
        kept.append(clipped)
    return tuple(item for group in reversed(kept) for item in group)


def _squeezed(group: tuple[Item, ...], policy: RebasePolicy, *, budget: int) -> tuple[Item, ...]:
    """What is long in the newest group is clipped harder until it fits: many results are no reason to drop it."""
    limit = policy.result_characters
    clipped = tuple(clip_item(item, policy) for item in group)
    while estimate_items(clipped) > budget and limit > SHORTEST_CLIP:
        limit //= 2
        harder = replace(policy, result_characters=limit, argument_characters=min(limit, policy.argument_characters))
        clipped = tuple(clip_item(item, harder) for item in group)
    return clipped


def clip_item(item: Item, policy: RebasePolicy) -> Item:
    """The item as a tail keeps it."""
    match item:
        case ToolResult() | AssistantText():
            return replace(
                item, text=clip(item.text, policy.result_characters, how_to_get="see run_inspect or the log")
            )
        case ToolCall() if len(item.arguments) > policy.argument_characters:
            marker = {"_omitted": f"{len(item.arguments)} characters of arguments, left out at a rebase"}
            return replace(item, arguments=canonical(marker))
        case _:
            return item
