"""Tables that answer questions about the log quickly.

They change in the transaction that appends the event, and can be made again from the events alone.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Final, cast

from xnagent.core.events import Event, SessionInterrupted, SessionResumed, SessionSettled, SessionStarted, Stored
from xnagent.core.fork_events import SessionForked
from xnagent.core.ids import AgentId
from xnagent.core.spine_events import ReplyReceived, RequestFailed, RequestStarted, ToolFinished, ToolStarted
from xnagent.core.text import clean, first_line
from xnagent.core.tokens import Usage
from xnagent.store.codec import decode, unpack

MAX_INTEGER: Final = 2**63 - 1
"""What SQLite can hold."""

PAGE_EVENTS: Final = 500

_CLEAR: Final = ("DELETE FROM session", "DELETE FROM tool_calls", "DELETE FROM requests")

_BEGIN: Final = """
INSERT INTO session(id, status, last_seq, cost_usd) SELECT value, 'new', 0, 0.0 FROM meta WHERE key = 'session'
"""

BY_TYPE: Final[Mapping[type[Any], str]] = {
    SessionStarted: """
UPDATE session SET objective = :headline, repository = :repository, status = 'open', created = coalesce(created, :at)
{where}
""",
    SessionResumed: "UPDATE session SET status = 'open', outcome = NULL, exit_code = NULL {where}",
    SessionForked: "UPDATE session SET created = :at {where}",
    SessionInterrupted: "UPDATE session SET status = 'interrupted' {where}",
    SessionSettled: "UPDATE session SET status = 'settled', outcome = :outcome, exit_code = :exit_code {where}",
    ToolStarted: """
INSERT INTO tool_calls({column}agent, call_id, tool, effect, state, started_seq)
VALUES({value}:agent, :call_id, :tool, :effect, 'started', :seq)
ON CONFLICT({column}agent, call_id) DO UPDATE SET tool = :tool, effect = :effect, state = 'started',
  started_seq = :seq, ended_seq = NULL, code = NULL
""",
    ToolFinished: """
INSERT INTO tool_calls({column}agent, call_id, tool, state, ended_seq, code)
VALUES({value}:agent, :call_id, :tool, 'finished', :seq, :code)
ON CONFLICT({column}agent, call_id) DO UPDATE SET state = 'finished', ended_seq = :seq, code = :code
""",
    RequestStarted: """
INSERT INTO requests({column}request, agent, started_seq, sha256, size_bytes, estimate_tokens)
VALUES({value}:request, :agent, :seq, :sha256, :size_bytes, :estimate_tokens)
ON CONFLICT({column}request) DO UPDATE SET agent = :agent, started_seq = :seq, sha256 = :sha256,
  size_bytes = :size_bytes, estimate_tokens = :estimate_tokens, reply_seq = NULL, input_tokens = NULL,
  cached_tokens = NULL, cache_write_tokens = NULL, output_tokens = NULL, reasoning_tokens = NULL, cost_usd = NULL,
  fault = NULL
""",
    RequestFailed: """
INSERT INTO requests({column}request, agent, fault) VALUES({value}:request, :agent, :fault)
ON CONFLICT({column}request) DO UPDATE SET fault = :fault
""",
    ReplyReceived: """
INSERT INTO requests({column}request, agent, reply_seq, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
  reasoning_tokens, cost_usd)
VALUES({value}:request, :agent, :seq, :input_tokens, :cached_tokens, :cache_write_tokens, :output_tokens,
  :reasoning_tokens, :cost_usd)
ON CONFLICT({column}request) DO UPDATE SET reply_seq = :seq, input_tokens = :input_tokens,
  cached_tokens = :cached_tokens, cache_write_tokens = :cache_write_tokens, output_tokens = :output_tokens,
  reasoning_tokens = :reasoning_tokens, cost_usd = :cost_usd, fault = NULL
""",
}
"""What an event does to the tables. `{where}`, `{column}` and `{value}` are empty in a session's own file, and name the
session where one table holds many."""

COST: Final = "UPDATE session SET cost_usd = cost_usd + :cost_usd {where}"
"""Unknown plus anything is unknown: SQL's NULL is what the contract asks for."""

REACHED: Final = "UPDATE session SET last_seq = :seq, updated = :at {where}"

_IN_A_FILE: Final = {text: text.format(where="", column="", value="") for text in (*BY_TYPE.values(), COST, REACHED)}

_NAME: Final = re.compile(r":(\w+)")

_HISTORY: Final = """
SELECT seq, at, enc, payload FROM events WHERE agent = ? AND type IN ('reply_received', 'tool_finished') ORDER BY seq
"""


def project(connection: sqlite3.Connection, stored: Stored) -> None:
    """Bring the projections up to this event, but for `reach`; the caller holds the transaction."""
    values = projected_values(stored)
    for statement in projected(stored.event):
        connection.execute(_IN_A_FILE[statement], values)


def reach(connection: sqlite3.Connection, last: Stored) -> None:
    """Note down how far the log goes: once for all events of a transaction, in which only the last one counts."""
    connection.execute(_IN_A_FILE[REACHED], {"seq": last.seq, "at": last.at})


def projected(event: Event) -> list[str]:
    """The templates of the statements that bring the projections up to the event, but for `REACHED`."""
    own = [BY_TYPE[type(event)]] if type(event) in BY_TYPE else []
    return [*own, *([COST] if isinstance(event, ReplyReceived) else [])]


def projected_values(stored: Stored) -> dict[str, object]:
    """What the statements' names stand for."""
    event = stored.event
    values = {"seq": stored.seq, "at": stored.at}
    values |= {name: _bindable(getattr(event, name)) for name in _names_in(cast("Hashable", type(event)))}
    if isinstance(event, SessionStarted):
        values["headline"] = clean(first_line(event.objective))
    if isinstance(event, ReplyReceived):
        values |= {name: _bindable(getattr(event.usage, name)) for name in _names_in(Usage)}
    return values


@cache
def _names_in(kind: Hashable) -> tuple[str, ...]:
    """The fields of an event, or of a reply's usage, that its statements name."""
    record = cast("type[Any]", kind)
    statements = BY_TYPE.get(ReplyReceived if record is Usage else record, "")
    own = {field.name for field in fields(record)}
    return tuple(name for name in dict.fromkeys(_NAME.findall(statements)) if name in own)


def _bindable(value: object) -> object:
    match value:
        case str():
            return clean(value)
        case int():
            return max(-MAX_INTEGER, min(MAX_INTEGER, value))
        case _:
            return value


def rebuild(connection: sqlite3.Connection) -> None:
    """Make the projections again from the events; the caller holds the transaction."""
    for statement in (*_CLEAR, _BEGIN):
        connection.execute(statement)
    last = None
    for stored in events_after(connection, 0):
        project(connection, stored)
        last = stored
    if last is not None:
        reach(connection, last)


def events_after(connection: sqlite3.Connection, seq: int) -> Iterator[Stored]:
    """The events after the given one, in order, read in pages so that no read transaction stays open."""
    while page := _page(connection, seq):
        yield from page
        seq = page[-1].seq


def history_of(connection: sqlite3.Connection, agent: AgentId) -> list[Stored]:
    """The replies and tool results of an agent, in order."""
    return stored_rows(connection.execute(_HISTORY, (agent,)).fetchall())


def _page(connection: sqlite3.Connection, seq: int) -> list[Stored]:
    rows = connection.execute(
        "SELECT seq, at, enc, payload FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (seq, PAGE_EVENTS)
    ).fetchall()
    return stored_rows(rows)


def stored_rows(rows: Sequence[tuple[int, str, str, bytes]]) -> list[Stored]:
    """Events from their rows: place, time, encoding, payload."""
    return [
        Stored(seq=number, at=at, event=decode(unpack(enc, payload, what=f"event {number}"), seq=number))
        for number, at, enc, payload in rows
    ]
