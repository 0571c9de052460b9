"""Gives every agent its model, its tools and its place."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from hashlib import sha256

from xnagent import __version__
from xnagent.agents.desk import Condenser, Place, Seat
from xnagent.agents.prompting import system_text
from xnagent.agents.summarizing import Summarizer
from xnagent.app.host import Host
from xnagent.app.project import skill_folders
from xnagent.config import Settings
from xnagent.config.entry import Role, model_chain
from xnagent.core.breaks import tools_changed
from xnagent.core.fallback import Candidate, choice, model_in_force
from xnagent.core.ids import PLANNER, AgentId, RunId, agent_of, role_of
from xnagent.core.limits import Limits
from xnagent.core.permissions import Rules, can_be_ruled
from xnagent.core.rebase import RebasePolicy
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.state import SessionState, work_of
from xnagent.core.text import Json, canonical
from xnagent.core.values import dataclass
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry, create_model
from xnagent.models.fingerprint import renderer_of
from xnagent.models.transport import Timeouts
from xnagent.ports import Log, Model, Shell, Tool, Toolbox, Workspace, Workspaces
from xnagent.tools.facts import fact_tools, reporting_tools
from xnagent.tools.given import given_taken_away, given_tools
from xnagent.tools.guard import taken_away
from xnagent.tools.known import FileView
from xnagent.tools.looking import RunInspectTool, status_tool
from xnagent.tools.mcp.peers import NoPeers, Peers, acting, tools_of
from xnagent.tools.mcp.peers import taken_away as foreign_taken_away
from xnagent.tools.planning import Prospects, planning_tools
from xnagent.tools.registry import planner_tools, worker_tools
from xnagent.tools.skill import SkillTool
from xnagent.tools.toolbox import FrozenToolbox, toolbox

LEAST_OUTPUT_TOKENS = 1_024
OUTPUT_SHARE = 0.25
"""A model that may write as much as its window holds would leave no room for input (B031)."""


def check_models(host: Host, settings: Settings) -> None:
    """Raise UsageError unless both roles have a model, and all of its fallbacks, a wire that is spoken and a key."""
    roles: tuple[Role, ...] = ("planner", "worker")
    for entry in (entry for role in roles for entry in model_chain(settings, role)):
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
    prospects: Prospects | None = None
    """What runs will use; None: nothing is reserved for them."""
    peers: Peers | None = None
    """MCP servers; None: there are none."""
    models: dict[str, Model] = field(default_factory=dict)
    chains: dict[tuple[Role, str | None], tuple[ModelEntry, ...]] = field(default_factory=dict)
    """By role and the model that a run was delegated to."""

    async def planner(self) -> Seat:
        """The Planner's seat."""
        limits, ripgrep, rules = self.settings.limits.to_limits(), self._ripgrep(), self._rules
        box = planner_toolbox(limits, ripgrep=ripgrep, prospects=self.prospects, rules=rules)
        place = IntegrationPlace(log=self.log, workspaces=self.workspaces)
        placed = frozenset(tool.spec.name for tool in planner_tools(ripgrep=ripgrep, rules=rules))
        return await self._seat(
            PLANNER, box=with_skills(box, self.log.state, environ=self.host.environ), place=place, placed=placed
        )

    async def worker(self, run: RunId, workspace: Workspace) -> Seat:
        """The seat of a run's Worker."""
        state, rules = self.log.state, self._rules
        view = FileView(known=work_of(state, agent_of(run)).seen)
        own = worker_toolbox(self.shell, ripgrep=self._ripgrep(), view=view, rules=rules)
        foreign = tools_of(state.mcp, self.peers or NoPeers(), rules=rules)
        given = given_tools(state.given, self.host.tools, rules=rules, session=state.session)
        box = with_more(
            with_skills(own, state, environ=self.host.environ), [*foreign, *given], state=state, rules=rules
        )
        placed = frozenset(tool.spec.name for tool in [*worker_tools(self.shell, rules=rules), *given])
        placed |= acting(foreign)
        return await self._seat(agent_of(run), box=box, place=FixedPlace(workspace=workspace), placed=placed)

    async def release(self, run: RunId) -> None:
        """End the servers that only the run's Worker used."""
        if self.peers is not None:
            await self.peers.release(agent_of(run))

    async def in_force(self, seat: Seat) -> Seat:
        """The seat with the model that the log says the agent goes on with."""
        entry = self._entry(seat.agent)
        if entry.name == seat.manifest.model:
            return seat
        manifest = await self._manifest(seat.agent, entry, box=seat.toolbox)
        return replace(
            seat,
            model=self._model(entry),
            manifest=manifest,
            head_tokens=manifest.head_tokens,
            price=entry.price,
            cache=entry.cache,
            lifetime=entry.lifetime,
            renderer=renderer_of(entry.wire),
        )

    async def _seat(self, agent: AgentId, *, box: Toolbox, place: Place, placed: frozenset[str]) -> Seat:
        entry = self._entry(agent)
        manifest = await self._manifest(agent, entry, box=box)
        heir = Candidate(model=entry.name, price=entry.price)
        declared = choice(self.log.state, agent, heir=heir, wire=manifest.wire) or tools_changed(
            self.log.state, agent, manifest=manifest, price=entry.price, order=entry.cache.order
        )
        if declared is not None:
            await self.log.append(declared)
        return Seat(
            agent=agent,
            model=self._model(entry),
            manifest=manifest,
            head_tokens=manifest.head_tokens,
            price=entry.price,
            cache=entry.cache,
            lifetime=entry.lifetime,
            policy=self.settings.spine.to_policy() if agent == PLANNER else worker_policy(self.settings),
            toolbox=box,
            place=place,
            placed=placed,
            renderer=renderer_of(entry.wire),
            condenser=None if agent == PLANNER else condenser_of(self.settings),
            chain=tuple(Candidate(model=one.name, price=one.price) for one in self._chain(agent)),
        )

    def _chain(self, agent: AgentId) -> tuple[ModelEntry, ...]:
        name = _delegated_to(self.log.state, agent)
        role: Role = "planner" if agent == PLANNER else "worker"
        if (role, name) not in self.chains:
            self.chains[role, name] = model_chain(self.settings, role, name=name)
        return self.chains[role, name]

    def _entry(self, agent: AgentId) -> ModelEntry:
        chain = {entry.name: entry for entry in self._chain(agent)}
        return chain[model_in_force(self.log.state, agent, chain=list(chain))]

    @property
    def _rules(self) -> Rules:
        return self.settings.permissions.to_rules()

    def _ripgrep(self) -> str | None:
        return shutil.which("rg", path=self.host.environ.get("PATH", os.defpath))

    def _model(self, entry: ModelEntry) -> Model:
        name = canonical([entry.name, entry.base_url, entry.wire])
        if name not in self.models:
            timeouts = Timeouts(**self.settings.timeouts.model_dump())
            key = key_of(self.host, entry)
            gates, clock = self.host.gates, self.host.clock
            self.models[name] = create_model(entry, key, timeouts=timeouts, gates=gates, clock=clock)
        return self.models[name]

    async def _manifest(self, agent: AgentId, entry: ModelEntry, *, box: Toolbox) -> ManifestRecorded:
        """The role's manifest: the recorded one as long as the model is the same, so that an upgrade breaks nothing.

        Tools that rules take away or give back, and other parameters, are changes that the user made: a new manifest
        has them, and otherwise the recorded text and tools.
        """
        state = self.log.state
        name = _delegated_to(state, agent) if entry is self._chain(agent)[0] else entry.name
        role = role_of(agent) if name is None else f"{role_of(agent)}:{name}"
        known = state.manifests.get(state.role_manifest.get(role, ""))
        made = make_manifest(role, entry, definitions=box.definitions)
        if known is not None and (known.wire, known.model) == (made.wire, made.model):
            given = frozenset(tool.name for tool in state.given)
            tools = with_ruled_tools(known.tools, made.tools, given=given)
            if tools == known.tools and _same_parameters(known, made):
                return known
            made = make_manifest(role, entry, definitions=tools, system=known.system)
        await self.log.append(made)
        return made

    async def aclose(self) -> None:
        """Close all connections."""
        for model in self.models.values():
            await model.aclose()


def with_skills(box: FrozenToolbox, state: SessionState, *, environ: Mapping[str, str]) -> FrozenToolbox:
    """With a tool for skills, if there were any when the session began."""
    if not state.project.has_skill_tool:
        return box
    return box.with_tools([SkillTool(folders=skill_folders(environ, state))])


def planner_toolbox(
    limits: Limits, *, ripgrep: str | None = None, prospects: Prospects | None = None, rules: Rules
) -> FrozenToolbox:
    """The Planner's tools, as far as the rules leave them."""
    planning = planning_tools(limits=limits, prospects=prospects)
    looking: list[Tool] = [*planner_tools(ripgrep=ripgrep, rules=rules), status_tool(), RunInspectTool()]
    return toolbox([*looking, *planning, *fact_tools()], forbidden=taken_away(rules))


def worker_toolbox(
    shell: Shell, *, ripgrep: str | None = None, view: FileView | None = None, rules: Rules
) -> FrozenToolbox:
    """A Worker's tools, as far as the rules leave them."""
    acting = worker_tools(shell, ripgrep=ripgrep, view=view, rules=rules)
    return toolbox([*acting, *reporting_tools()], forbidden=taken_away(rules))


def with_more(box: FrozenToolbox, tools: Sequence[Tool], *, state: SessionState, rules: Rules) -> FrozenToolbox:
    """With the tools of others that the session froze."""
    taken = {**foreign_taken_away(state.mcp, rules=rules), **given_taken_away(state.given, rules=rules)}
    return replace(box.with_tools(tools), forbidden={**box.forbidden, **taken}) if tools or taken else box


def _delegated_to(state: SessionState, agent: AgentId) -> str | None:
    """The model that the Planner asked for when it began the run; None: the role's own."""
    run = state.board.runs.get(RunId(agent))
    return None if run is None else run.model


def with_ruled_tools(recorded: str, current: str, *, given: AbstractSet[str] = frozenset()) -> str:
    """The recorded definitions, with those of the tools that rules can take away as they are now: there or not."""
    before = {tool["name"]: tool for tool in json.loads(recorded)}
    now = {tool["name"]: tool for tool in json.loads(current)}
    ruled = {name for name in {*before, *now} if name in given or can_be_ruled(name)}
    if before.keys() & ruled == now.keys() & ruled:
        return recorded
    kept = {name: tool for name, tool in before.items() if name not in ruled or name in now}
    new = {name: tool for name, tool in now.items() if name in ruled and name not in before}
    return canonical([tool for _, tool in sorted((kept | new).items())])


def make_manifest(role: str, entry: ModelEntry, *, definitions: str, system: str | None = None) -> ManifestRecorded:
    """What stands before the history of a role; `system` is its text if not the one that ships."""
    system = system_text(role.partition(":")[0]) if system is None else system
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
        version=__version__,
        renderer=renderer_of(entry.wire),
        system_sha256=sha256(system.encode()).hexdigest(),
        tools_sha256=sha256(definitions.encode()).hexdigest(),
    )


def worker_policy(settings: Settings) -> RebasePolicy:
    """The Workers' policy; with `worker.context.strategy = "none"` nothing is ever dropped."""
    policy = settings.spine.to_policy()
    if settings.worker.context.strategy == "none":
        return replace(policy, policy="threshold", soft_share=1.0, hard_share=1.0, min_gain_share=1.0)
    return policy


def condenser_of(settings: Settings) -> Condenser | None:
    """How the Workers' histories are shortened, if not from stored state alone."""
    return Summarizer() if settings.worker.context.strategy == "summary" else None


def _same_parameters(known: ManifestRecorded, made: ManifestRecorded) -> bool:
    names = ("max_output_tokens", "window_tokens", "options", "send_reasoning")
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
