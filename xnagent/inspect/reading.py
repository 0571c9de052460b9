"""What there is to inspect: a session's log as it was read, and how the session stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from xnagent.core.board import ACTIVE_RUN, Run
from xnagent.core.events import Stored
from xnagent.core.ids import SessionId
from xnagent.core.record import final_record
from xnagent.core.state import SessionState
from xnagent.core.text import Json
from xnagent.inspect.requests import RequestRow, request_rows

Row = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One session."""

    session: SessionId
    state: SessionState
    events: Sequence[Stored]
    records: Sequence[Row] = ()
    """The events as flat objects, if they are wanted."""
    lines: Callable[[], Iterable[str]] | None = None
    """The same as JSON in printable ASCII, one at a time; None: whoever wants them makes them of the records."""
    is_live: bool = False
    """A process runs the session now."""
    ledger: Sequence[RequestRow] | None = None
    """The rows of its requests, if they were made already."""


def ledger_of(reading: Reading) -> Sequence[RequestRow]:
    """A row for each request."""
    return request_rows(reading.events) if reading.ledger is None else reading.ledger


def status_of(reading: Reading) -> str:
    """`running`, `interrupted` (no process runs it and it has not settled), or the outcome."""
    if reading.state.settled is not None:
        return reading.state.settled.outcome
    return "running" if reading.is_live else "interrupted"


def run_status(reading: Reading, run: Run) -> str:
    """The run's status; one whose process is gone is interrupted, whatever the log said last (B048)."""
    has_ended = run.status not in ACTIVE_RUN
    return run.status if has_ended or reading.is_live else "interrupted"


def final_of(reading: Reading) -> dict[str, Json]:
    """The final record; of a session that has not settled, what it would be without an exit code."""
    record = final_record(reading.state)
    if reading.state.settled is not None:
        return record
    return record | {"session": reading.session, "outcome": None if reading.is_live else "interrupted"}
