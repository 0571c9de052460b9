"""The Planner: one step at a time, told what changed since the last."""

from __future__ import annotations

from functools import partial

from xnagent.agents.desk import Desk, HaltError, RunFailedError, Seat, Succession
from xnagent.agents.prompting import project_message
from xnagent.agents.room import append_news, make_room
from xnagent.agents.step import do_calls, step
from xnagent.core.events import FinishRequested
from xnagent.core.ids import PLANNER
from xnagent.core.messages import nudge_message, objective_message, state_message
from xnagent.core.state import SessionState, spine_of
from xnagent.core.values import dataclass
from xnagent.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerAgent:
    """Steps the session's Planner."""

    desk: Desk
    seat: Seat
    succession: Succession

    async def step(self) -> None:
        """One step, whatever state a crash left the history in. What ends the session is in the log afterwards."""
        try:
            await self._step()
        except (HaltError, ModelError):
            return
        except RunFailedError as error:
            await self.desk.log.append(FinishRequested(outcome="failed", summary=str(error)))

    async def _step(self) -> None:
        seat = await self.succession.in_force(self.seat)
        spine = spine_of(self.desk.log.state, PLANNER)
        if spine.is_open:
            await do_calls(self.desk, seat)
            return
        if spine.pending_request is None:
            await self._tell(seat)
        await step(self.desk, seat)

    async def _tell(self, seat: Seat) -> None:
        """Append what the Planner does not know yet: first the rebase, if it is due, then the news."""
        log = self.desk.log
        if not spine_of(log.state, PLANNER).items:
            await log.append(objective_message(log.ahead))
        await make_room(self.desk, seat)
        await append_news(self.desk, seat, make=partial(project_message, agent=PLANNER))
        if not _begins_alone(log.ahead, seat):
            await append_news(self.desk, seat, make=state_message)
        if log.ahead.planner == "unfinished":
            await log.append(nudge_message(log.ahead))


def _begins_alone(state: SessionState, seat: Seat) -> bool:
    """Whether the objective goes out without a state that has nothing to tell.

    Where a cache finds only whole requests again, that makes system, tools and objective one: a rebase finds them.
    """
    spine = spine_of(state, PLANNER)
    is_first = len(spine.items) == spine.head and not state.cause_count
    board = state.board
    return seat.cache.has_whole_requests and is_first and not (board.tasks or board.facts)
