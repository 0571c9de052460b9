"""Where a log can be cut so that another session goes on from there: between appends, and with no call under way.

A request without its reply is no obstacle: it is sent again as it is. Events that were committed together are never
parted: half of a merge or of a rebase never happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xnagent.core.events import (
    Event,
    FactRecorded,
    PatchMerged,
    ResultApplied,
    RunSettled,
    SessionResumed,
    SessionSettled,
    SessionStarted,
    Stored,
    UserMessageAdded,
)
from xnagent.core.fold import fold
from xnagent.core.ids import PLANNER, agent_of
from xnagent.core.project_events import ProjectRead, SkillsChanged
from xnagent.core.spine import missing_calls
from xnagent.core.spine_events import (
    ModelReplaced,
    PrefixBroken,
    RebaseRefused,
    RebasesSuspended,
    RequestFailed,
    RequestStarted,
    SpineExtended,
    SpineRebased,
    WindowFilled,
)
from xnagent.core.state import SessionState, active_runs, work_of
from xnagent.core.summary_events import SummaryMade

OPENING: Final = (SessionStarted, ProjectRead, FactRecorded)
"""What a session's first append may hold; facts among it are those about the tree."""
TOGETHER: Final[tuple[tuple[tuple[type, ...], tuple[type, ...]], ...]] = (
    ((SummaryMade,), (SpineRebased,)),
    ((PatchMerged,), (RunSettled,)),
    ((RequestFailed,), (ModelReplaced,)),
    ((PrefixBroken, WindowFilled), (WindowFilled, RequestStarted)),
    ((RebaseRefused,), (RebasesSuspended,)),
    ((ResultApplied,), (SessionSettled,)),
    ((SessionResumed, SkillsChanged), (SkillsChanged, UserMessageAdded)),
)
"""Neighbours that are one append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A log up to one of its events."""

    events: tuple[Stored, ...]
    state: SessionState
    """As it was after the last of them."""

    @property
    def seq(self) -> int:
        """Number of the last event."""
        return self.events[-1].seq


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a log cannot be cut behind an event, and where it can be."""

    why: str
    before: int | None
    """The nearest event before it behind which it can be; None: there is none."""
    after: int | None
    """The nearest one after it; None: not yet."""


def cut_at(events: Sequence[Stored], seq: int) -> Cut | Obstacle:
    """The log up to event `seq`, which is there, if a session can go on from it."""
    state, before, wrong = SessionState(), None, ""
    for number, stored in enumerate(events, 1):
        following = events[number] if number < len(events) else None
        state = fold(state, stored.event)
        why = obstacle(state, stored.event, following=None if following is None else following.event)
        if stored.seq == seq and not why:
            return Cut(events=tuple(events[:number]), state=state)
        if stored.seq == seq:
            wrong = why
        elif not why and stored.seq < seq:
            before = stored.seq
        elif not why:
            return Obstacle(why=wrong, before=before, after=stored.seq)
    return Obstacle(why=wrong, before=before, after=None)


def obstacle(state: SessionState, last: Event, *, following: Event | None) -> str:
    """Why a session cannot go on from the state after `last`; empty if it can."""
    for spine in state.spines.values():
        for call in missing_calls(spine)[:1]:
            return f"the call {call.name} of {spine.agent} has no result yet"
    if following is not None and _are_together(last, following):
        return f"{last.type} and {following.type} were committed together"
    return ""


def _are_together(last: Event, following: Event) -> bool:
    if isinstance(last, OPENING) and isinstance(following, ProjectRead | FactRecorded):
        return not isinstance(following, FactRecorded) or following.source == "snapshot"
    if isinstance(last, SpineRebased) and isinstance(following, SpineExtended):
        return last.agent == following.agent == PLANNER and following.kind == "message"
    return any(isinstance(last, first) and isinstance(following, second) for first, second in TOGETHER)


def unsaved_runs(state: SessionState) -> dict[str, tuple[int, ...]]:
    """Runs under way whose trees the log does not hold whole: the steps whose changes it does not have."""
    trees = {run.run: work_of(state, agent_of(run.run)).tree for run in active_runs(state)}
    return {str(run): tree.unsaved for run, tree in trees.items() if tree.unsaved}
