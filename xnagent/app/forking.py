"""A new session that goes on from a point in another one's log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import anyio.to_thread

from xnagent.app.host import Host
from xnagent.app.letters import mailbox_of
from xnagent.core.events import PatchTaken, SessionStarted, Stored
from xnagent.core.fork_events import SessionForked
from xnagent.core.forking import Cut, Obstacle, cut_at, unsaved_runs
from xnagent.core.ids import RunId, SessionId, agent_of
from xnagent.core.limits import spent_usd
from xnagent.core.spine_events import ToolStarted
from xnagent.core.state import SessionState
from xnagent.core.tree_events import RunTreeSaved
from xnagent.errors import UsageError
from xnagent.store.copying import copy_session
from xnagent.store.mailbox import Letter
from xnagent.store.sessions import new_session_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A session that was made of another one's log."""

    session: SessionId
    origin: SessionId
    cut: int
    """The last event that was copied."""
    artifacts: int
    forked: SessionForked
    state: SessionState
    """As it was at the cut."""
    lost: Mapping[str, Sequence[int]]
    """By run under way: its steps whose changes to its tree are not in the log."""


async def fork_session(host: Host, origin: str, *, at: int, messages: Sequence[str] = ()) -> Fork:
    """Make a session whose log is that of `origin` up to event `at`; the messages wait in its mailbox.

    The origin is only read, and may be running. Raises UsageError where no session can go on from there.
    """
    place = host.place(origin)
    events = await anyio.to_thread.run_sync(lambda: tuple(place.events()))
    cut = _cut(events, at, session=origin)
    session = new_session_id(host.clock)
    saves = _later_saves(cut, events[at:])
    forked = SessionForked(
        origin=await anyio.to_thread.run_sync(place.read_session),
        cut=at,
        requests=sum(totals.requests for totals in cut.state.totals.values()),
        cost_usd=spent_usd(cut.state),
    )
    now = host.clock.now()
    log = [*_renamed(cut.events, session), *_appended(cut, saves, forked=forked, now=now)]
    copy = partial(copy_session, place, host.place(session), session=session, events=log, now=now)
    artifacts = await anyio.to_thread.run_sync(copy)
    mailbox = mailbox_of(host, session)
    for text in messages:
        await mailbox.post(Letter(kind="message", text=text))
    saved = {save.run for save in saves}
    lost = {run: steps for run, steps in unsaved_runs(cut.state).items() if run not in saved}
    return Fork(
        session=session,
        origin=forked.origin,
        cut=at,
        artifacts=artifacts,
        forked=forked,
        state=cut.state,
        lost=lost,
    )


def _cut(events: Sequence[Stored], at: int, *, session: str) -> Cut:
    if at > len(events):
        raise UsageError(f"FORK_POINT: there is no event {at}; session {session} has {len(events)}")
    found = cut_at(events, at)
    if isinstance(found, Obstacle):
        ways = [f"--at {seq}" for seq in (found.before, found.after) if seq is not None]
        advice = f"use {' or '.join(ways)}" if ways else "there is no such point in it yet; wait until its calls end"
        raise UsageError(f"FORK_POINT: no session can go on from event {at}: {found.why}; {advice}")
    return found


def _renamed(events: Iterable[Stored], session: SessionId) -> Iterable[Stored]:
    for stored in events:
        event = stored.event
        yield replace(stored, event=replace(event, session=session)) if isinstance(event, SessionStarted) else stored


def _appended(cut: Cut, saves: Iterable[RunTreeSaved], *, forked: SessionForked, now: str) -> list[Stored]:
    """What is known of trees as they were at the cut, then the fork."""
    then = cut.events[-1].at
    trees = [Stored(seq=seq, at=then, event=save) for seq, save in enumerate(saves, cut.seq + 1)]
    return [*trees, Stored(seq=cut.seq + len(trees) + 1, at=now, event=forked)]


def _later_saves(cut: Cut, rest: Sequence[Stored]) -> list[RunTreeSaved]:
    """Trees that the log does not hold at the cut, but soon after it, with nothing done to them in between."""
    runs = unsaved_runs(cut.state)
    found = (_later_save(cut.state, RunId(run), step=steps[-1], rest=rest) for run, steps in runs.items())
    return [save for save in found if save is not None]


def _later_save(state: SessionState, run: RunId, *, step: int, rest: Sequence[Stored]) -> RunTreeSaved | None:
    for event in (stored.event for stored in rest):
        match event:
            case ToolStarted() if event.agent == agent_of(run):
                return None
            case RunTreeSaved() if event.run == run:
                return event
            case PatchTaken() if event.run == run:
                base = state.board.runs[run].base or ""
                return RunTreeSaved(run=run, step=step, commit=event.commit, since=base, patch=event.patch)
            case _:
                pass
    return None
