"""Old results of looking, in the tail of a rebase, as tickets: the last of the free rungs before a rebase (M98, M102).

Only at a rebase, never in place: what was sent is not changed (I5). Only results of tools that change nothing, since
their call can be made again, and never a page of a stored output, so that reading one doesn't lead to the next (T21).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from xnagent.core.ids import TICKET, CallId, Ticket
from xnagent.core.items import Item, ToolCall, ToolResult, calls_of
from xnagent.core.tokens import estimate_item
from xnagent.core.values import dataclass

LOOKING_TOOLS: Final = frozenset({"read", "grep", "glob"})
KEPT_RESULTS: Final = 4
MANY_RESULTS: Final = 8
MANY_TOKENS: Final = 80_000
LEAST_CHARACTERS: Final = 600
"""A shorter result says about as much as its ticket would take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticketed:
    """A result that a rebase replaced by a ticket."""

    call_id: CallId
    ticket: Ticket
    tokens: int
    """What that saved."""


def old_results(tail: Sequence[Item]) -> tuple[CallId, ...]:
    """The results that stand as tickets after a rebase: of more than 8, or of 80,000 tokens, all but the newest 4."""
    calls = {call.call_id: call for call in calls_of(tail) if call.name in LOOKING_TOOLS}
    results = [item for item in tail if isinstance(item, ToolResult) and item.call_id in calls]
    if len(results) <= MANY_RESULTS and sum(map(estimate_item, results)) <= MANY_TOKENS:
        return ()
    return tuple(
        result.call_id
        for result in results[:-KEPT_RESULTS]
        if len(result.text) >= LEAST_CHARACTERS and not reads_ticket(calls[result.call_id])
    )


def reads_ticket(call: ToolCall) -> bool:
    """Whether the call reads a stored output."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return False
    named = arguments.values() if isinstance(arguments, dict) else ()
    return any(isinstance(value, str) and TICKET.match(value.strip()) for value in named)


def with_tickets(
    tail: Sequence[Item], tickets: Mapping[CallId, Ticket], *, whole: Iterable[Item] = ()
) -> tuple[tuple[Item, ...], tuple[Ticketed, ...]]:
    """The tail with tickets in place of these results, and what that saved.

    `whole` are the items as they were before the tail was clipped: so long is what a ticket holds.
    """
    if not tickets:
        return tuple(tail), ()
    names = {call.call_id: call.name for call in calls_of(tail)}
    sizes = {item.call_id: len(item.text) for item in (*tail, *whole) if isinstance(item, ToolResult)}
    items: list[Item] = []
    found: list[Ticketed] = []
    for item in tail:
        new = item
        if isinstance(item, ToolResult) and item.call_id in tickets:
            ticket = tickets[item.call_id]
            new = replace(item, text=_told(names.get(item.call_id, "a tool"), sizes[item.call_id], ticket=ticket))
            saved = estimate_item(item) - estimate_item(new)
            found.append(Ticketed(call_id=item.call_id, ticket=ticket, tokens=saved))
        items.append(new)
    return tuple(items), tuple(found)


def _told(tool: str, characters: int, *, ticket: Ticket) -> str:
    return (
        f"[This older result of {tool} was left out at a rebase: {characters:,} characters. To see it as it was then, "
        f"read {ticket} (a part: with offset and limit); to see how it is now, make the call again.]"
    )
