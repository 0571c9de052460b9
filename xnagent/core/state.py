"""The state of a session: what folding its log yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from xnagent.core.board import ACTIVE_RUN, Board, Cause, Evidence, Run
from xnagent.core.events import (
    FinishRequested,
    LimitReached,
    ResultApplied,
    SessionInterrupted,
    SessionSettled,
    SessionStarted,
)
from xnagent.core.forecast import AgentUse
from xnagent.core.fork_events import SessionForked
from xnagent.core.given_events import GivenTool
from xnagent.core.hook_events import HookKey, HookRan
from xnagent.core.ids import PLANNER, AgentId, CallId, RunId, SessionId, TaskId, role_of
from xnagent.core.mcp_events import McpToolsFrozen
from xnagent.core.project import Project
from xnagent.core.spine import Spine
from xnagent.core.spine_events import (
    ManifestRecorded,
    ModelReplaced,
    PrefixBroken,
    RebaseRefused,
    RequestFailed,
    SpineRebased,
    ToolsChanged,
    ToolStarted,
)
from xnagent.core.summary import SummaryLog
from xnagent.core.tokens import Calibration, Usage
from xnagent.core.trees import Merge, TreeLog
from xnagent.core.values import dataclass

SUMMARY_ROLE: Final = "summary"
PlannerMode = Literal["ready", "waiting", "unfinished", "nudged"]
"""`waiting` for a cause; `unfinished`: answered without a call and without active runs, to be asked once to finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageShown:
    """A page of a file or stored output that stands in an agent's spine as it was read."""

    call_id: CallId
    step: int
    generation: int
    """Of the spine: a rebase after it may have dropped the page."""
    sha256: str
    """Of what it shows."""
    tokens: int = 0
    """Of the result that shows it."""
    is_wanted: bool = False
    """It was asked for again, so that a rebase would not be rid of it for long."""
    referred_at: int | None = None
    """The step at which it was last only referred to: asked for again in the next one, it is shown whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLog:
    """What an agent did, beyond its spine: the source of a Worker's checkpoint and of the read ledger."""

    steps: int = 0
    notes: tuple[str, ...] = ()
    files_read: Mapping[str, int] = field(default_factory=dict)
    """Step of the last read by path or ticket."""
    files_changed: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the content that the model last saw, by path: it outlives a process and a rebase."""
    pages: Mapping[str, PageShown] = field(default_factory=dict)
    """By `path:first-last`: what need not be shown again as long as the spine is not rebased."""
    calls: tuple[str, ...] = ()
    """One line for each call: tool, what, outcome; the newest `KEPT_CALLS`."""
    inbox: tuple[str, ...] = ()
    """Messages of the Planner that the Worker has not seen."""
    letters: tuple[str, ...] = ()
    """All messages of the Planner, seen or not."""
    cancel_reason: str | None = None
    nudged: bool = False
    """Asked once to hand in."""
    failures: tuple[str, int] = ("", 0)
    """The last failing call (tool and arguments) and how often it was repeated in a row."""
    tree: TreeLog = field(default_factory=TreeLog)
    """A run's: how much of its tree the log holds."""
    repeats: tuple[str, int] = ("", 0)
    """The last call (tool and arguments), whatever came of it, and how often it was made in a row."""
    call_count: int = 0
    """Of all calls."""
    summary: SummaryLog = field(default_factory=SummaryLog)
    """A run's: what a model wrote of its history, where that is the strategy."""
    told: tuple[str, ...] = ()
    """Files of instructions by path, and lists of skills by fingerprint, that were told."""
    skills: Mapping[str, int] = field(default_factory=dict)
    """Skills that the agent activated, and how often its spine had been rebased then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTotals:
    """What a role has used."""

    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    """None as soon as the cost of one request is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """Everything that the log says, folded."""

    session: SessionId = SessionId("")
    started: SessionStarted | None = None
    board: Board = field(default_factory=Board)
    causes: tuple[Cause, ...] = ()
    """The newest causes and operations; older ones are only in the log."""
    cause_count: int = 0
    last_wake: int = 0
    """Number of the newest cause that should wake a waiting Planner."""
    spines: Mapping[AgentId, Spine] = field(default_factory=dict)
    work: Mapping[AgentId, WorkLog] = field(default_factory=dict)
    hooks: Mapping[HookKey, HookRan] = field(default_factory=dict)
    """What the user's commands came to, but for those of calls that have their result."""
    started_tools: Mapping[tuple[AgentId, str], ToolStarted] = field(default_factory=dict)
    """Calls that began and have no result, by agent and call id."""
    manifests: Mapping[str, ManifestRecorded] = field(default_factory=dict)
    role_manifest: Mapping[str, str] = field(default_factory=dict)
    """The manifest in force, by role; that of a model that took another's place is under `ROLE:MODEL`."""
    given_up: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Models that failed for good, by agent; under a role's name those that a new agent of it does not try."""
    planner: PlannerMode = "ready"
    totals: Mapping[str, RoleTotals] = field(default_factory=dict)
    """By role."""
    model_totals: Mapping[str, RoleTotals] = field(default_factory=dict)
    """The same by the model's name."""
    uses: Mapping[AgentId, AgentUse] = field(default_factory=dict)
    """The same by agent."""
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    """What estimates of requests to a model turned out to be, by its name."""
    overcharge: float = 1.0
    """The most tokens that were reported of a request for each one that it could use: 1 where reports are credible."""
    request_count: int = 0
    in_flight: Mapping[AgentId, int] = field(default_factory=dict)
    """Requests that were started and have no reply, of agents that have not come to an end."""
    deltas: int = 0
    """Deltas in the Planner's spine over the whole session."""
    rebases: tuple[SpineRebased, ...] = ()
    refused_rebases: tuple[RebaseRefused, ...] = ()
    denials: int = 0
    """Calls that permission rules denied."""
    breaks: tuple[PrefixBroken, ...] = ()
    replaced: tuple[ModelReplaced, ...] = ()
    """Declared breaks, by other models."""
    retooled: tuple[ToolsChanged, ...] = ()
    """Declared breaks, by other tools."""
    checks: Mapping[str, Evidence] = field(default_factory=dict)
    """Newest evidence of the session's own checks by command."""
    finish: FinishRequested | None = None
    limit: LimitReached | None = None
    fault: RequestFailed | None = None
    """The request of the Planner that failed for good."""
    interrupted: SessionInterrupted | None = None
    merges: tuple[Merge, ...] = ()
    """What was merged, in order: from the base to the integration head."""
    applied: ResultApplied | None = None
    landed: str | None = None
    """The commit whose content was last brought to the user's checkout; what comes later is held against it."""
    settled: SessionSettled | None = None
    letters: frozenset[str] = frozenset()
    """The letters whose messages are in the log: none is delivered twice."""
    idle_seconds: float | None = None
    """How long nobody worked on it before this process did; None: it is the first one, or an older log."""
    spent_seconds: float = 0.0
    """Time that earlier processes spent on it."""
    epoch: int = 1
    forked: SessionForked | None = None
    """The newest fork that this session comes from."""
    project: Project = field(default_factory=Project)
    """Instructions and skills."""
    mcp: McpToolsFrozen | None = None
    """Tools of MCP servers; None: no server was asked."""
    given: tuple[GivenTool, ...] = ()
    """Tools of the program that runs the session, by name."""


def spine_of(state: SessionState, agent: AgentId) -> Spine:
    """The agent's spine; an empty one if it has not begun."""
    return state.spines.get(agent) or Spine(agent=agent)


def ratio_of(state: SessionState, model: str) -> float:
    """What the model counts for one estimated token, as far as its reports tell."""
    known = state.calibrations.get(model)
    return 1.0 if known is None else known.ratio


def work_of(state: SessionState, agent: AgentId) -> WorkLog:
    """The agent's work log; an empty one if it has not begun."""
    return state.work.get(agent) or WorkLog()


def active_runs(state: SessionState) -> tuple[Run, ...]:
    """Runs that have not come to an end."""
    return tuple(run for run in state.board.runs.values() if run.status in ACTIVE_RUN)


def waits_for(state: SessionState, task: TaskId) -> tuple[TaskId, ...]:
    """The dependencies of a task that are not completed (a dropped one no longer counts)."""
    known = state.board.tasks.get(task)
    return tuple(
        name
        for name in (known.depends_on if known else ())
        if name in state.board.tasks and state.board.tasks[name].status not in {"completed", "dropped"}
    )


def can_progress(state: SessionState) -> bool:
    """Whether some run works or will begin without the Planner's doing anything."""
    runs = active_runs(state)
    working = {run.task for run in runs if run.status != "queued"}
    queued = {run.task for run in runs if run.status == "queued"}
    return bool(working) or any(not waits_for(state, task) for task in queued)


def steps_of(state: SessionState) -> tuple[int, int]:
    """Steps of the Planner and of all Workers; a request for a summary is no step."""
    requests = {role: totals.requests for role, totals in state.totals.items() if role != SUMMARY_ROLE}
    planner = requests.pop(role_of(PLANNER), 0)
    return planner, sum(requests.values())


def has_ended(state: SessionState, agent: AgentId) -> bool:
    """Whether the agent said that it is done: the Planner finished, the Worker handed in."""
    if agent == PLANNER:
        return state.finish is not None
    run = run_of(state, agent)
    return run is not None and run.claim is not None


def run_of(state: SessionState, run: str) -> Run | None:
    """The run of that name, if there is one."""
    return state.board.runs.get(RunId(run))
