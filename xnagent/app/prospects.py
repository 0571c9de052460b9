"""Foresees what runs and sessions will use: prefixes as they will be sent, the models' terms, and what was seen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from xnagent.agents.prompting import brief_message, project_message
from xnagent.app.crew import make_manifest, planner_toolbox, worker_toolbox
from xnagent.app.host import Host
from xnagent.config import Settings
from xnagent.config.entry import Role, model_chain
from xnagent.core.board import ACTIVE_RUN
from xnagent.core.events import Event, RunStarted, SessionStarted
from xnagent.core.fold import fold, fold_all
from xnagent.core.forecast import (
    ENOUGH_SAMPLES,
    PLANNER_PRIOR,
    RUNS_PRIOR,
    WORKER_PRIOR,
    AgentUse,
    Forecast,
    Habits,
    Outset,
    Spread,
    Terms,
    add_forecasts,
    forecast_agent,
    habits_of,
    repeated,
    spread,
)
from xnagent.core.ids import PLANNER, AgentId, SessionId, agent_of
from xnagent.core.lifetime import Wait
from xnagent.core.limits import Limits
from xnagent.core.messages import objective_message
from xnagent.core.pricing import ceiling_usd
from xnagent.core.rebase import Room
from xnagent.core.reserving import Prospect
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.state import SessionState, spine_of
from xnagent.core.summary import LIKELY_OUTPUT_TOKENS
from xnagent.core.tokens import MOST_SHARE, estimate_items
from xnagent.core.values import dataclass
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry
from xnagent.store.sessions import sessions_folder
from xnagent.workspaces.shell import ProcessShell

Uses = Mapping[AgentId, AgentUse]

ASSUMED_LIFETIME_SECONDS = 300.0
"""Of a cache of which nobody says how long it lasts."""
NEXT_RUN = AgentId("r0")
"""Stands for a run that has not begun: nothing was told to it yet."""
TASK_TOKENS = 600
"""Assumed for a task's brief before there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionProspects:
    """What can be foreseen under some settings."""

    settings: Settings
    definitions: Mapping[Role, str]
    """Tool definitions, as they are sent."""
    earlier: Sequence[Uses] = ()
    """What agents of earlier sessions used, newest first."""
    heads: dict[tuple[Role, str], ManifestRecorded] = field(default_factory=dict)
    """What stands before the history, by role and model."""

    @property
    def limits(self) -> Limits:
        """The session's."""
        return self.settings.limits.to_limits()

    def of(self, state: SessionState, started: RunStarted) -> Prospect | None:
        """What a run would use that begins now; None: its model is not known, which its Worker will say."""
        try:
            entry = model_chain(self.settings, "worker", name=started.model)[0]
        except UsageError:
            return None
        manifest = self.manifest("worker", entry)
        brief = brief_message(fold(state, started), started.run)
        shared = manifest.head_tokens + project_tokens(state, agent_of(started.run))
        size = shared + estimate_items(brief.items)
        outset = Outset(
            prefix_tokens=size,
            warm_tokens=shared,
            is_warm=any(run.status in ACTIVE_RUN and run.model == started.model for run in state.board.runs.values()),
        )
        most = round(size * MOST_SHARE)
        return Prospect(
            forecast=forecast_agent(outset, self.worker_habits(state), terms=self.terms("worker", entry)),
            least_tokens=most + manifest.max_output_tokens,
            least_usd=ceiling_usd(most, manifest.max_output_tokens, price=entry.price),
        )

    def session(self, objective: str, *, brought: Iterable[Event] = ()) -> Forecast:
        """What a session would use from its beginning to its end: its Planner, and runs.

        `brought` is what its log begins with besides: what the project tells.
        """
        state = fold_all([SessionStarted(session=SessionId(""), objective=objective), *brought])
        entry = model_chain(self.settings, "planner")[0]
        own = project_tokens(state, PLANNER) + estimate_items(objective_message(state).items)
        outset = Outset(prefix_tokens=self.manifest("planner", entry).head_tokens + own)
        planner = forecast_agent(outset, self.planner_habits(), terms=self.terms("planner", entry))
        return add_forecasts([planner, self.further_runs(state)])

    def further_runs(self, state: SessionState) -> Forecast:
        """What the runs use that the session has not begun yet."""
        worker, seen, begun = model_chain(self.settings, "worker")[0], self.runs(), len(state.board.runs)
        shared = self.manifest("worker", worker).head_tokens + project_tokens(state, NEXT_RUN)
        outset = Outset(prefix_tokens=shared + TASK_TOKENS, warm_tokens=shared, is_warm=True)
        run = forecast_agent(outset, self.worker_habits(state), terms=self.terms("worker", worker))
        left = Spread(
            low=max(0.0, seen.low - begun), likely=max(0.0, seen.likely - begun), high=max(0.0, seen.high - begun)
        )
        return repeated(run, left)

    def agent(self, state: SessionState, agent: AgentId, *, outset: Outset, entry: ModelEntry) -> Forecast:
        """What an agent uses that goes on from where it stands."""
        role: Role = "planner" if agent == PLANNER else "worker"
        habits = self.planner_habits() if agent == PLANNER else self.worker_habits(state)
        return forecast_agent(outset, habits, terms=self.terms(role, entry))

    def manifest(self, role: Role, entry: ModelEntry) -> ManifestRecorded:
        """What stands before the history of a role."""
        key = (role, entry.name)
        if key not in self.heads:
            self.heads[key] = make_manifest(role, entry, definitions=self.definitions[role])
        return self.heads[key]

    def terms(self, role: Role, entry: ModelEntry) -> Terms:
        """What requests to the model cost and how long they can be."""
        manifest = self.manifest(role, entry)
        room = Room(
            window_tokens=manifest.window_tokens,
            max_output_tokens=manifest.max_output_tokens,
            head_tokens=manifest.head_tokens,
        )
        limits = self.limits
        return Terms(
            price=entry.price,
            cache=entry.cache,
            room_tokens=int(self.settings.spine.soft_share * room.usable_tokens),
            max_output_tokens=manifest.max_output_tokens,
            max_steps=limits.steps if role == "planner" else limits.run_steps,
            summary_tokens=LIKELY_OUTPUT_TOKENS if role == "worker" and self._has_summaries else None,
        )

    @property
    def _has_summaries(self) -> bool:
        return self.settings.worker.context.strategy == "summary"

    def worker_habits(self, state: SessionState) -> Habits:
        """From this session's runs that ended; if those are few, from earlier sessions' too."""
        ended = [run.run for run in state.board.runs.values() if run.status in {"completed", "failed"}]
        own = [state.uses[agent_of(run)] for run in ended if agent_of(run) in state.uses]
        others = [use for uses in self.earlier for agent, use in uses.items() if agent != PLANNER]
        return habits_of(own if len(own) >= ENOUGH_SAMPLES else [*own, *others], WORKER_PRIOR)

    def planner_habits(self) -> Habits:
        """From earlier sessions."""
        return habits_of([uses[PLANNER] for uses in self.earlier if PLANNER in uses], PLANNER_PRIOR)

    def runs(self) -> Spread:
        """How many runs a session has."""
        seen = spread((float(sum(agent != PLANNER for agent in uses)) for uses in self.earlier), RUNS_PRIOR)
        most = float("inf") if self.limits.runs is None else float(self.limits.runs)
        return Spread(low=min(seen.low, most), likely=min(seen.likely, most), high=min(seen.high, most))


def session_prospects(host: Host, settings: Settings) -> SessionProspects:
    """What the host's home and the settings tell. Reads files: call it in a thread where others wait."""
    ripgrep = shutil.which("rg", path=host.environ.get("PATH", os.defpath))
    shell, rules = ProcessShell(environ=host.environ), settings.permissions.to_rules()
    definitions: dict[Role, str] = {
        "planner": planner_toolbox(settings.limits.to_limits(), ripgrep=ripgrep, rules=rules).definitions,
        "worker": worker_toolbox(shell, ripgrep=ripgrep, rules=rules).definitions,
    }
    earlier = () if host.store is not None else host.past.of(sessions_folder(host.home))
    return SessionProspects(settings=settings, definitions=definitions, earlier=earlier)


def project_tokens(state: SessionState, agent: AgentId) -> int:
    """What the project's message adds to an agent's first request."""
    message = project_message(state, agent=agent)
    return 0 if message is None else estimate_items(message.items)


def missed_share(waits: Sequence[Wait], lifetime_seconds: float | None) -> float:
    """The share of an agent's waits that outlast the cache."""
    longest = ASSUMED_LIFETIME_SECONDS if lifetime_seconds is None else lifetime_seconds
    return sum(wait.seconds > longest for wait in waits) / len(waits) if waits else 0.0


def outset_of(
    state: SessionState, agent: AgentId, *, size_tokens: int, warm_tokens: int, lasts_seconds: float | None
) -> Outset:
    """Where an agent stands that is at work; its cache, of which `warm_tokens` are left, lasts so long."""
    use = state.uses.get(agent) or AgentUse()
    return Outset(
        prefix_tokens=size_tokens,
        warm_tokens=warm_tokens,
        missed_share=missed_share(spine_of(state, agent).waits, lasts_seconds),
        steps_done=use.steps,
    )
