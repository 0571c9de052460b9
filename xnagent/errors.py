"""Every error that xnagent raises on purpose.

::

    XnagentError                 has .exit_code (CONTRACT, "Exit codes") and a message that says what to do
    ├── UsageError               2   wrong arguments, configuration, or a place that cannot be used
    ├── StoreError               1   the session's file
    │   ├── StoreVersionError    2   made by a newer xnagent
    │   ├── StoreDamagedError    1   not a session file, or damaged
    │   ├── StoreBusyError       2   another process runs this session
    │   ├── StoreFencedError     1   another process took this session over
    │   └── StoreWriteError      1   disk full, read-only folder
    ├── ModelError               8/9 the provider; .fault says which kind
    ├── WorkspaceError           1   git or the file system refused
    └── PrefixBrokenError        10  a request did not extend its predecessor
"""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Literal, Self, TypeVar, cast, get_args

FaultKind = Literal[
    "overloaded",
    "rate_limited",
    "server",
    "timeout",
    "incomplete",
    "connection",
    "authentication",
    "quota",
    "bad_request",
    "not_found",
    "content_refused",
    "protocol",
    "context_overflow",
    "output_budget",
]
"""The closed set of ways in which a provider fails."""

FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

RETRYABLE: frozenset[FaultKind] = frozenset(
    {"overloaded", "rate_limited", "server", "timeout", "incomplete", "connection"}
)
"""Faults that may be gone a moment later; all others are final for the request as it stands."""


class XnagentError(Exception):
    """Base of all errors; `exit_code` is what the process ends with if nobody handles it."""

    exit_code: int = 1


class UsageError(XnagentError):
    """The caller asked for something that cannot be: arguments, configuration, a missing folder."""

    exit_code = 2


class StoreError(XnagentError):
    """The session's file failed."""


class StoreVersionError(StoreError):
    """The file was made by another version of xnagent; it is left as it is."""

    exit_code = 2


class StoreDamagedError(StoreError):
    """The file is no session file, or a part of it is missing; it is left as it is."""


class StoreBusyError(StoreError):
    """Another process runs this session; the message names it."""

    exit_code = 2


class StoreFencedError(StoreError):
    """Another process took the session over (its epoch is newer); nothing was written."""


class StoreWriteError(StoreError):
    """An append did not reach the disk; what was stored before is intact."""


class WorkspaceError(XnagentError):
    """A workspace could not be made, read or merged."""


class PrefixBrokenError(XnagentError):
    """With `--prefix strict`: a request did not extend the one before it in its lineage."""

    exit_code = 10


class ModelError(XnagentError):
    """The provider did not answer the request.

    `fault` is one of `FAULT_KINDS`; `retry_after_seconds` is what the provider asked for, if it did;
    `status` is the HTTP status, if there was one.
    """

    def __init__(
        self,
        message: str,
        *,
        fault: FaultKind,
        retry_after_seconds: float | None = None,
        status: int | None = None,
    ) -> None:
        """Keep the message and the classification; 8 where a retry is worth it, 9 where it is not."""
        super().__init__(message)
        self.fault: FaultKind = fault
        self.retry_after_seconds = retry_after_seconds
        self.status = status
        self.exit_code = 8 if fault in RETRYABLE else 9

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.fault in RETRYABLE


Kept = TypeVar("Kept", bound=BaseException)


class Caught(Generic[Kept]):
    """`with Caught(kind) as caught:` keeps what ended the block instead of letting it out; other kinds go through.

    `raised` is the error as it came, `error` what a person should read of it: the first cause, if it is a group. Both
    are None while there is none. Inside an event loop only `Exception` will do: cancellation has to get through.
    """

    def __init__(self, kind: type[Kept]) -> None:
        """Keep errors of this kind."""
        self.raised: Kept | None = None
        self._kind = kind

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Keep the error."""
        if not isinstance(error, self._kind):
            return False
        self.raised = error
        return True

    @property
    def error(self) -> Kept | None:
        """What a person should read."""
        return None if self.raised is None else cast("Kept", first_cause(self.raised))


def first_cause(error: BaseException) -> BaseException:
    """Out of a group of errors the one that a person should read: ours before others, the first before later ones."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [first_cause(part) for part in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, XnagentError | KeyboardInterrupt)), leaves[0])
