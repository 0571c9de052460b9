"""The event of a session that began as a copy of another one's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xnagent.core.ids import SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionForked:
    """What stands before this in the log was copied from another session, which does not know of it.

    The copy is as the origin's log was but for the session's name in its first event. What the copied requests used
    counts here too: in the final record, and against limits.
    """

    origin: SessionId
    """The other session; it may be gone."""
    cut: int
    """Number of the last event that was copied; the one that the origin's log goes on with is not here."""
    requests: int = 0
    """Requests among the copied events that were answered: the origin paid for them."""
    cost_usd: float | None = None
    """What they cost; None: not known."""
    type: Literal["session_forked"] = "session_forked"
