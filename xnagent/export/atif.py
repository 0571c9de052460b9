"""A session as one trajectory in the Agent Trajectory Interchange Format (ATIF), its runs as sub-trajectories."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, cast

from xnagent import __version__
from xnagent.core.events import RunStarted
from xnagent.core.ids import PLANNER, AgentId, RunId
from xnagent.core.masking import Mask
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import Json
from xnagent.core.tokens import Usage
from xnagent.export.trajectory import Fields, Trajectory, agent_of_event, token_fields
from xnagent.inspect.reading import Reading, final_of, run_status

SCHEMA: Final = "ATIF-v1.8"
NAME: Final = "xnagent"
NOTES: Final = (
    "The root is the Planner; each of its runs is a sub-trajectory, referred to by the result of the call that began "
    "it. Token totals are of a trajectory's own steps, a root's total cost includes its runs. A step whose extra.kind "
    "is `note` tells what happened and was read by no model; one with the kind `rebase` replaced the steps before it."
)


def document(reading: Reading, *, mask: Mask | None = None) -> dict[str, Json]:
    """The trajectory, without secrets that the mask knows."""
    agents = _agents(reading)
    root = agents.pop(PLANNER)
    children = [_child(reading, agent) for agent in agents.values()]
    final = final_of(reading)
    made = {
        **_trajectory(reading, root),
        "notes": NOTES,
        "extra": {name: final[name] for name in ("outcome", "exit_code", "verified", "summary", "workspace", "error")},
    }
    made["final_metrics"] = _whole_metrics(made["final_metrics"], final)
    if children:
        made["subagent_trajectories"] = children
    return cast("dict[str, Json]", (mask or Mask()).value(made))


def _whole_metrics(own: Fields, final: dict[str, Json]) -> Fields:
    """A root's: its cost is that of the session, and left out if it is not known."""
    usage = cast("dict[str, Any]", final["usage"])
    tokens = {name: value for name, value in own.items() if name != "total_cost_usd"}
    cost = {} if usage["cost_usd"] is None else {"total_cost_usd": usage["cost_usd"]}
    return {**tokens, **cost, "extra": {"whole_session": usage}}


def _agents(reading: Reading) -> dict[AgentId, Trajectory]:
    """Every agent's trajectory: the Planner's, then those of runs in the order in which they were delegated."""
    names = [PLANNER, *(AgentId(run) for run in reading.state.board.runs)]
    agents = {name: Trajectory(agent=name, trajectory_of=lambda run: _name(reading, run)) for name in names}
    manifests: dict[str, ManifestRecorded] = {}
    for stored in reading.events:
        event = stored.event
        if isinstance(event, ManifestRecorded):
            manifests[event.manifest] = event
        if isinstance(event, RunStarted):
            agents[PLANNER].delegated = event.run
        agent = agent_of_event(event)
        if agent in agents:
            agents[agent].take(stored, manifests)
    return agents


def _name(reading: Reading, agent: str) -> str:
    return f"{reading.session}/{agent}"


def _trajectory(reading: Reading, agent: Trajectory) -> Fields:
    steps = [{"step_id": number, **step} for number, step in enumerate(agent.steps or [_silent(reading, agent)], 1)]
    cost = agent.cost_usd if agent.usage != Usage() else None
    totals = token_fields(agent.usage, prefix="total_")
    return {
        "schema_version": SCHEMA,
        "session_id": reading.session,
        "trajectory_id": _name(reading, agent.agent),
        "agent": _agent(reading, agent),
        "steps": steps,
        "final_metrics": {
            **totals,
            **({} if cost is None else {"total_cost_usd": round(cost, 8)}),
            "total_steps": len(steps),
        },
    }


def _silent(reading: Reading, agent: Trajectory) -> Fields:
    """A trajectory has at least one step: of an agent that was told nothing, what it was to do."""
    run = reading.state.board.runs.get(RunId(agent.agent))
    task = None if run is None else reading.state.board.tasks.get(run.task)
    started = reading.state.started
    text = (started.objective if started else "") if run is None else run.brief or (task.objective if task else "")
    return {"source": "user", "message": text, "extra": {"kind": "note"}}


def _agent(reading: Reading, agent: Trajectory) -> Fields:
    started, manifest = reading.state.started, agent.manifest
    made: Fields = {"name": NAME, "version": (started.version if started else "") or __version__}
    if manifest is not None:
        tools = [{"type": "function", "function": tool} for tool in _tools(manifest)]
        made |= {"model_name": manifest.model, **({"tool_definitions": tools} if tools else {})}
    return made | {"extra": {"role": "planner" if agent.agent == PLANNER else "worker", "agent": agent.agent}}


def _tools(manifest: ManifestRecorded) -> Iterable[Json]:
    return cast("list[Json]", json.loads(manifest.tools or "[]"))


def _child(reading: Reading, agent: Trajectory) -> Fields:
    run = reading.state.board.runs[RunId(agent.agent)]
    extra = {
        "run": run.run,
        "task": run.task,
        "status": run_status(reading, run),
        "reason": run.reason,
        "changed_files": list(run.changed_files),
    }
    return {**_trajectory(reading, agent), "extra": extra}
