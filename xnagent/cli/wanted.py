"""Which events `inspect` is to show, from its options."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from xnagent.config.keys import nearest
from xnagent.core.ids import PLANNER
from xnagent.errors import UsageError
from xnagent.inspect.filters import Wanted, event_kinds
from xnagent.inspect.reading import Reading

WISHES: Final = ("sql", "kind", "agent", "task", "from_seq", "to_seq", "since", "until", "limit")
"""The options that ask for some of the events, or about them."""


def has_wishes(arguments: Namespace) -> bool:
    """Whether there are such options: then every event has to be read."""
    return any(hasattr(arguments, name) for name in WISHES)


def wanted_of(arguments: Namespace, reading: Reading) -> Wanted:
    """What was asked for. Raises UsageError for kinds, agents and tasks that are not there, naming the nearest."""
    board = reading.state.board
    kinds = [_known("kind of event", kind, names=event_kinds()) for kind in getattr(arguments, "kind", [])]
    first, last = getattr(arguments, "from_seq", None), getattr(arguments, "to_seq", None)
    if first is not None and last is not None and first > last:
        raise UsageError(f"USAGE: --from {first} comes after --to {last}; swap them")
    agent, task = getattr(arguments, "agent", None), getattr(arguments, "task", None)
    return Wanted(
        kinds=frozenset(kinds),
        agent=None if agent is None else _known("agent", agent, names=(PLANNER, *board.runs)),
        task=None if task is None else _known("task", task, names=tuple(board.tasks)),
        first_seq=first,
        last_seq=last,
        since=_moment("--since", getattr(arguments, "since", None)),
        until=_moment("--until", getattr(arguments, "until", None)),
        limit=None if hasattr(arguments, "sql") else getattr(arguments, "limit", None),
    )


def _known(what: str, given: str, *, names: Sequence[str]) -> str:
    if given in names:
        return given
    if not names:
        raise UsageError(f'USAGE: there is no {what} "{given}"; the session has none')
    raise UsageError(f'USAGE: there is no {what} "{given}"; did you mean "{nearest(given, list(names))}"?')


def _moment(option: str, text: str | None) -> datetime | None:
    """A time without a zone is UTC, as in the log; a day alone begins at midnight."""
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"USAGE: {option} {text!r} is no time; write it as the log does: 2026-11-30T17:30:08Z"
        raise UsageError(message) from error
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read
