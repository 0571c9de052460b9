"""What a spine is replaced by: a checkpoint and a tail. No model is asked (I4). `due.py` says when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from xnagent.core.clearing import Ticketed, with_tickets
from xnagent.core.ids import TICKET, CallId, Ticket
from xnagent.core.items import AssistantText, Item, ToolCall, ToolResult, UserText, calls_of, closed_groups
from xnagent.core.project import SKILL_TOOL
from xnagent.core.spine import Spine, estimate
from xnagent.core.text import canonical, clip
from xnagent.core.tokens import estimate_items
from xnagent.core.values import dataclass

RebaseCause = Literal["soft", "hard", "economic", "expired", "overflow", "asked"]
"""`expired`: the cache no longer holds the spine, so that it costs no more to write a smaller one."""

MARGIN_TOKENS: Final = 256
MAX_UNANSWERED_REBASES: Final = 2
SHORTEST_CLIP: Final = 400
LARGEST_TAIL_SHARE: Final = 0.25
"""Of the usable window, for a tail that is larger than its share because the window is small."""


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
    tail_share: float = 0.05
    """At most this share of the usable window is kept as tail: all of it is written again."""
    least_tail_tokens: int = 3_000
    """In a small window it may be as many tokens, or a quarter of the usable window if that is less."""
    tail_tokens: int | None = 8_000
    """And at most so many tokens, however large the window is; None: no limit but the share."""
    newest_share: float | None = 0.25
    """What the newest step alone may take, which the model may not have seen yet; None: as much as the tail."""
    reserve_tokens: int = 2_000
    """A Worker whose history fits no more is asked for its hand-in while so much room is left (M104)."""
    result_characters: int = 6_000
    """Tool results and texts in the tail are clipped to this."""
    argument_characters: int = 2_000
    """Arguments of calls in the tail that are longer are replaced by a marker."""
    warn_shares: tuple[float, ...] = (0.5, 0.75, 0.9)
    """Shares of the usable window that are told when a request first reaches them (M114)."""

    @property
    def may_drop(self) -> bool:
        """Whether anything may ever be dropped."""
        return self.min_gain_share < 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much fits into a request."""

    window_tokens: int
    max_output_tokens: int
    head_tokens: int
    """System text and tools."""
    ratio: float = 1.0
    """What the model counts for one estimated token (`calibrate`)."""

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
    dropped: tuple[Item, ...] = ()
    """What stands in it no more."""
    ticketed: tuple[Ticketed, ...] = ()
    """Results of the tail that stand there as tickets now."""
    steps_kept: int = 0
    """Replies in the tail."""

    def has_gain(self, policy: RebasePolicy) -> bool:
        """Whether it frees enough (I7)."""
        return frees_enough(self.tokens_before, self.tokens_after, policy=policy)


def frees_enough(before: int, after: int, *, policy: RebasePolicy) -> bool:
    """Whether a rebase from one size to the other frees the share that the policy asks for (I7)."""
    return before - after >= max(1, policy.min_gain_share * before)


def size_of(spine: Spine, room: Room) -> int:
    """Tokens of the next request."""
    return estimate(spine, room.head_tokens, ratio=room.ratio)


def tail_budget(room: Room, policy: RebasePolicy) -> int:
    """The most estimated tokens that a tail may have."""
    least = min(policy.least_tail_tokens, LARGEST_TAIL_SHARE * room.usable_tokens)
    budget = max(least, policy.tail_share * room.usable_tokens)
    if policy.tail_tokens is not None:
        budget = min(budget, policy.tail_tokens)
    return int(budget / room.ratio)


def kept_tail(spine: Spine, room: Room, *, policy: RebasePolicy) -> tuple[Item, ...]:
    """What came after the newest state message, as far as it may stay.

    It is cut only between closed groups, from its old end, until it fits into its share of the window; large results,
    texts and arguments in it are clipped. Reasoning is kept whole with its reply.
    """
    boundary = spine.head if spine.state_at is None else max(spine.head, spine.state_at + 1)
    budget = tail_budget(room, policy)
    newest = budget if policy.newest_share is None else int(policy.newest_share * room.usable_tokens / room.ratio)
    return _tail(spine.items[boundary:], policy, budget=budget, newest=max(budget, newest))


def plan_rebase(
    spine: Spine,
    checkpoint: str,
    *,
    room: Room,
    policy: RebasePolicy,
    tickets: Mapping[CallId, Ticket] | None = None,
) -> RebasePlan:
    """The spine's first message, the checkpoint, and the tail, where results that have a ticket are told by it."""
    whole = kept_tail(spine, room, policy=policy)
    tail, ticketed = with_tickets(whole, tickets or {}, whole=spine.items)
    message = UserText(text=checkpoint, origin="state")
    items = (*spine.items[: spine.head], message, *tail)
    dropped = spine.items[spine.head : len(spine.items) - len(tail)]
    return RebasePlan(
        items=items,
        tokens_before=size_of(spine, room),
        tokens_after=round((room.head_tokens + estimate_items(items)) * scale_of(spine, room)),
        items_dropped=len(dropped),
        unreferenced=sum(map(_is_only_in_log, dropped)),
        checkpoint_tokens=estimate_items([message]),
        dropped=dropped,
        ticketed=ticketed,
        steps_kept=sum(_is_reply(group) for group in closed_groups(tail)),
    )


def _is_reply(group: Sequence[Item]) -> bool:
    return not isinstance(group[0], UserText)


def _is_only_in_log(item: Item) -> bool:
    return isinstance(item, AssistantText | ToolResult) and bool(item.text) and not TICKET.search(item.text)


def scale_of(spine: Spine, room: Room) -> float:
    """What the provider counts for one estimated token, so that before and after are measured alike (T8)."""
    estimated = room.head_tokens + spine.tokens
    return size_of(spine, room) / estimated if estimated else room.ratio


def _tail(items: Sequence[Item], policy: RebasePolicy, *, budget: int, newest: int) -> tuple[Item, ...]:
    kept: list[tuple[Item, ...]] = []
    room = budget
    for group in reversed(closed_groups(items)):
        clipped = _clipped(group, policy) if kept else _squeezed(group, policy, budget=newest)
        tokens = estimate_items(clipped)
        if tokens > (room if kept else newest):
            break
        room -= tokens
        kept.append(clipped)
    return tuple(item for group in reversed(kept) for item in group)


def _squeezed(group: tuple[Item, ...], policy: RebasePolicy, *, budget: int) -> tuple[Item, ...]:
    """What is long in the newest group is clipped harder until it fits: many results are no reason to drop it."""
    limit = policy.result_characters
    clipped = _clipped(group, policy)
    while estimate_items(clipped) > budget and limit > SHORTEST_CLIP:
        limit //= 2
        harder = replace(policy, result_characters=limit, argument_characters=min(limit, policy.argument_characters))
        clipped = _clipped(group, harder)
    return clipped


def _clipped(group: tuple[Item, ...], policy: RebasePolicy) -> tuple[Item, ...]:
    """The instructions of a skill are kept whole, or dropped with their group (M113)."""
    whole = {call.call_id for call in calls_of(group) if call.name == SKILL_TOOL}
    return tuple(
        item if isinstance(item, ToolResult) and item.call_id in whole else clip_item(item, policy) for item in group
    )


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
