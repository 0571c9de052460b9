"""The part of `fold` that is about spines, requests and tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from xnagent.core import spine_events as ev
from xnagent.core.archive import archived, carried
from xnagent.core.events import FinishRequested
from xnagent.core.evolve import evolve
from xnagent.core.fallback import CHOSEN, OF_THE_CONTENT
from xnagent.core.fold_project import with_told
from xnagent.core.fold_trees import told, touched
from xnagent.core.forecast import AgentUse, add_use
from xnagent.core.ids import PLANNER, AgentId, owner_of, role_of
from xnagent.core.items import ToolResult, calls_of, text_of
from xnagent.core.offload import whole_of
from xnagent.core.spine import (
    Spine,
    add_reply,
    add_result,
    extend,
    extend_with_state,
    hand_over,
    replace_items,
    replace_result,
    start_request,
    with_whole,
)
from xnagent.core.state import (
    PageShown,
    RoleTotals,
    SessionState,
    WorkLog,
    active_runs,
    can_progress,
    spine_of,
    work_of,
)
from xnagent.core.text import first_line
from xnagent.core.tokens import Calibration, add_usage, calibrate, estimate_item

KEPT_CALLS: Final = 80
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


def _request_started(state: SessionState, event: ev.RequestStarted) -> SessionState:
    has_runs = event.agent == PLANNER and bool(active_runs(state))
    spine = start_request(spine_of(state, event.agent), event, has_runs=has_runs)
    return evolve(
        state,
        spines={**state.spines, event.agent: spine},
        in_flight={**state.in_flight, event.agent: event.request},
        request_count=max(state.request_count, event.request),
    )


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


def _reply_received(state: SessionState, event: ev.ReplyReceived) -> SessionState:
    spine = add_reply(spine_of(state, event.agent), event.items, usage=event.usage)
    log = work_of(state, event.agent)
    state = evolve(
        state,
        spines={**state.spines, event.agent: spine},
        work={**state.work, event.agent: evolve(log, steps=log.steps + 1)},
        totals=_added(state.totals, role_of(event.agent), event=event),
        uses=_used(state, event),
        overcharge=max(state.overcharge, _overcharge(state, event)),
        calibrations=_calibrated(state, event),
        model_totals=_added(state.model_totals, _model_of(state, event.agent), event=event),
        in_flight=_without(state, event.agent),
    )
    return _after_planner_reply(state, event, spine=spine) if event.agent == PLANNER else state


def _after_planner_reply(state: SessionState, event: ev.ReplyReceived, *, spine: Spine) -> SessionState:
    state = evolve(state, fault=None)
    if calls_of(event.items) or state.last_wake > spine.cursor:
        return evolve(state, planner="ready")
    if can_progress(state):
        return evolve(state, planner="waiting")
    if state.planner == "nudged":
        finish = FinishRequested(outcome="completed", summary=text_of(event.items))
        return evolve(state, finish=finish, checks={})
    return evolve(state, planner="unfinished")


def _overcharge(state: SessionState, event: ev.ReplyReceived) -> float:
    ceiling = spine_of(state, event.agent).sent_ceiling_tokens
    return ((event.usage.input_tokens or 0) + (event.usage.output_tokens or 0)) / ceiling if ceiling else 1.0


def _calibrated(state: SessionState, event: ev.ReplyReceived) -> Mapping[str, Calibration]:
    """With the pair of this request: what stands in the spine before the reply joins it is what was sent."""
    spine = spine_of(state, event.agent)
    manifest = state.manifests.get(spine.sent_manifest)
    if manifest is None or event.usage.is_estimated:
        return state.calibrations
    known = state.calibrations.get(manifest.model) or Calibration()
    new = calibrate(known, reported=event.usage.input_tokens, estimated=manifest.head_tokens + spine.tokens)
    return state.calibrations if new is known else {**state.calibrations, manifest.model: new}


def _used(state: SessionState, event: ev.ReplyReceived) -> Mapping[AgentId, AgentUse]:
    agent = owner_of(event.agent)
    use = state.uses.get(agent) or AgentUse()
    more = add_use(use, event.usage, price_usd=event.cost_usd)
    return {**state.uses, agent: more if agent == event.agent else evolve(more, steps=use.steps)}


def _model_of(state: SessionState, agent: AgentId) -> str:
    """The model that the agent's last request went to."""
    sent = spine_of(state, agent).sent_manifest
    return state.manifests[sent].model if sent in state.manifests else sent


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
    started = {**state.started_tools, (event.agent, event.call_id): event}
    return touched(evolve(state, started_tools=started), event.agent)


def _tool_finished(state: SessionState, event: ev.ToolFinished) -> SessionState:
    spine = spine_of(state, event.agent)
    result = ToolResult(call_id=event.call_id, text=event.text, is_error=event.code != "ok")
    arguments = next((call.arguments for call in spine.open_calls if call.call_id == event.call_id), "")
    started = {key: value for key, value in state.started_tools.items() if key != (event.agent, event.call_id)}
    log = _logged(work_of(state, event.agent), event, arguments=arguments)
    log, wanted = _shown(log, event, tokens=estimate_item(result), generation=spine.generation)
    spine = evolve(spine, wanted_tokens=spine.wanted_tokens + wanted) if wanted else spine
    spine = with_whole(add_result(spine, result), event.call_id, whole=whole_of(event))
    return evolve(
        state,
        spines={**state.spines, event.agent: spine},
        work={**state.work, event.agent: log},
        started_tools=started,
        denials=state.denials + (event.code == ev.DENIED),
    )


def _logged(log: WorkLog, event: ev.ToolFinished, *, arguments: str) -> WorkLog:
    line = f"{event.tool}: {event.label or first_line(event.text)}" + ("" if event.code == "ok" else f" [{event.code}]")
    same = f"{event.tool} {arguments}"
    failed = log.failures[1] + 1 if log.failures[0] == same else 1
    return evolve(
        log,
        files_read=_stamped(log.files_read, event.paths_read, step=log.steps),
        files_changed=_stamped(log.files_changed, event.paths_changed, step=log.steps),
        seen={**log.seen, **dict(event.seen)} if event.seen else log.seen,
        calls=(*log.calls[-KEPT_CALLS + 1 :], line),
        call_count=log.call_count + 1,
        failures=("", 0) if event.code == "ok" else (same, failed),
        repeats=(same, log.repeats[1] + 1 if log.repeats[0] == same else 1),
    )


def _shown(log: WorkLog, event: ev.ToolFinished, *, tokens: int, generation: int) -> tuple[WorkLog, int]:
    """What pages the result shows or only refers to; the tokens of those of which it is new that they are wanted."""
    if not event.pages:
        return log, 0
    pages, wanted = dict(log.pages), 0
    for name, sha in event.pages:
        known = log.pages.get(name)
        if not sha and known is not None and known.generation == generation:
            pages[name] = evolve(known, is_wanted=True, referred_at=log.steps)
            wanted += 0 if known.is_wanted else known.tokens
            continue
        is_back = known is not None and known.generation < generation and known.sha256 == sha
        wanted += tokens if is_back else 0
        is_wanted = is_back or (known is not None and known.generation == generation and known.is_wanted)
        pages[name] = PageShown(
            call_id=event.call_id,
            step=log.steps,
            generation=generation,
            sha256=sha,
            tokens=tokens,
            is_wanted=is_wanted,
        )
    return evolve(log, pages=pages), wanted


def _stamped(known: Mapping[str, int], paths: tuple[str, ...], *, step: int) -> Mapping[str, int]:
    return {**known, **dict.fromkeys(paths, step)} if paths else known


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
    ev.RequestStarted: _request_started,
    ev.RequestRetried: _request_retried,
    ev.RequestFailed: _request_failed,
    ev.ReplyReceived: _reply_received,
    ev.ToolStarted: _tool_started,
    ev.ToolFinished: _tool_finished,
    ev.ResultOffloaded: _result_offloaded,
    ev.ResultShortened: _result_shortened,
    ev.PrefixBroken: _prefix_broken,
    ev.CacheDrifted: _cache_drifted,
}
"""By event type."""
