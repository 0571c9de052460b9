"""The part of `fold` that is about summaries.

While one is asked for, the summarizer has a spine of its own: the live one with the instruction behind it. The Worker's
spine is not touched by that, so there is nothing to undo when it fails (M78).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from xnagent.core.evolve import evolve
from xnagent.core.ids import AgentId, summarizer_of
from xnagent.core.spine import Spine, extend
from xnagent.core.state import SessionState, spine_of, work_of
from xnagent.core.summary import SummaryLog
from xnagent.core.summary_events import RebaseAsked, SummaryFailed, SummaryMade, SummaryStarted


def _summary_started(state: SessionState, event: SummaryStarted) -> SessionState:
    aside = summarizer_of(event.agent)
    own = Spine(agent=aside)
    if event.form == "aligned":
        own = evolve(spine_of(state, event.agent), agent=aside, pending_request=None, is_suspended=False)
    state = without_summarizer(state, event.agent)
    spines = {**state.spines, aside: extend(own, event.items)}
    summary = evolve(work_of(state, event.agent).summary, attempt=event)
    return _with_summary(evolve(state, spines=spines), event.agent, summary=summary)


def _summary_made(state: SessionState, event: SummaryMade) -> SessionState:
    log = work_of(state, event.agent)
    summary = SummaryLog(
        rounds=event.round,
        text=event.text,
        values=dict(event.values),
        call_count=log.call_count,
        cause="" if log.summary.attempt is None else log.summary.attempt.cause,
        has_been_blank=log.summary.has_been_blank,
        notes=log.summary.notes if event.notes is None else (*log.summary.notes, (event.round, event.notes)),
    )
    return _with_summary(without_summarizer(state, event.agent), event.agent, summary=summary)


def _summary_failed(state: SessionState, event: SummaryFailed) -> SessionState:
    state = without_summarizer(state, event.agent)
    summary = work_of(state, event.agent).summary
    is_blank = summary.has_been_blank or event.fault == "blank"
    summary = evolve(summary, failures=event.failures, has_been_blank=is_blank, attempt=None)
    state = _with_summary(state, event.agent, summary=summary)
    if event.agent not in state.spines or event.fault == "interrupted":
        return state
    spine = evolve(state.spines[event.agent], refused_at=event.tokens, is_rebase_asked=False)
    return evolve(state, spines={**state.spines, event.agent: spine})


def _rebase_asked(state: SessionState, event: RebaseAsked) -> SessionState:
    if event.agent not in state.spines:
        return state
    spine = evolve(state.spines[event.agent], is_rebase_asked=True)
    return evolve(state, spines={**state.spines, event.agent: spine})


def _with_summary(state: SessionState, agent: AgentId, *, summary: SummaryLog) -> SessionState:
    return evolve(state, work={**state.work, agent: evolve(work_of(state, agent), summary=summary)})


def without_summarizer(state: SessionState, agent: AgentId) -> SessionState:
    """The state without what was under way for a summary of the agent's history."""
    aside = summarizer_of(agent)
    if aside not in state.spines and aside not in state.in_flight:
        return state
    return evolve(
        state,
        spines={name: spine for name, spine in state.spines.items() if name != aside},
        in_flight={name: request for name, request in state.in_flight.items() if name != aside},
    )


HANDLERS: Final[Mapping[type[Any], Callable[[SessionState, Any], SessionState]]] = {
    SummaryStarted: _summary_started,
    SummaryMade: _summary_made,
    SummaryFailed: _summary_failed,
    RebaseAsked: _rebase_asked,
}
"""By event type."""
