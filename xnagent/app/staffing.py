"""All agents of a session, wired together: the orchestrator's hands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from xnagent.agents.closing import Closing
from xnagent.agents.desk import Desk
from xnagent.agents.judging import Judge
from xnagent.agents.keeping import Keeper
from xnagent.agents.planner import PlannerAgent
from xnagent.agents.verifier import Verifier
from xnagent.agents.worker import WorkerAgent
from xnagent.app.boxing import box_for
from xnagent.app.crew import Crew
from xnagent.app.hooks import around_run, make_hooks
from xnagent.app.host import Host
from xnagent.app.places import Places, is_saving
from xnagent.app.project import skill_folders
from xnagent.app.prospects import SessionProspects
from xnagent.app.servers import mcp_peers
from xnagent.config import Settings
from xnagent.core.ids import RunId
from xnagent.core.state import SessionState
from xnagent.core.values import dataclass
from xnagent.store.placed import PlacedLog
from xnagent.workspaces.addresses import is_address
from xnagent.workspaces.box.sealing import Box
from xnagent.workspaces.shell import ProcessShell


@dataclass(frozen=True, slots=True, kw_only=True)
class Staff:
    """The orchestrator's hands."""

    planner: PlannerAgent
    workers: WorkerAgent
    closing: Closing
    owner: int | None
    """As root: the user that commands run as, if not root."""

    async def step_planner(self) -> None:
        """One Planner step."""
        await self.planner.step()

    async def drive_run(self, run: RunId) -> None:
        """A run to its end."""
        await around_run(self.workers.desk.hooks, run, drive=self.workers.drive)

    async def settle_queued(self, run: RunId) -> None:
        """End a run that has not begun."""
        await around_run(self.workers.desk.hooks, run, drive=self.workers.settle_queued)

    async def check_whole(self) -> None:
        """The session's own checks."""
        await self.closing.check_whole()

    async def conclude(self) -> None:
        """Settle the session."""
        await self.closing.conclude()


async def _box(host: Host, state: SessionState, *, settings: Settings, repository: Path) -> Box | None:
    started = state.started
    if started is None:
        return None
    skills = skill_folders(host.environ, state)
    return await anyio.to_thread.run_sync(
        lambda: box_for(host, settings.sandbox, session=started.session, repository=repository, skills=skills)
    )


@asynccontextmanager
async def staffed(
    host: Host, store: PlacedLog, *, places: Places, prospects: SessionProspects, earlier_seconds: float
) -> AsyncIterator[Staff]:
    """All agents of a session, wired together."""
    workspaces, settings = places.workspaces, prospects.settings
    began = host.clock.monotonic()
    box = await _box(host, store.state, settings=settings, repository=places.repository)
    shell = ProcessShell(environ=host.environ, box=box, is_tied=host.store is not None)
    crew = Crew(host=host, log=store, settings=settings, workspaces=workspaces, shell=shell, prospects=prospects)
    try:
        async with mcp_peers(
            host, store, settings=settings, workspaces=workspaces, repository=places.repository
        ) as peers:
            crew = replace(crew, peers=peers)
            yield await _staff(store, crew, places=places, box=box, began=began, earlier_seconds=earlier_seconds)
    finally:
        with anyio.CancelScope(shield=True):
            await crew.aclose()
            await anyio.to_thread.run_sync(shell.close)


async def _staff(
    store: PlacedLog, crew: Crew, *, places: Places, box: Box | None, began: float, earlier_seconds: float
) -> Staff:
    host, settings, workspaces = crew.host, crew.settings, places.workspaces
    verifier = Verifier(
        log=store, shell=crew.shell, workspaces=workspaces, timeout_seconds=settings.check_timeout_seconds
    )
    desk = Desk(
        log=store,
        clock=host.clock,
        limits=replace(settings.limits.to_limits(), denials=settings.permissions.max_denials),
        retry=settings.retry.to_policy(),
        prefix=settings.prefix,
        hooks=make_hooks(host, store, settings=settings, repository=places.repository),
    )
    judge = Judge(log=store, workspaces=workspaces, verifier=verifier, hooks=desk.hooks)
    closing = Closing(
        log=store,
        clock=host.clock,
        workspaces=workspaces,
        verifier=verifier,
        may_apply=settings.apply,
        began=began,
        earlier_seconds=earlier_seconds,
    )
    planner = PlannerAgent(desk=desk, seat=await crew.planner(), succession=crew)
    keeper = Keeper(
        log=store,
        workspaces=workspaces,
        trees=places.trees,
        is_saving=is_saving(settings, may_travel=may_travel(host, store.state)),
    )
    workers = WorkerAgent(desk=desk, seats=crew, keeper=keeper, judge=judge)
    return Staff(planner=planner, workers=workers, closing=closing, owner=None if box is None else box.grounds.owner)


def may_travel(host: Host, state: SessionState) -> bool:
    """Whether the session may go on at a machine that has not its folders."""
    is_fetched = state.started is not None and is_address(state.started.repository)
    return host.store is not None or is_fetched
