"""The loop: ask `decide`, start the actions side by side, and ask again when the log has grown or an action has ended.

It names no provider, no tool and no prompt. Actions append their own events; the only things that pass back are their
ends. Whatever raises ends the whole, after everything else was stopped.
"""

from __future__ import annotations

from dataclasses import field
from typing import Protocol, assert_never

import anyio
from anyio.abc import TaskGroup

from xnagent.core.decide import (
    Action,
    CheckWhole,
    Conclude,
    DriveRun,
    SettleQueued,
    StepPlanner,
    Stop,
    Work,
    decide,
)
from xnagent.core.events import LimitReached
from xnagent.core.ids import RunId
from xnagent.core.limits import Limits
from xnagent.core.values import dataclass
from xnagent.ports import Clock, Log


class Hands(Protocol):
    """What the orchestrator can have done."""

    async def step_planner(self) -> None:
        """One Planner step."""

    async def drive_run(self, run: RunId) -> None:
        """A run to its end; cancelled, it leaves a balanced history."""

    async def settle_queued(self, run: RunId) -> None:
        """End a run that has not begun."""

    async def check_whole(self) -> None:
        """Run the session's own checks on the integrated result."""

    async def conclude(self) -> None:
        """Bring the result home and settle the session."""


@dataclass(slots=True, kw_only=True)
class Orchestrator:
    """Runs one session until it is settled."""

    log: Log
    clock: Clock
    hands: Hands
    parallel: int
    deadline_seconds: float | None = None
    """From now on."""
    limits: Limits = field(default_factory=Limits)
    """What money and tokens are reserved under for runs."""
    _in_flight: dict[Action, anyio.CancelScope] = field(default_factory=dict)
    _bell: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> None:
        """Return when the session is settled; raises what an action raised, and store errors."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_log)
            group.start_soon(self._watch_deadline)
            await self._loop(group)
            group.cancel_scope.cancel()

    async def _loop(self, group: TaskGroup) -> None:
        while self.log.state.settled is None or self._in_flight:
            under_way = frozenset(self._in_flight)
            for action in decide(self.log.state, under_way, parallel=self.parallel, limits=self.limits):
                self._begin(group, action)
            await self._bell.wait()
            self._bell = anyio.Event()

    def _begin(self, group: TaskGroup, action: Action) -> None:
        match action:
            case Stop(target):
                self._in_flight[action] = self._in_flight[target]
                self._in_flight[action].cancel()
            case StepPlanner() | DriveRun() | SettleQueued() | CheckWhole() | Conclude():
                scope = anyio.CancelScope()
                self._in_flight[action] = scope
                group.start_soon(self._act, action, scope)
            case _:
                assert_never(action)

    async def _act(self, action: Work, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._do(action)
        finally:
            self._in_flight = {known: held for known, held in self._in_flight.items() if held is not scope}
            self._bell.set()

    async def _do(self, action: Work) -> None:
        match action:
            case StepPlanner():
                await self.hands.step_planner()
            case DriveRun(run):
                await self.hands.drive_run(run)
            case SettleQueued(run):
                await self.hands.settle_queued(run)
            case CheckWhole():
                await self.hands.check_whole()
            case Conclude():
                await self.hands.conclude()
            case _:
                assert_never(action)

    async def _watch_log(self) -> None:
        seq = self.log.last_seq
        while True:
            seq = await self.log.wait(after=seq)
            self._bell.set()

    async def _watch_deadline(self) -> None:
        if self.deadline_seconds is None:
            return
        await self.clock.sleep(self.deadline_seconds)
        detail = f"deadline reached: {self.deadline_seconds:g} s"
        await self.log.append(LimitReached(limit="deadline", detail=detail))
