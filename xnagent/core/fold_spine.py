"""The part of `fold` that is about spines, requests and tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from xnagent.core import spine_events as ev
from xnagent.core.archive import archived, carried
from xnagent.core.events import FinishRequested
from xnagent.core.fallback import CHOSEN, OF_THE_CONTENT
from xnagent.core.ids import PLANNER, AgentId, role_of
from xnagent.core.items import ToolResult, calls_of, text_of
from xnagent.core.spine import (
    Spine,
    add_reply,
    add_result,
    extend,
    extend_with_state,
    hand_over,
    replace_items,
    start_request,
)
from xnagent.core.state import RoleTotals, SessionState, WorkLog, can_progress, spine_of, work_of
from xnagent.core.text import first_line
from xnagent.core.tokens import add_usage

KEPT_CALLS: Final = 80


def _with_spine(state: SessionState, spine: Spine) -> SessionState:
    spines = dict(state.spines)
    spines[spine.agent] = spine
    return replace(state, spines=spines)


def _with_work(state: SessionState, agent: AgentId, *, log: WorkLog) -> SessionState:
    work = dict(state.work)
    work[agent] = log
    return replace(state, work=work)


def _manifest_recorded(state: SessionState, event: ev.ManifestRecorded) -> SessionState:
    return replace(
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
        state = replace(state, deltas=state.deltas + is_delta)
    else:
        spine = extend(spine, event.items)
    state = _with_spine(state, spine)
    if event.kind == "nudge":
        return _nudged(state, event.agent)
    if event.kind == "message" and event.agent != PLANNER:
        return _with_work(state, event.agent, log=replace(work_of(state, event.agent), inbox=()))
    return state


def _nudged(state: SessionState, agent: AgentId) -> SessionState:
    if agent == PLANNER:
        return replace(state, planner="nudged")
    return _with_work(state, agent, log=replace(work_of(state, agent), nudged=True))


def _spine_rebased(state: SessionState, event: ev.SpineRebased) -> SessionState:
    board = archived(state.board) if event.agent == PLANNER else None
    spine = replace_items(spine_of(state, event.agent), event.items, board=board, cursor=event.cursor)
    return replace(_with_spine(state, spine), rebases=(*state.rebases, event))


def _model_replaced(state: SessionState, event: ev.ModelReplaced) -> SessionState:
    state = _with_spine(state, hand_over(spine_of(state, event.agent)))
    state = replace(state, replaced=(*state.replaced, event))
    if event.cause == CHOSEN:
        return state
    who = {event.agent} if event.cause in OF_THE_CONTENT else {event.agent, role_of(event.agent)}
    more = {name: tuple(dict.fromkeys((*state.given_up.get(name, ()), event.replaced))) for name in sorted(who)}
    state = replace(state, given_up={**state.given_up, **more})
    return replace(state, fault=None) if event.agent == PLANNER else state


def _rebase_refused(state: SessionState, event: ev.RebaseRefused) -> SessionState:
    spine = spine_of(state, event.agent)
    spine = replace(spine, refused_at=event.tokens_before, refusals=spine.refusals + 1)
    return replace(_with_spine(state, spine), refused_rebases=(*state.refused_rebases, event))


def _request_started(state: SessionState, event: ev.RequestStarted) -> SessionState:
    spine = start_request(spine_of(state, event.agent), event)
    return replace(_with_spine(state, spine), request_count=max(state.request_count, event.request))


def _request_retried(state: SessionState, _event: ev.RequestRetried) -> SessionState:
    return state


def _request_failed(state: SessionState, event: ev.RequestFailed) -> SessionState:
    spine = replace(spine_of(state, event.agent), pending_request=None)
    state = _with_spine(state, spine)
    return replace(state, fault=event) if event.agent == PLANNER else state


def _reply_received(state: SessionState, event: ev.ReplyReceived) -> SessionState:
    spine = add_reply(spine_of(state, event.agent), event.items, usage=event.usage)
    log = work_of(state, event.agent)
    state = _with_work(_with_spine(state, spine), event.agent, log=replace(log, steps=log.steps + 1))
    state = _counted(state, event)
    return _after_planner_reply(state, event, spine=spine) if event.agent == PLANNER else state


def _after_planner_reply(state: SessionState, event: ev.ReplyReceived, *, spine: Spine) -> SessionState:
    state = replace(state, fault=None)
    if calls_of(event.items) or state.last_wake > spine.cursor:
        return replace(state, planner="ready")
    if can_progress(state):
        return replace(state, planner="waiting")
    if state.planner == "nudged":
        finish = FinishRequested(outcome="completed", summary=text_of(event.items))
        return replace(state, finish=finish)
    return replace(state, planner="unfinished")


def _counted(state: SessionState, event: ev.ReplyReceived) -> SessionState:
    sent = spine_of(state, event.agent).sent_manifest
    model = state.manifests[sent].model if sent in state.manifests else sent
    return replace(
        state,
        totals=_added(state.totals, role_of(event.agent), event=event),
        model_totals=_added(state.model_totals, model, event=event),
    )


def _added(totals: Mapping[str, RoleTotals], name: str, *, event: ev.ReplyReceived) -> Mapping[str, RoleTotals]:
    old = totals.get(name, RoleTotals())
    unknown = old.cost_usd is None or event.cost_usd is None
    new = RoleTotals(
        requests=old.requests + 1,
        usage=add_usage(old.usage, event.usage),
        cost_usd=None if unknown else (old.cost_usd or 0.0) + (event.cost_usd or 0.0),
    )
    return {**totals, name: new}


def _tool_started(state: SessionState, event: ev.ToolStarted) -> SessionState:
    return replace(state, started_tools={**state.started_tools, (event.agent, event.call_id): event})


def _tool_finished(state: SessionState, event: ev.ToolFinished) -> SessionState:
    spine = spine_of(state, event.agent)
    result = ToolResult(call_id=event.call_id, text=event.text, is_error=event.code != "ok")
    arguments = next((call.arguments for call in spine.open_calls if call.call_id == event.call_id), "")
    started = {key: value for key, value in state.started_tools.items() if key != (event.agent, event.call_id)}
    log = _logged(work_of(state, event.agent), event, arguments=arguments)
    state = replace(_with_spine(state, add_result(spine, result)), started_tools=started)
    return _with_work(state, event.agent, log=log)


def _logged(log: WorkLog, event: ev.ToolFinished, *, arguments: str) -> WorkLog:
    line = f"{event.tool}: {event.label or first_line(event.text)}" + ("" if event.code == "ok" else f" [{event.code}]")
    same = f"{event.tool} {arguments}"
    repeats = log.failures[1] + 1 if log.failures[0] == same else 1
    return replace(
        log,
        files_read=_stamped(log.files_read, event.paths_read, step=log.steps),
        files_changed=_stamped(log.files_changed, event.paths_changed, step=log.steps),
        seen={**log.seen, **dict(event.seen)} if event.seen else log.seen,
        calls=(*log.calls[-KEPT_CALLS + 1 :], line),
        failures=("", 0) if event.code == "ok" else (same, repeats),
    )


def _stamped(known: Mapping[str, int], paths: tuple[str, ...], *, step: int) -> Mapping[str, int]:
    return {**known, **dict.fromkeys(paths, step)} if paths else known


def _prefix_broken(state: SessionState, event: ev.PrefixBroken) -> SessionState:
    return replace(state, breaks=(*state.breaks, event))


def _cache_drifted(state: SessionState, _event: ev.CacheDrifted) -> SessionState:
    return state


HANDLERS: Final[Mapping[type[Any], Callable[[SessionState, Any], SessionState]]] = {
    ev.ManifestRecorded: _manifest_recorded,
    ev.SpineExtended: _spine_extended,
    ev.SpineRebased: _spine_rebased,
    ev.ModelReplaced: _model_replaced,
    ev.RebaseRefused: _rebase_refused,
    ev.RequestStarted: _request_started,
    ev.RequestRetried: _request_retried,
    ev.RequestFailed: _request_failed,
    ev.ReplyReceived: _reply_received,
    ev.ToolStarted: _tool_started,
    ev.ToolFinished: _tool_finished,
    ev.PrefixBroken: _prefix_broken,
    ev.CacheDrifted: _cache_drifted,
}
"""By event type."""
