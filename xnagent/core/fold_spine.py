"""The part of `fold` that is about spines, requests and tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from xnagent.core import spine_events as ev
from xnagent.core.archive import archived, carried
from xnagent.core.evolve import evolve
from xnagent.core.fallback import CHOSEN, OF_THE_CONTENT
from xnagent.core.fold_project import with_told
from xnagent.core.fold_trees import told
from xnagent.core.ids import PLANNER, AgentId, role_of
from xnagent.core.spine import (
    Spine,
    extend,
    extend_with_state,
    hand_over,
    replace_items,
    replace_result,
)
from xnagent.core.state import (
    SessionState,
    WorkLog,
    spine_of,
    work_of,
)

FIRST: Final = frozenset({"objective", "brief"})
"""The messages that no rebase replaces, whole."""


def _with_spine(state: SessionState, spine: Spine) -> SessionState:
    spines = dict(state.spines)
    spines[spine.agent] = spine
    return evolve(state, spines=spines)


def _with_work(state: SessionState, agent: AgentId, *, log: WorkLog) -> SessionState:
    work = dict(state.work)
    work[agent] = log
    return evolve(state, work=work)


def _manifest_recorded(state: SessionState, event: ev.ManifestRecorded) -> SessionState:
    return evolve(
        state,
        manifests={**state.manifests, event.manifest: event},
        role_manifest={**state.role_manifest, event.role: event.manifest},
    )


def _spine_extended(state: SessionState, event: ev.SpineExtended) -> SessionState:
    spine = spine_of(state, event.agent)
    if event.kind in {"baseline", "delta"}:
        is_delta = event.kind == "delta"
        board = state.board if spine.base is None else carried(spine.base, state.board)
        spine = extend_with_state(spine, event.items, board=board, cursor=event.cursor, is_delta=is_delta)
        state = evolve(state, deltas=state.deltas + is_delta)
    else:
        first = len(event.items) if event.kind in FIRST else spine.head
        spine = extend(evolve(spine, head=first), event.items)
    state = with_told(_with_spine(state, spine), event.agent, keys=event.tells)
    if event.kind == "nudge":
        return _nudged(state, event.agent)
    if event.kind == "message" and event.agent != PLANNER:
        return told(_with_work(state, event.agent, log=evolve(work_of(state, event.agent), inbox=())), event.agent)
    return state


def _nudged(state: SessionState, agent: AgentId) -> SessionState:
    if agent == PLANNER:
        return evolve(state, planner="nudged")
    return _with_work(state, agent, log=evolve(work_of(state, agent), nudged=True))


def _spine_rebased(state: SessionState, event: ev.SpineRebased) -> SessionState:
    board = archived(state.board) if event.agent == PLANNER else None
    spine = replace_items(spine_of(state, event.agent), event.items, board=board, cursor=event.cursor)
    return evolve(_with_spine(state, spine), rebases=(*state.rebases, event), in_flight=_without(state, event.agent))


def _model_replaced(state: SessionState, event: ev.ModelReplaced) -> SessionState:
    state = _with_spine(state, hand_over(spine_of(state, event.agent)))
    state = evolve(state, replaced=(*state.replaced, event), in_flight=_without(state, event.agent))
    if event.cause == CHOSEN:
        return state
    who = {event.agent} if event.cause in OF_THE_CONTENT else {event.agent, role_of(event.agent)}
    more = {name: tuple(dict.fromkeys((*state.given_up.get(name, ()), event.replaced))) for name in sorted(who)}
    state = evolve(state, given_up={**state.given_up, **more})
    return evolve(state, fault=None) if event.agent == PLANNER else state


def _tools_changed(state: SessionState, event: ev.ToolsChanged) -> SessionState:
    """What a cache holds of the lineage is known no more: part of it, where the model reads the system text first."""
    spine = evolve(hand_over(spine_of(state, event.agent)), held_tokens=None, held_manifest="")
    state = evolve(_with_spine(state, spine), in_flight=_without(state, event.agent))
    return evolve(state, retooled=(*state.retooled, event))


def _rebase_refused(state: SessionState, event: ev.RebaseRefused) -> SessionState:
    spine = spine_of(state, event.agent)
    spine = evolve(
        spine,
        refused_at=event.tokens_before,
        refusals=spine.refusals + 1,
        is_rebase_asked=False,
        view_tokens=event.checkpoint_tokens or spine.view_tokens,
    )
    return evolve(_with_spine(state, spine), refused_rebases=(*state.refused_rebases, event))


def _rebases_suspended(state: SessionState, event: ev.RebasesSuspended) -> SessionState:
    return _with_spine(state, evolve(spine_of(state, event.agent), is_suspended=True))


def _window_filled(state: SessionState, event: ev.WindowFilled) -> SessionState:
    spine = spine_of(state, event.agent)
    return _with_spine(state, evolve(spine, warned_share=max(spine.warned_share, event.level)))


def _without(state: SessionState, agent: AgentId) -> Mapping[AgentId, int]:
    """The requests under way but the agent's."""
    if agent not in state.in_flight:
        return state.in_flight
    others = dict(state.in_flight)
    del others[agent]
    return others


def _request_retried(state: SessionState, _event: ev.RequestRetried) -> SessionState:
    return state


def _request_failed(state: SessionState, event: ev.RequestFailed) -> SessionState:
    spine = evolve(spine_of(state, event.agent), pending_request=None)
    state = evolve(_with_spine(state, spine), in_flight=_without(state, event.agent))
    return evolve(state, fault=event) if event.agent == PLANNER else state


def _result_offloaded(state: SessionState, event: ev.ResultOffloaded) -> SessionState:
    spine, log = spine_of(state, event.agent), work_of(state, event.agent)
    pages = {name: page for name, page in log.pages.items() if page.call_id != event.call_id}
    return evolve(
        state,
        spines={**state.spines, event.agent: replace_result(spine, event.call_id, text=event.text)},
        work={**state.work, event.agent: evolve(log, pages=pages)},
    )


def _result_shortened(state: SessionState, _event: ev.ResultShortened) -> SessionState:
    return state


def _prefix_broken(state: SessionState, event: ev.PrefixBroken) -> SessionState:
    return evolve(state, breaks=(*state.breaks, event))


def _cache_drifted(state: SessionState, _event: ev.CacheDrifted) -> SessionState:
    return state


HANDLERS: Final[Mapping[type[Any], Callable[[SessionState, Any], SessionState]]] = {
    ev.ManifestRecorded: _manifest_recorded,
    ev.SpineExtended: _spine_extended,
    ev.SpineRebased: _spine_rebased,
    ev.ModelReplaced: _model_replaced,
    ev.ToolsChanged: _tools_changed,
    ev.RebaseRefused: _rebase_refused,
    ev.RebasesSuspended: _rebases_suspended,
    ev.WindowFilled: _window_filled,
    ev.RequestRetried: _request_retried,
    ev.RequestFailed: _request_failed,
    ev.ResultOffloaded: _result_offloaded,
    ev.ResultShortened: _result_shortened,
    ev.PrefixBroken: _prefix_broken,
    ev.CacheDrifted: _cache_drifted,
}
"""By event type; those of requests, replies and calls are in `fold_steps.py`."""
