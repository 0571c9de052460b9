"""`xnagent cancel`: stop a session that another process runs, in order."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import Final

import anyio

from xnagent.app.steering import ANSWER_SECONDS, Cancelled, cancel_session
from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.core.ids import SessionId
from xnagent.core.text import clean

NOT_TAKEN: Final = 1


def execute(arguments: Namespace, console: Console) -> int:
    """Ask, wait for the end, and say how it ended. 0 unless its process does not answer."""
    session = SessionId(arguments.session)
    reason = clean(getattr(arguments, "reason", ""))
    cancelled = anyio.run(partial(cancel_session, host_of(arguments), session, reason=reason))
    if console.output == "text":
        (console.warn if cancelled.status == "not_taken" else console.answer)(f"{session}: {_told(cancelled, session)}")
    else:
        console.record(
            {"type": "cancelled", "session": session, "status": cancelled.status, "outcome": cancelled.outcome}
        )
    return NOT_TAKEN if cancelled.status == "not_taken" else 0


def _told(cancelled: Cancelled, session: SessionId) -> str:
    more = f"`xnagent resume {session}` goes on"
    match cancelled.status:
        case "stopped":
            return f"stopped ({cancelled.outcome or 'its process was killed'}); {more}"
        case "stopping":
            return "stopping; it has not ended yet"
        case "not_running":
            return f"not running, {f'it ended: {cancelled.outcome}' if cancelled.outcome else more}"
        case "not_taken":
            return f"no answer for {ANSWER_SECONDS:.0f} s from {cancelled.holder}; `kill` it, then {more}"
