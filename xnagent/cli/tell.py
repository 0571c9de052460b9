"""`xnagent tell`: say something more to a session that another process runs, or that will go on later."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import Final

import anyio

from xnagent.app.steering import ANSWER_SECONDS, Told, tell_session
from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.cli.run import STDIN, read_source
from xnagent.core.ids import SessionId
from xnagent.core.text import clean
from xnagent.errors import UsageError

DELIVERED: Final = "delivered as {message}; the Planner reads it before its next step"
KEPT: Final = "kept: the session is not running; `xnagent resume {session}` delivers it"
WAITING: Final = "kept: its process has not taken it within {seconds:.0f} s; it does, or the next `xnagent resume`"


def execute(arguments: Namespace, console: Console) -> int:
    """Post it and say what became of it. 0 once it can't be lost any more."""
    text = clean(read_source(STDIN) if arguments.text == STDIN else arguments.text)
    if not text.strip():
        raise UsageError("MESSAGE_EMPTY: the message is empty; say something")
    session = SessionId(arguments.session)
    told = anyio.run(partial(tell_session, host_of(arguments), session, text=text))
    if console.output == "text":
        console.answer(f"{session}: {_outcome(told, session)}")
    else:
        console.record({"type": "told", "session": session, "status": told.status, "message": told.message})
    return 0


def _outcome(told: Told, session: SessionId) -> str:
    if told.status == "delivered":
        return DELIVERED.format(message=told.message)
    return WAITING.format(seconds=ANSWER_SECONDS) if told.is_running else KEPT.format(session=session)
