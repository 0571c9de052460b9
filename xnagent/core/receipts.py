"""What a rebase cost, what it saves, what it dropped and where that can be read: its event is its receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from xnagent.core.due import Conditions
from xnagent.core.ids import PLANNER, TICKET, Ticket
from xnagent.core.items import Item, ToolResult, UserText, closed_groups
from xnagent.core.pricing import PER_MILLION, long_write_usd, price_for, short_write_usd
from xnagent.core.rebase import RebasePlan, Room, scale_of
from xnagent.core.rent import Costs, Rates, Sizes, costs
from xnagent.core.spine import Spine
from xnagent.core.spine_events import DroppedPart, SpineRebased
from xnagent.core.tokens import estimate_item
from xnagent.core.values import dataclass

EDITION: Final = 2
NAMED_TICKETS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """When and why."""

    cause: str
    cursor: int
    """Number of the newest cause."""
    steps: int
    """How many steps the agent has made."""
    manifest: str
    conditions: Conditions


def receipt(spine: Spine, plan: RebasePlan, *, room: Room, occasion: Occasion) -> SpineRebased:
    """The event of the rebase."""
    last = occasion.steps - plan.steps_kept
    steps = sum(not isinstance(group[0], UserText) for group in closed_groups(plan.dropped))
    rates, now, later = occasion.conditions.rates, None, None
    if rates is not None:
        now, later = _costs(spine, plan, room=room, occasion=occasion, rates=rates)
    return SpineRebased(
        agent=spine.agent,
        items=plan.items,
        cursor=occasion.cursor if spine.agent == PLANNER else 0,
        cause=occasion.cause,
        tokens_before=plan.tokens_before,
        tokens_after=plan.tokens_after,
        items_dropped=plan.items_dropped,
        checkpoint_tokens=plan.checkpoint_tokens,
        manifest=occasion.manifest,
        unreferenced=plan.unreferenced,
        price_usd=None if rates is None else _written_usd(plan, _fixed(spine, room), rates=rates),
        break_even_steps=_break_even(now, later),
        edition=EDITION,
        dropped=_parts(plan.dropped),
        ticketed=plan.ticketed,
        tickets=_tickets(plan.dropped),
        first_step=last - steps + 1 if steps else None,
        last_step=last if steps else None,
        rent_usd=None if rates is None else spine.rent.paid_usd,
        saved_usd=None if later is None else later.rent_usd,
    )


def _fixed(spine: Spine, room: Room) -> int:
    return round((room.head_tokens + spine.first_tokens) * scale_of(spine, room))


def _costs(spine: Spine, plan: RebasePlan, *, room: Room, occasion: Occasion, rates: Rates) -> tuple[Costs, Costs]:
    """For the next request, and for each one after it; what may be fetched again is not paid yet."""
    rates = replace(rates, recall_share=0.0)
    whole, fixed = plan.tokens_before, _fixed(spine, room)
    is_cold = occasion.conditions.has_expired or not spine.requests
    held = 0 if is_cold else min(whole, spine.held_tokens or spine.sent_estimate)
    after = min(whole, plan.tokens_after)
    now = Sizes(whole_tokens=whole, after_tokens=after, fixed_tokens=fixed, held_tokens=held)
    later = Sizes(whole_tokens=whole, after_tokens=after, fixed_tokens=fixed, held_tokens=whole)
    return costs(now, rates), costs(later, rates)


def _written_usd(plan: RebasePlan, fixed: int, *, rates: Rates) -> float:
    price = price_for(rates.price, plan.tokens_after)
    write = long_write_usd(price) if rates.is_long else short_write_usd(price)
    return max(0, plan.tokens_after - fixed) * write / PER_MILLION


def _break_even(now: Costs | None, later: Costs | None) -> float | None:
    if now is None or later is None or later.rent_usd <= 0:
        return None
    return now.price_usd / later.rent_usd


def _parts(dropped: Iterable[Item]) -> tuple[DroppedPart, ...]:
    counts: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for item in dropped:
        counts[item.kind] += 1
        tokens[item.kind] += estimate_item(item)
    return tuple(DroppedPart(kind=kind, items=counts[kind], tokens=tokens[kind]) for kind in sorted(counts))


def _tickets(dropped: Sequence[Item]) -> tuple[Ticket, ...]:
    """The newest first."""
    texts = (item.text for item in reversed(dropped) if isinstance(item, ToolResult))
    found = dict.fromkeys(Ticket(match) for text in texts for match in TICKET.findall(text))
    return tuple(found)[:NAMED_TICKETS]
