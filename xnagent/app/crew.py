"""Gives every agent its model, its tools and its place."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from hashlib import sha256

from xnagent.agents.desk import Seat
from xnagent.agents.prompting import system_text
from xnagent.app.host import Host
from xnagent.config import Settings
from xnagent.config.entry import Role, model_entry
from xnagent.core.ids import PLANNER, RunId, agent_of
from xnagent.core.rebase import RebasePolicy
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.state import work_of
from xnagent.core.text import Json, canonical
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry, create_model
from xnagent.models.transport import Timeouts
from xnagent.ports import Log, Model, Shell, Tool, Toolbox, Workspace, Workspaces
from xnagent.tools.facts import fact_tools, reporting_tools
from xnagent.tools.files import FileView
from xnagent.tools.looking import RunInspectTool, status_tool
from xnagent.tools.planning import planning_tools
from xnagent.tools.registry import planner_tools, worker_tools
from xnagent.tools.toolbox import toolbox

LEAST_OUTPUT_TOKENS = 1_024
OUTPUT_SHARE = 0.25
"""A model that may write as much as its window holds would leave no room for input (B031)."""


def check_models(host: Host, settings: Settings) -> None:
    """Raise UsageError unless both roles have a model, a wire that is spoken, and their keys."""
    roles: tuple[Role, ...] = ("planner", "worker")
    for role in roles:
        entry = model_entry(settings, role)
        create_model(entry, key_of(host, entry))


def key_of(host: Host, entry: ModelEntry) -> str | None:
    """The key from the environment variable that the model's entry names; None if it names none."""
    if not entry.api_key_env:
        return None
    key = host.environ.get(entry.api_key_env, "").strip()
    if not key:
        raise UsageError(f"KEY_MISSING: {entry.api_key_env} is not set; {entry.name} needs it")
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Gives agents their models and tools; frozen manifests are recorded in the log."""

    host: Host
    log: Log
    settings: Settings
    workspaces: Workspaces
    shell: Shell
    models: dict[str, Model] = field(default_factory=dict)

    async def planner(self) -> Seat:
        """The Planner's seat."""
        reading = planner_tools(ripgrep=self._ripgrep())
        state_tools: list[Tool] = [
            *planning_tools(max_runs=self.settings.limits.runs),
            *fact_tools(),
            status_tool(),
            RunInspectTool(),
        ]
        entry = model_entry(self.settings, "planner")
        box = toolbox([*reading, *state_tools])
        manifest = await self._manifest("planner", entry, box=box)
        return Seat(
            agent=PLANNER,
            model=self._model(entry),
            manifest=manifest,
            head_tokens=manifest.head_tokens,
            price=entry.price,
            cache=entry.cache,
            lifetime=entry.lifetime,
            policy=self.settings.spine.to_policy(),
            toolbox=box,
            place=IntegrationPlace(log=self.log, workspaces=self.workspaces),
            placed=frozenset(tool.spec.name for tool in reading),
        )

    async def worker(self, run: RunId, workspace: Workspace) -> Seat:
        """The seat of a run's Worker."""
        name = self.log.state.board.runs[run].model
        entry = model_entry(self.settings, "worker", name=name)
        view = FileView(known=work_of(self.log.state, agent_of(run)).seen)
        acting = worker_tools(self.shell, ripgrep=self._ripgrep(), view=view)
        box = toolbox([*acting, *reporting_tools()])
        manifest = await self._manifest("worker" if name is None else f"worker:{name}", entry, box=box)
        return Seat(
            agent=agent_of(run),
            model=self._model(entry),
            manifest=manifest,
            head_tokens=manifest.head_tokens,
            price=entry.price,
            cache=entry.cache,
            lifetime=entry.lifetime,
            policy=worker_policy(self.settings),
            toolbox=box,
            place=FixedPlace(workspace=workspace),
            placed=frozenset(tool.spec.name for tool in acting),
        )

    def _ripgrep(self) -> str | None:
        return shutil.which("rg", path=self.host.environ.get("PATH", os.defpath))

    def _model(self, entry: ModelEntry) -> Model:
        name = canonical([entry.name, entry.base_url, entry.wire])
        if name not in self.models:
            timeouts = Timeouts(**self.settings.timeouts.model_dump())
            key = key_of(self.host, entry)
            self.models[name] = create_model(entry, key, timeouts=timeouts, gates=self.host.gates)
        return self.models[name]

    async def _manifest(self, role: str, entry: ModelEntry, *, box: Toolbox) -> ManifestRecorded:
        """The role's manifest: the recorded one as long as the model is the same, so that an upgrade breaks nothing."""
        state = self.log.state
        known = state.manifests.get(state.role_manifest.get(role, ""))
        made = make_manifest(role, entry, definitions=box.definitions)
        if known is not None and _same_model(known, made):
            return known
        await self.log.append(made)
        return made

    async def aclose(self) -> None:
        """Close all connections."""
        for model in self.models.values():
            await model.aclose()


def make_manifest(role: str, entry: ModelEntry, *, definitions: str) -> ManifestRecorded:
    """What stands before the history of a role."""
    system = system_text(role.partition(":")[0])
    options = canonical(entry.options)
    largest_output = max(LEAST_OUTPUT_TOKENS, int(entry.window_tokens * OUTPUT_SHARE))
    max_output_tokens = min(entry.max_output_tokens, largest_output)
    parts: list[Json] = [
        role,
        entry.wire,
        entry.name,
        system,
        definitions,
        max_output_tokens,
        entry.window_tokens,
        options,
        entry.send_reasoning,
    ]
    return ManifestRecorded(
        manifest=sha256(canonical(parts).encode()).hexdigest()[:16],
        role=role,
        wire=entry.wire,
        model=entry.name,
        system=system,
        tools=definitions,
        max_output_tokens=max_output_tokens,
        window_tokens=entry.window_tokens,
        options=options,
        send_reasoning=entry.send_reasoning,
    )


def worker_policy(settings: Settings) -> RebasePolicy:
    """The Workers' policy; with `worker.context.strategy = "none"` nothing is ever dropped."""
    policy = settings.spine.to_policy()
    if settings.worker.context.strategy == "none":
        return replace(policy, policy="threshold", soft_share=1.0, hard_share=1.0, min_gain_share=1.0)
    return policy


def _same_model(known: ManifestRecorded, made: ManifestRecorded) -> bool:
    names = ("wire", "model", "max_output_tokens", "window_tokens", "options", "send_reasoning")
    return all(getattr(known, name) == getattr(made, name) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPlace:
    """A run's own tree."""

    workspace: Workspace

    async def open(self) -> Workspace:
        """The tree."""
        return self.workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationPlace:
    """The integrated result as it is now, for the Planner to read."""

    log: Log
    workspaces: Workspaces
    trees: dict[str, Workspace] = field(default_factory=dict)

    async def open(self) -> Workspace:
        """A tree of the integration head."""
        head = self.log.state.board.session["integration_head"]
        if head not in self.trees:
            self.trees.clear()
            self.trees[head] = await self.workspaces.checkout(head, "planner")
        return self.trees[head]
