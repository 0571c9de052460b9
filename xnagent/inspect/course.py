"""What agents did, step by step: each request with what its calls came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from xnagent.core.events import Stored
from xnagent.core.ids import AgentId, owner_of
from xnagent.core.items import ToolCall, calls_of
from xnagent.core.spine_events import ReplyReceived, RequestStarted, ToolFinished
from xnagent.core.text import Json
from xnagent.inspect.requests import RequestRow

Row = dict[str, Json]

NO_RESULT: Row = {
    "code": None,
    "label": "",
    "exit_code": None,
    "duration_seconds": None,
    "artifact": None,
    "seq": None,
}
"""Of a call that has no result in the log."""


@dataclass(slots=True)
class _Calls:
    """The calls of each request, in the order in which the model made them."""

    by_request: dict[int, dict[str, Row]] = field(default_factory=dict)
    newest: dict[AgentId, int] = field(default_factory=dict)
    seqs: dict[int, int] = field(default_factory=dict)
    """Where each request was first sent."""

    def take(self, stored: Stored) -> None:
        """One more event."""
        match stored.event:
            case RequestStarted() as event:
                self.seqs.setdefault(event.request, stored.seq)
            case ReplyReceived() as event:
                self.newest[event.agent] = event.request
                self.by_request[event.request] = {call.call_id: _asked(call) for call in calls_of(event.items)}
            case ToolFinished() as event:
                calls = self.by_request.setdefault(self.newest.get(event.agent, 0), {})
                calls[event.call_id] = calls.get(event.call_id, {}) | _answered(event, stored.seq)
            case _:
                pass


def _asked(call: ToolCall) -> Row:
    return {"call_id": call.call_id, "tool": call.name, "arguments": call.arguments, **NO_RESULT}


def _answered(event: ToolFinished, seq: int) -> Row:
    return {
        "call_id": event.call_id,
        "tool": event.tool,
        "code": event.code,
        "label": event.label,
        "exit_code": event.exit_code,
        "duration_seconds": event.duration_seconds,
        "artifact": event.artifact,
        "seq": seq,
    }


def courses_of(events: Iterable[Stored], ledger: Iterable[RequestRow]) -> dict[AgentId, list[Row]]:
    """The steps of each agent in order, requests for summaries of its history among them."""
    calls = _Calls()
    for stored in events:
        calls.take(stored)
    courses: dict[AgentId, list[Row]] = {}
    counts: Counter[AgentId] = Counter()
    for row in ledger:
        agent = owner_of(row.agent)
        counts[agent] += row.purpose == "step"
        number = counts[agent] if row.purpose == "step" else None
        courses.setdefault(agent, []).append(_step(row, number=number, calls=calls))
    return courses


def _step(row: RequestRow, *, number: int | None, calls: _Calls) -> Row:
    return {
        "step": number,
        "purpose": row.purpose,
        "request": row.request,
        "seq": calls.seqs.get(row.request),
        "at": row.at,
        "model": row.model,
        "input_tokens": row.usage.input_tokens,
        "cached_tokens": row.usage.cached_tokens,
        "output_tokens": row.usage.output_tokens,
        "cost_usd": row.cost_usd,
        "duration_seconds": row.duration_seconds,
        "finish": row.finish,
        "fault": row.fault,
        "calls": [{"arguments": "", **call} for call in calls.by_request.get(row.request, {}).values()],
    }
