"""What became of spines: rebases with their receipts, refusals, models that took over; one row each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from xnagent.core.events import Stored
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.spine_events import (
    ModelReplaced,
    PrefixBroken,
    RebaseRefused,
    RebasesSuspended,
    ReplyReceived,
    SpineExtended,
    SpineRebased,
    ToolsChanged,
)
from xnagent.core.summary_events import SummaryFailed, SummaryMade
from xnagent.core.text import Json
from xnagent.inspect.plain import count

Row = dict[str, Json]

SHOWN_TICKETS: Final = 3
NOTHING: Final[Mapping[str, Json]] = {
    "is_refused": False,
    "items_dropped": None,
    "dropped": [],
    "ticketed": [],
    "unreferenced": None,
    "checkpoint_tokens": None,
    "price_usd": None,
    "rent_usd": None,
    "saved_usd": None,
    "break_even_steps": None,
    "tickets": [],
    "first_step": None,
    "last_step": None,
    "first_seq": None,
    "last_seq": None,
    "detail": "",
}
"""What a row says that is no receipt."""
TOLD: Final = frozenset(
    {
        ModelReplaced,
        PrefixBroken,
        RebaseRefused,
        RebasesSuspended,
        ReplyReceived,
        SpineExtended,
        SpineRebased,
        SummaryFailed,
        SummaryMade,
        ToolsChanged,
    }
)
"""The kinds of events that rows are made of."""


@dataclass(slots=True)
class _Course:
    """Where the log is, agent by agent."""

    replies: dict[AgentId, list[int]] = field(default_factory=dict)
    """Places of the replies."""
    began: dict[AgentId, int] = field(default_factory=dict)
    """Place of the first message behind what no rebase replaces, since the last rebase."""

    def take(self, stored: Stored) -> None:
        """One more event."""
        match stored.event:
            case ReplyReceived() as event:
                self.replies.setdefault(event.agent, []).append(stored.seq)
            case SpineExtended() as event if event.kind not in {"objective", "brief"}:
                self.began.setdefault(event.agent, stored.seq)
            case SpineRebased() as event:
                self.began[event.agent] = stored.seq
            case _:
                pass

    def span(self, event: SpineRebased, seq: int) -> tuple[int | None, int | None]:
        """The part of the log that holds what a rebase dropped."""
        replies = self.replies.get(event.agent, [])
        starts = [self.began[event.agent]] if event.agent in self.began else []
        if event.first_step is not None:
            starts += replies[event.first_step - 1 : event.first_step]
        if not starts or event.last_step is None:
            return min(starts, default=None), seq - 1 if starts else None
        following = replies[event.last_step : event.last_step + 1]
        return min(starts), (following[0] if following else seq) - 1


def rebase_rows(events: Iterable[Stored]) -> list[Row]:
    """The rows in the order of the log."""
    rows: list[Row] = []
    course = _Course()
    for stored in (one for one in events if type(one.event) in TOLD):
        row = _row(stored, course)
        if row is not None:
            rows.append({"seq": stored.seq, "at": stored.at, **row})
        course.take(stored)
    return rows


def _row(stored: Stored, course: _Course) -> Row | None:
    match stored.event:
        case SpineRebased() as event:
            return receipt_row(event, span=course.span(event, stored.seq))
        case ModelReplaced() as event:
            return _handover(event)
        case ToolsChanged() as event:
            return _retooled(event)
        case PrefixBroken() as event:
            return _undeclared(event)
        case RebaseRefused() as event:
            sizes: Row = {"tokens_before": event.tokens_before, "tokens_after": event.tokens_after}
            told: Row = {"is_refused": True, "detail": event.detail}
            return {"agent": event.agent, "cause": event.cause, **sizes, **NOTHING, **told}
        case RebasesSuspended() as event:
            sizes = {"tokens_before": event.tokens, "tokens_after": event.tokens}
            told = {"is_refused": True, "detail": event.detail}
            return {"agent": event.agent, "cause": "suspended", **sizes, **NOTHING, **told}
        case SummaryMade() | SummaryFailed() as event:
            return _summary(event)
        case _:
            return None


def _summary(event: SummaryMade | SummaryFailed) -> Row:
    """The call that a rebase with the cause `summary` stands on, or that came to nothing."""
    if isinstance(event, SummaryFailed):
        last = "; no more are tried in this run" if event.is_last else ""
        told: Row = {"is_refused": True, "detail": f"round {event.round} failed: {event.detail}{last}"}
        sizes: Row = {"tokens_before": event.tokens, "tokens_after": event.tokens}
        return {"agent": event.agent, "cause": f"summary: {event.fault}", **sizes, **NOTHING, **told}
    values = f"{len(event.values)} values, {event.values_kept} of them as before"
    lost = [
        *(f"{name} dropped" for name in event.values_dropped),
        *(f"{name} refused" for name in event.values_refused),
    ]
    detail = ", ".join([f"round {event.round} asked in {event.requests} requests: {values}", *lost])
    sizes = {"tokens_before": event.tokens_before, "tokens_after": event.tokens_after}
    told = {"price_usd": event.cost_usd, "detail": detail}
    return {"agent": event.agent, "cause": "summary: made", **sizes, **NOTHING, **told}


def _handover(event: ModelReplaced) -> Row:
    return {
        "agent": event.agent,
        "cause": f"model: {event.cause}",
        "tokens_before": event.lost_tokens,
        "tokens_after": event.lost_tokens,
        **NOTHING,
        "items_dropped": 0,
        "checkpoint_tokens": 0,
        "price_usd": event.price_usd,
        "detail": f"{event.model} in place of {event.replaced}; {event.detail}",
    }


def _retooled(event: ToolsChanged) -> Row:
    changes = [*(f"without {name}" for name in event.removed), *(f"with {name}" for name in event.added)]
    return {
        "agent": event.agent,
        "cause": "tools",
        "tokens_before": event.lost_tokens,
        "tokens_after": event.lost_tokens,
        **NOTHING,
        "items_dropped": 0,
        "checkpoint_tokens": 0,
        "price_usd": event.lost_usd,
        "detail": ", ".join(changes) or "other definitions",
    }


def _undeclared(event: PrefixBroken) -> Row:
    return {
        "agent": event.agent,
        "cause": f"broken: {event.declared or 'undeclared'}",
        "tokens_before": event.lost_tokens,
        "tokens_after": event.lost_tokens,
        **NOTHING,
        "items_dropped": 0,
        "checkpoint_tokens": 0,
        "price_usd": event.lost_usd,
        "detail": f"request {event.request} at {event.segment}: {event.detail}",
    }


def receipt_row(event: SpineRebased, *, span: tuple[int | None, int | None]) -> Row:
    """What a rebase cost, what it dropped, and where that can be read; `span` is its part of the log."""
    first, last = span
    return {
        "agent": event.agent,
        "cause": event.cause,
        "is_refused": False,
        "tokens_before": event.tokens_before,
        "tokens_after": event.tokens_after,
        "items_dropped": event.items_dropped,
        "dropped": [asdict(part) for part in event.dropped],
        "ticketed": [asdict(one) for one in event.ticketed],
        "unreferenced": event.unreferenced,
        "checkpoint_tokens": event.checkpoint_tokens,
        "price_usd": event.price_usd,
        "rent_usd": event.rent_usd,
        "saved_usd": event.saved_usd,
        "break_even_steps": event.break_even_steps,
        "tickets": list(event.tickets),
        "first_step": event.first_step,
        "last_step": event.last_step,
        "first_seq": first,
        "last_seq": last,
        "detail": where_to_read(event, span=span),
    }


def where_to_read(event: SpineRebased, *, span: tuple[int | None, int | None]) -> str:
    """Where what a rebase dropped can be read, for people."""
    parts = []
    if event.first_step is not None and event.agent != PLANNER:
        parts.append(f"run_inspect {event.agent} {event.first_step} to {event.last_step}")
    if span[0] is not None:
        parts.append(f"log {count(span[0])} to {count(span[1])}")
    tickets = [one.ticket for one in event.ticketed] + list(event.tickets)
    if tickets:
        more = f" and {len(tickets) - SHOWN_TICKETS} more" if len(tickets) > SHOWN_TICKETS else ""
        parts.append(f"read {', '.join(tickets[:SHOWN_TICKETS])}{more}")
    return "; ".join(parts)
