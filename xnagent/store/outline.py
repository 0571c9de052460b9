"""A session without what its Workers said and what their calls came to: half of the events, a fifth of the bytes.

Of other agents than the Planner it has each reply without its items, and of their calls those results that say that the
call was denied, maybe some more. Folded `without_work`, it is the whole session's state but for the others' spines and
work logs, the calls under way, the calibrations and the denials. What is left out is not read, so damage there is not
noticed either; an event of an unknown kind is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from xnagent.core.events import Event, Stored
from xnagent.core.evolve import evolve, frozen
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.spine_events import ReplyReceived, ToolFinished
from xnagent.core.tokens import Usage
from xnagent.store.codec import decode, unpack

OUTLINE: Final = """
SELECT seq, at, type, agent, enc, payload FROM events WHERE {where} seq > {value}
  AND (agent IS NULL OR agent = 'planner'
    OR type NOT IN ('tool_started', 'tool_finished', 'result_offloaded', 'result_shortened')
    OR (type = 'tool_finished' AND seq NOT IN
      (SELECT ended_seq FROM tool_calls WHERE {where} ended_seq IS NOT NULL AND code <> 'DENIED')))
ORDER BY seq LIMIT 20000
"""
"""`tool_calls` has one row for a call's id: where an id came twice, the end of the first is in the outline too."""


def outlined(rows: Iterable[tuple[Any, ...]]) -> list[Stored]:
    """Events of an outline from their rows: place, time, type, agent, encoding, payload."""
    return [_stored(row) for row in rows]


def _stored(row: tuple[Any, ...]) -> Stored:
    seq, at, kind, agent, encoding, payload = row
    content = unpack(encoding, payload, what=f"event {seq}")
    is_other = kind == "reply_received" and agent != PLANNER
    return Stored(seq=seq, at=at, event=_reply(content, seq=seq) if is_other else decode(content, seq=seq))


def without_work(events: Iterable[Stored]) -> tuple[Stored, ...]:
    """What of an outline can be folded: results of calls that nobody is seen to make are left out."""
    return tuple(one for one in events if not is_work_of_others(one.event))


def is_work_of_others(event: Event) -> bool:
    """Whether it is a result of another agent than the Planner."""
    return isinstance(event, ToolFinished) and event.agent != PLANNER


@dataclass(slots=True, kw_only=True, eq=False)
class _Bare:
    """A ReplyReceived whose items are not even looked at; the same fields, so that it can become one."""

    agent: AgentId
    request: int
    items: Annotated[tuple[()], Field(validation_alias="")] = ()
    usage: Usage
    cost_usd: float | None
    finish: str
    duration_seconds: float
    first_token_seconds: float | None = None
    note: str = ""
    type: Literal["reply_received"] = "reply_received"


@cache
def _validate() -> Callable[[bytes], _Bare]:
    return TypeAdapter(_Bare).validator.validate_json


def _reply(content: bytes, *, seq: int) -> Event:
    try:
        return frozen(_validate()(content), ReplyReceived)
    except ValidationError:
        return _without_items(decode(content, seq=seq))


def _without_items(event: Event) -> Event:
    return evolve(event, items=()) if isinstance(event, ReplyReceived) else event
