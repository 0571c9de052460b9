"""Everything that can happen in a session: a closed union. The log is a list of these; all else is computed from it.

Events are flat: in the log and on `--output jsonl` each is one object with its `type`, and beside it `session`, `seq`
and `at` from the envelope.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from xnagent.core.board import Evidence, SubmitStatus
from xnagent.core.forecast import Forecast
from xnagent.core.fork_events import SessionForked
from xnagent.core.ids import FactId, RunId, SessionId, TaskId, Ticket
from xnagent.core.project_events import ProjectEvent
from xnagent.core.spine_events import (
    CacheDrifted,
    ManifestRecorded,
    ModelReplaced,
    PrefixBroken,
    RebaseRefused,
    RebasesSuspended,
    ReplyReceived,
    RequestFailed,
    RequestRetried,
    RequestStarted,
    ResultOffloaded,
    ResultShortened,
    SpineExtended,
    SpineRebased,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
    WindowFilled,
)
from xnagent.core.summary_events import SummaryEvent
from xnagent.core.tree_events import Snapshot, TreeEvent
from xnagent.core.values import dataclass

Outcome = Literal[
    "completed",
    "failed",
    "partial",
    "blocked",
    "limit",
    "deadline",
    "provider_error",
    "prefix_broken",
    "interrupted",
    "error",
]
LimitKind = Literal["usd", "tokens", "steps", "runs", "deadline", "context", "denials", "hook"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted:
    """The first event: what was asked, where, and within which limits."""

    session: SessionId
    objective: str
    checks: tuple[str, ...] = ()
    repository: str = ""
    """The user's checkout or folder."""
    base: str | None = None
    """The commit that holds the user's tree as it was, uncommitted work included."""
    is_shadow: bool = False
    """The folder is no git repository; the base is in a repository kept elsewhere."""
    settings: str = ""
    """The settings in force, as JSON; keys are never in it."""
    version: str = ""
    snapshot: Snapshot | None = None
    """How the base is made again; None: it is the user's own commit, or was not kept."""
    forecast: Forecast | None = None
    """What the whole session was expected to use; None: an older log."""
    type: Literal["session_started"] = "session_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResumed:
    """A process took the session up again."""

    epoch: int
    settings: str = ""
    chosen: tuple[str, ...] = ()
    """Roles whose model the user names anew: what was given up before may be tried again."""
    lost_seconds: float = 0.0
    """What the process before spent on it, by the times of its events, if it was killed before it could say."""
    idle_seconds: float | None = None
    """Since the last event before; None: an older log does not say."""
    type: Literal["session_resumed"] = "session_resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessageAdded:
    """The user said something more."""

    message: str
    text: str
    letter: str = ""
    """The letter that brought it, if it came while the session ran or waited in its mailbox."""
    type: Literal["user_message_added"] = "user_message_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAdded:
    """The Planner made a task."""

    task: TaskId
    title: str
    objective: str
    checks: tuple[str, ...] = ()
    depends_on: tuple[TaskId, ...] = ()
    scope: tuple[str, ...] = ()
    type: Literal["task_added"] = "task_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRevised:
    """The Planner changed a task; the fields are the new ones, whole."""

    task: TaskId
    title: str
    objective: str
    checks: tuple[str, ...] = ()
    depends_on: tuple[TaskId, ...] = ()
    scope: tuple[str, ...] = ()
    type: Literal["task_revised"] = "task_revised"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDropped:
    """The Planner gave a task up; it no longer counts."""

    task: TaskId
    type: Literal["task_dropped"] = "task_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The Planner delegated a task. The run begins when its dependencies are completed and a place is free."""

    run: RunId
    task: TaskId
    brief: str = ""
    model: str | None = None
    checks: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    forecast: Forecast | None = None
    """What it is expected to use; the likely part is reserved for it while it works."""
    type: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLaunched:
    """The run has a workspace and its Worker begins."""

    run: RunId
    base: str
    type: Literal["run_launched"] = "run_launched"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMessageSent:
    """The Planner wrote to a Worker."""

    run: RunId
    text: str
    type: Literal["run_message_sent"] = "run_message_sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelRequested:
    """The Planner wants a run to end."""

    run: RunId
    reason: str
    type: Literal["run_cancel_requested"] = "run_cancel_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressNoted:
    """A Worker said where it is."""

    run: RunId
    text: str
    type: Literal["progress_noted"] = "progress_noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSubmitted:
    """A Worker handed in. What it claims is not yet believed."""

    run: RunId
    status: SubmitStatus
    summary: str
    type: Literal["run_submitted"] = "run_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTaken:
    """What a run changed, taken from its workspace."""

    run: RunId
    patch: Ticket
    commit: str
    changed_files: tuple[str, ...]
    flags: tuple[str, ...] = ()
    type: Literal["patch_taken"] = "patch_taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinished:
    """An acceptance check ran. `run` is None for the checks of the whole session."""

    run: RunId | None
    evidence: Evidence
    type: Literal["check_finished"] = "check_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchMerged:
    """A run's patch is on the integration branch."""

    run: RunId
    commit: str
    message: str = ""
    """The commit's; empty in old logs."""
    type: Literal["patch_merged"] = "patch_merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettled:
    """A run came to its end."""

    run: RunId
    status: Literal["completed", "failed", "cancelled"]
    reason: str = ""
    conflicts: tuple[str, ...] = ()
    type: Literal["run_settled"] = "run_settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInterrupted:
    """A run was stopped with the session; a resumed session goes on with it."""

    run: RunId
    reason: str
    type: Literal["run_interrupted"] = "run_interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRecorded:
    """Somebody confirmed something."""

    fact: FactId
    text: str
    source: str
    value: str | None = None
    is_pinned: bool = False
    type: Literal["fact_recorded"] = "fact_recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCorrected:
    """A fact was wrong or has changed."""

    fact: FactId
    text: str
    source: str
    value: str | None = None
    type: Literal["fact_corrected"] = "fact_corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRetracted:
    """A fact no longer holds."""

    fact: FactId
    reason: str
    type: Literal["fact_retracted"] = "fact_retracted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRequested:
    """The Planner says how the session ends; the checks decide whether it is so."""

    outcome: Literal["completed", "failed", "blocked"]
    summary: str
    question: str | None = None
    type: Literal["finish_requested"] = "finish_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """A limit was met: nothing more is started."""

    limit: LimitKind
    detail: str
    type: Literal["limit_reached"] = "limit_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInterrupted:
    """A signal or a letter asked the process to stop; the session can be resumed."""

    signal: Literal["SIGINT", "SIGTERM"]
    """A cancellation from outside counts as SIGINT."""
    reason: str = ""
    """What the one who cancelled it said."""
    letter: str = ""
    """The letter that asked for it; empty for a signal."""
    type: Literal["session_interrupted"] = "session_interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultApplied:
    """What became of the result in the user's checkout."""

    is_applied: bool
    branch: str | None
    detail: str = ""
    changed_files: tuple[str, ...] = ()
    patch: Ticket | None = None
    type: Literal["result_applied"] = "result_applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettled:
    """The session's end. A resumed session may go on after it."""

    outcome: Outcome
    exit_code: int
    summary: str = ""
    error_class: str | None = None
    error: str | None = None
    duration_seconds: float = 0.0
    type: Literal["session_settled"] = "session_settled"


Event: TypeAlias = (
    SessionStarted
    | SessionResumed
    | SessionForked
    | UserMessageAdded
    | TaskAdded
    | TaskRevised
    | TaskDropped
    | RunStarted
    | RunLaunched
    | RunMessageSent
    | RunCancelRequested
    | ProgressNoted
    | RunSubmitted
    | PatchTaken
    | CheckFinished
    | PatchMerged
    | RunSettled
    | RunInterrupted
    | FactRecorded
    | FactCorrected
    | FactRetracted
    | FinishRequested
    | LimitReached
    | SessionInterrupted
    | ResultApplied
    | SessionSettled
    | ManifestRecorded
    | SpineExtended
    | SpineRebased
    | ModelReplaced
    | ToolsChanged
    | RebaseRefused
    | RebasesSuspended
    | WindowFilled
    | RequestStarted
    | RequestRetried
    | RequestFailed
    | ReplyReceived
    | ToolStarted
    | ToolFinished
    | ResultOffloaded
    | ResultShortened
    | PrefixBroken
    | CacheDrifted
    | TreeEvent
    | SummaryEvent
    | ProjectEvent
)
"""One thing that happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An event with its place in the log."""

    seq: int
    """1, 2, 3… without gaps."""
    at: str
    """UTC, ISO 8601 with milliseconds."""
    event: Event
