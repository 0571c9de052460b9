"""An exception as an outcome: caught once, whatever it is, and told as a final record."""

from __future__ import annotations

from xnagent.core.events import Outcome
from xnagent.core.record import final_record
from xnagent.core.state import SessionState
from xnagent.core.text import Json, clean
from xnagent.errors import ModelError, PrefixBrokenError, XnagentError

INTERRUPTED = 130
INTERNAL = 1


class TerminatedError(BaseException):
    """SIGTERM came before there was a session to stop."""

    exit_code = 143


def exit_code_of(error: BaseException) -> int:
    """What the process ends with."""
    if isinstance(error, XnagentError | TerminatedError):
        return error.exit_code
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else INTERNAL


def message_of(error: BaseException) -> str:
    """One line, as far as the error allows."""
    text = clean(str(error)).strip()
    if isinstance(error, XnagentError):
        return text or type(error).__name__
    if isinstance(error, KeyboardInterrupt | TerminatedError):
        return "interrupted before a session began"
    told = " ".join(text.split())
    return f"INTERNAL: {type(error).__name__}: {told}" if told else f"INTERNAL: {type(error).__name__}"


def failure_record(error: BaseException, *, state: SessionState | None = None) -> dict[str, Json]:
    """The final record of a session that an error ended; `state` is how far it came, if it began."""
    record = final_record(state or SessionState())
    return record | {
        "session": state.session if state else None,
        "outcome": _outcome_of(error),
        "exit_code": exit_code_of(error),
        "verified": None if state is None else record["verified"],
        "error": {"class": type(error).__name__, "message": message_of(error)},
    }


def _outcome_of(error: BaseException) -> Outcome:
    match error:
        case PrefixBrokenError():
            return "prefix_broken"
        case ModelError():
            return "provider_error"
        case KeyboardInterrupt() | TerminatedError():
            return "interrupted"
        case _:
            return "error"
