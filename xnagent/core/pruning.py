"""Long results cut to their ends before a model is asked for a summary: it may make that unnecessary (M93).

Everything else stays, so a pruned history loses nothing that cannot be read again. Only at the start of a new lineage,
never in place (I5), never what no request has held yet, and never a page of a stored output (T21)
or the instructions of a skill (M113).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from xnagent.core.clearing import Ticketed, reads_ticket
from xnagent.core.ids import CallId, Ticket
from xnagent.core.items import Item, ToolResult, UserText, calls_of, closed_groups
from xnagent.core.project import SKILL_TOOL
from xnagent.core.rebase import RebasePlan, RebasePolicy, Room, scale_of, size_of
from xnagent.core.spine import Spine
from xnagent.core.tokens import estimate_item, estimate_items

LONG_CHARACTERS: Final = 8_192
HEAD_CHARACTERS: Final = 4_096
TAIL_CHARACTERS: Final = 1_024
RELIEVED_SHARE: Final = 0.5
"""Pruning is enough where it leaves at most this share of what was there."""

NOTE: Final = """\
<checkpoint number="{number}" replaces="0 items">
The middles of long results below were left out to make room; each says where it can be read whole. Nothing else of your
earlier messages has changed.
</checkpoint>"""


def long_results(spine: Spine) -> tuple[CallId, ...]:
    """The results that pruning would cut."""
    calls = {call.call_id: call for call in calls_of(spine.items) if call.name != SKILL_TOOL and not reads_ticket(call)}
    return tuple(
        item.call_id
        for item in spine.items[: spine.sent_items]
        if isinstance(item, ToolResult) and len(item.text) > LONG_CHARACTERS and item.call_id in calls
    )


def plan_pruning(spine: Spine, *, room: Room, tickets: Mapping[CallId, Ticket]) -> RebasePlan:
    """The spine with these results cut to their ends, behind the checkpoint that is there, or a note if none is."""
    has_checkpoint = spine.generation > 0 and spine.state_at == spine.head
    start = spine.head + has_checkpoint
    own = UserText(text=NOTE.format(number=spine.generation + 1), origin="state")
    note = spine.items[spine.head] if has_checkpoint else own
    rest, ticketed = _cut(spine.items[start:], tickets)
    items = (*spine.items[: spine.head], note, *rest)
    return RebasePlan(
        items=items,
        tokens_before=size_of(spine, room),
        tokens_after=round((room.head_tokens + estimate_items(items)) * scale_of(spine, room)),
        items_dropped=0,
        checkpoint_tokens=estimate_item(note),
        ticketed=ticketed,
        steps_kept=sum(not isinstance(group[0], UserText) for group in closed_groups(rest)),
    )


def is_enough(plan: RebasePlan, *, room: Room, policy: RebasePolicy) -> bool:
    """Whether what pruning leaves is small enough that nothing else has to be done."""
    most = min(RELIEVED_SHARE * plan.tokens_before, policy.soft_share * room.usable_tokens)
    return plan.has_gain(policy) and plan.tokens_after <= most


def _cut(items: Sequence[Item], tickets: Mapping[CallId, Ticket]) -> tuple[tuple[Item, ...], tuple[Ticketed, ...]]:
    cut: list[Item] = []
    told: list[Ticketed] = []
    for item in items:
        new = item
        if isinstance(item, ToolResult) and item.call_id in tickets:
            ticket = tickets[item.call_id]
            new = replace(item, text=_ends(item.text, ticket=ticket))
            told.append(Ticketed(call_id=item.call_id, ticket=ticket, tokens=estimate_item(item) - estimate_item(new)))
        cut.append(new)
    return tuple(cut), tuple(told)


def _ends(text: str, *, ticket: Ticket) -> str:
    omitted = len(text) - HEAD_CHARACTERS - TAIL_CHARACTERS
    how = f"read {ticket} for the whole, in parts with offset and limit"
    middle = f"[… {omitted:,} characters left out to make room; {how} …]"
    return f"{text[:HEAD_CHARACTERS]}\n{middle}\n{text[-TAIL_CHARACTERS:]}"
