"""`xnagent rebase SESSION`: have a running session do it; `--dry-run`: what it would drop, keep, cost and save now."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

import anyio

from xnagent.agents.lasting import lifetime_of
from xnagent.app.crew import condenser_of, worker_policy
from xnagent.app.host import Host
from xnagent.app.replay import tickets_for
from xnagent.app.steering import ask_for_rebases
from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.cli.options import changed_settings
from xnagent.cli.resume import last_settings
from xnagent.config import Settings
from xnagent.config.entry import Role, model_chain
from xnagent.core.checkpoint import checkpoint
from xnagent.core.due import Conditions, Verdict, verdict
from xnagent.core.events import Stored
from xnagent.core.fallback import model_in_force
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, RunId, SessionId, agent_of
from xnagent.core.rebase import RebasePolicy, Room, plan_rebase
from xnagent.core.receipts import Occasion, receipt
from xnagent.core.rent import Rates
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded, SpineRebased
from xnagent.core.state import SessionState, active_runs, ratio_of, spine_of, work_of
from xnagent.core.text import Json
from xnagent.errors import UsageError
from xnagent.inspect.plain import UNKNOWN, count, money
from xnagent.inspect.receipts import rebase_rows
from xnagent.models.catalog import ModelEntry

ASKED_FIRST: Final = "a model is asked for a summary first, and this is what is left where it fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """A rebase of one agent's spine, if it were made now."""

    verdict: Verdict
    """What the policy says."""
    receipt: SpineRebased
    row: dict[str, Json]
    has_gain: bool

    @property
    def is_made(self) -> bool:
        """Whether the session would make it before the agent's next request."""
        return self.verdict.cause is not None and self.has_gain

    @property
    def why(self) -> str:
        """For people."""
        if self.verdict.cause is None or self.has_gain:
            return self.verdict.why
        return f"{self.verdict.why}; but it would free too little"


def execute(arguments: Namespace, console: Console) -> int:
    """Ask a running session for it; with `--dry-run` only tell what it would do, which reads only."""
    host = host_of(arguments)
    if not getattr(arguments, "dry_run", False):
        return _ask(host, arguments, console=console)
    place = host.place(arguments.session)
    settings = changed_settings(arguments, last_settings(place))
    events = tuple(place.events())
    found = foreseen(host, events, settings=settings, agent=getattr(arguments, "agent", None))
    if console.output == "text":
        console.answer("\n\n".join(map(told, found)) or "no agent has a history that could be rebased")
    else:
        console.record({"type": "rebase", "session": place.name, "agents": [_record(one) for one in found]})
    return 0


def _ask(host: Host, arguments: Namespace, *, console: Console) -> int:
    session = SessionId(arguments.session)
    asked = anyio.run(partial(ask_for_rebases, host, session, agent=getattr(arguments, "agent", None) or ""))
    if console.output == "text":
        console.answer(f"{session}: asked; before the next request of each, if it frees enough: {', '.join(asked)}")
    else:
        console.record({"type": "rebase_asked", "session": session, "agents": list(asked)})
    return 0


def foreseen(host: Host, events: tuple[Stored, ...], *, settings: Settings, agent: str | None) -> list[Foreseen]:
    """What rebases would do now. Raises UsageError for an agent that has no history."""
    state = fold_all(stored.event for stored in events)
    going_on = [PLANNER, *(agent_of(run.run) for run in active_runs(state))]
    agents = going_on if agent is None else [AgentId(agent)]
    known = [name for name in agents if spine_of(state, name).items]
    if agent is not None and not known:
        names = ", ".join(state.spines) or "none yet"
        raise UsageError(f"NO_AGENT: {agent} has no history in this session (there is: {names})")
    age = datetime.fromisoformat(host.clock.now()) - datetime.fromisoformat(events[-1].at) if events else None
    seconds = 0.0 if age is None else age.total_seconds()
    return [_foreseen(state, events, agent=name, settings=settings, age_seconds=seconds) for name in known]


def _foreseen(
    state: SessionState, events: tuple[Stored, ...], *, agent: AgentId, settings: Settings, age_seconds: float
) -> Foreseen:
    entry, spine = _entry(state, agent, settings=settings), spine_of(state, agent)
    manifest = _manifest(state, agent)
    room = Room(
        window_tokens=manifest.window_tokens,
        max_output_tokens=manifest.max_output_tokens,
        head_tokens=manifest.head_tokens,
        ratio=ratio_of(state, manifest.model),
    )
    policy = settings.spine.to_policy() if agent == PLANNER else worker_policy(settings)
    conditions = _conditions(spine, entry, age_seconds=age_seconds)
    said = verdict(spine, room, policy=policy, conditions=conditions)
    if said.cause is not None and agent != PLANNER and condenser_of(settings) is not None:
        said = replace(said, why=f"{said.why}; {ASKED_FIRST}")
    event, has_gain = _receipt(state, agent, room=room, policy=policy, conditions=conditions)
    event = replace(event, cause=said.cause or "none", manifest=manifest.manifest)
    stored = Stored(seq=events[-1].seq + 1, at="", event=event)
    row = rebase_rows([*events, stored])[-1]
    return Foreseen(verdict=said, receipt=event, row=row, has_gain=has_gain)


def _entry(state: SessionState, agent: AgentId, *, settings: Settings) -> ModelEntry:
    run = state.board.runs.get(RunId(agent))
    role: Role = "planner" if agent == PLANNER else "worker"
    chain = {entry.name: entry for entry in model_chain(settings, role, name=None if run is None else run.model)}
    return chain[model_in_force(state, agent, chain=list(chain))]


def _manifest(state: SessionState, agent: AgentId) -> ManifestRecorded:
    sent = spine_of(state, agent).sent_manifest
    role = "planner" if agent == PLANNER else "worker"
    found = state.manifests.get(sent or state.role_manifest.get(role, ""))
    if found is None:
        raise UsageError(f"NO_AGENT: {agent} was not given a model yet")
    return found


def _conditions(spine: Spine, entry: ModelEntry, *, age_seconds: float) -> Conditions:
    lasts = lifetime_of(spine, entry.cache)
    is_long = spine.is_long_lived or entry.lifetime == "1h"
    return Conditions(
        rates=None if entry.price is None else Rates(price=entry.price, cache=entry.cache, is_long=is_long),
        has_expired=bool(spine.requests) and lasts is not None and age_seconds > lasts,
    )


def _receipt(
    state: SessionState, agent: AgentId, *, room: Room, policy: RebasePolicy, conditions: Conditions
) -> tuple[SpineRebased, bool]:
    spine = spine_of(state, agent)
    tickets = tickets_for(spine, room, policy=policy)
    plan = plan_rebase(spine, checkpoint(state, agent), room=room, policy=policy, tickets=tickets)
    steps = work_of(state, agent).steps
    occasion = Occasion(cause="none", cursor=0, steps=steps, manifest="", conditions=conditions)
    return receipt(spine, plan, room=room, occasion=occasion), plan.has_gain(policy)


def told(one: Foreseen) -> str:
    """For people."""
    event = one.receipt
    verdict_line = f"would be rebased now ({event.cause})" if one.is_made else "would not be rebased now"
    kept = len(event.items) - 2
    after = (
        f"{count(event.tokens_after)} after it, checkpoint {count(event.checkpoint_tokens)}, {count(kept)} items kept"
    )
    saves = f"saves {money(event.saved_usd)} with each request{_pays(event)}"
    parts = [
        f"{event.agent} {verdict_line}: {one.why}",
        f"  tokens   {count(event.tokens_before)} now, {after}",
        f"  drops    {_dropped(event)}",
        f"  costs    {money(event.price_usd)}, {saves}; re-reading has cost {money(event.rent_usd)} so far",
    ]
    where = str(one.row["detail"])
    return "\n".join([*parts, *([f"  read it  {where}"] if where else [])])


def _dropped(event: SpineRebased) -> str:
    listed = ", ".join(f"{count(part.items)} {part.kind} ({count(part.tokens)})" for part in event.dropped)
    tickets = f"; {count(len(event.ticketed))} older results become tickets" if event.ticketed else ""
    return (listed or "nothing") + tickets


def _pays(event: SpineRebased) -> str:
    pays = UNKNOWN if event.break_even_steps is None else f"{event.break_even_steps:.1f}"
    return f", pays after {pays} requests"


def _record(one: Foreseen) -> dict[str, Json]:
    row = {name: value for name, value in one.row.items() if name not in {"seq", "at", "is_refused"}}
    return {"would_rebase": one.is_made, "why": one.why, **row, "cause": one.verdict.cause}
