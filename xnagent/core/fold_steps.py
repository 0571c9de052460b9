"""The part of `fold` that is about requests, replies and calls: nearly all events of a log.

They change a draft of the state in place. `fold` makes a draft for one event, `fold_all` one for as many as follow each
other, so that a long log costs what each event changes and not what there already is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from xnagent.core.events import FinishRequested
from xnagent.core.evolve import evolve, frozen, thawed
from xnagent.core.fold_hooks import keys_of_call
from xnagent.core.fold_trees import with_touch
from xnagent.core.forecast import AgentUse, add_use
from xnagent.core.ids import PLANNER, AgentId, RunId, owner_of, role_of
from xnagent.core.items import ToolResult, calls_of, text_of
from xnagent.core.offload import whole_of
from xnagent.core.spine import SpineDraft
from xnagent.core.spine_events import DENIED, ReplyReceived, RequestStarted, ToolFinished, ToolStarted
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
from xnagent.core.tokens import COUNTED, Calibration, Usage, calibrate, estimate_item

KEPT_CALLS: Final = 80


class LogDraft:
    """A work log that is changed in place."""

    __slots__ = ("_lines", "log")

    def __init__(self, log: WorkLog) -> None:
        self.log: Any = thawed(log)
        """All but the newest lines of its calls."""
        self._lines: list[str] = []

    def whole(self) -> WorkLog:
        """The log. The draft ends with it."""
        if self._lines:
            self.log.calls = (*self.log.calls, *self._lines)[-KEPT_CALLS:]
        return frozen(self.log, WorkLog)

    def add_call(self, event: ToolFinished, *, arguments: str) -> None:
        """A call has come to its end."""
        log, is_ok = self.log, event.code == "ok"
        line = f"{event.tool}: {event.label or first_line(event.text)}" + ("" if is_ok else f" [{event.code}]")
        same = f"{event.tool} {arguments}"
        if event.paths_read:
            log.files_read = {**log.files_read, **dict.fromkeys(event.paths_read, log.steps)}
        if event.paths_changed:
            log.files_changed = {**log.files_changed, **dict.fromkeys(event.paths_changed, log.steps)}
        if event.seen:
            log.seen = {**log.seen, **dict(event.seen)}
        self._lines.append(line)
        log.call_count += 1
        failed = log.failures[1] + 1 if log.failures[0] == same else 1
        log.failures = ("", 0) if is_ok else (same, failed)
        log.repeats = (same, log.repeats[1] + 1 if log.repeats[0] == same else 1)

    def show(self, event: ToolFinished, *, tokens: int, generation: int) -> int:
        """Remember the pages that the result shows or only refers to.

        Returns the tokens of those of which it is new that they are wanted.
        """
        log, step, wanted = self.log, self.log.steps, 0
        pages = dict(log.pages)
        for name, sha in event.pages:
            known = log.pages.get(name)
            if not sha and known is not None and known.generation == generation:
                pages[name] = evolve(known, is_wanted=True, referred_at=step)
                wanted += 0 if known.is_wanted else known.tokens
                continue
            is_back = known is not None and known.generation < generation and known.sha256 == sha
            wanted += tokens if is_back else 0
            is_wanted = is_back or (known is not None and known.generation == generation and known.is_wanted)
            pages[name] = PageShown(
                call_id=event.call_id,
                step=step,
                generation=generation,
                sha256=sha,
                tokens=tokens,
                is_wanted=is_wanted,
            )
        log.pages = pages
        return wanted


class TotalsDraft:
    """Totals that are changed in place."""

    __slots__ = ("_totals", "_usage")

    def __init__(self, totals: RoleTotals) -> None:
        self._totals: Any = thawed(totals)
        self._usage: Any = thawed(totals.usage)

    def whole(self) -> RoleTotals:
        """The totals. The draft ends with it."""
        self._totals.usage = frozen(self._usage, Usage)
        return frozen(self._totals, RoleTotals)

    def add(self, event: ReplyReceived) -> None:
        """One more reply."""
        totals, usage = self._totals, event.usage
        totals.requests += 1
        unknown = totals.cost_usd is None or event.cost_usd is None
        totals.cost_usd = None if unknown else totals.cost_usd + event.cost_usd
        for name in COUNTED:
            more = getattr(usage, name)
            if more is not None:
                setattr(self._usage, name, more + (getattr(self._usage, name) or 0))
        self._usage.is_estimated = self._usage.is_estimated or usage.is_estimated


class StateDraft:
    """A state that is changed in place. After an event that raised it is of no use."""

    __slots__ = ("_logs", "_owned", "_spines", "_totals", "state")

    def __init__(self, state: SessionState) -> None:
        self.state: Any = thawed(state)
        """All but the spines, work logs and totals that have a draft."""
        self._spines: dict[AgentId, SpineDraft] = {}
        self._logs: dict[AgentId, LogDraft] = {}
        self._totals: dict[tuple[str, str], TotalsDraft] = {}
        self._owned: set[str] = set()

    def whole(self) -> SessionState:
        """The state. The draft ends with it."""
        if self._spines:
            spines = {agent: draft.whole() for agent, draft in self._spines.items()}
            self.state.spines = {**self.state.spines, **spines}
        if self._logs:
            logs = {agent: aside.whole() for agent, aside in self._logs.items()}
            self.state.work = {**self.state.work, **logs}
        for (name, key), draft in self._totals.items():
            self.own(name)[key] = draft.whole()
        return frozen(self.state, SessionState)

    def spine(self, agent: AgentId) -> SpineDraft:
        """The agent's spine."""
        found = self._spines.get(agent)
        if found is None:
            found = self._spines[agent] = SpineDraft(spine_of(self.state, agent))
        return found

    def log(self, agent: AgentId) -> LogDraft:
        """The agent's work log."""
        found = self._logs.get(agent)
        if found is None:
            found = self._logs[agent] = LogDraft(work_of(self.state, agent))
        return found

    def total(self, name: str, key: str) -> TotalsDraft:
        """The totals under the key, in the mapping of that name."""
        found = self._totals.get((name, key))
        if found is None:
            found = self._totals[name, key] = TotalsDraft(getattr(self.state, name).get(key) or RoleTotals())
        return found

    def own(self, name: str) -> dict[Any, Any]:
        """The mapping of that name, to be changed in place."""
        if name not in self._owned:
            self._owned.add(name)
            setattr(self.state, name, dict(getattr(self.state, name)))
        return cast("dict[Any, Any]", getattr(self.state, name))


def _request_started(draft: StateDraft, event: RequestStarted) -> None:
    state = draft.state
    has_runs = event.agent == PLANNER and bool(active_runs(state))
    draft.spine(event.agent).start_request(event, has_runs=has_runs)
    draft.own("in_flight")[event.agent] = event.request
    state.request_count = max(state.request_count, event.request)


def _reply_received(draft: StateDraft, event: ReplyReceived) -> None:
    state, aside = draft.state, draft.spine(event.agent)
    spine = aside.spine
    # What stands in the spine before the reply joins it is what was sent.
    sent_tokens, manifest = spine.tokens, state.manifests.get(spine.sent_manifest)
    aside.add_reply(event.items, usage=event.usage)
    draft.log(event.agent).log.steps += 1
    draft.total("totals", role_of(event.agent)).add(event)
    draft.total("model_totals", spine.sent_manifest if manifest is None else manifest.model).add(event)
    _use(draft.own("uses"), event)
    state.overcharge = max(state.overcharge, _overcharge(spine.sent_ceiling_tokens, event))
    if manifest is not None and not event.usage.is_estimated:
        known = state.calibrations.get(manifest.model) or Calibration()
        estimated = manifest.head_tokens + sent_tokens
        new = calibrate(known, reported=event.usage.input_tokens, estimated=estimated)
        if new is not known:
            draft.own("calibrations")[manifest.model] = new
    if event.agent in state.in_flight:
        del draft.own("in_flight")[event.agent]
    if event.agent == PLANNER:
        _after_planner_reply(draft, event, cursor=spine.cursor)


def _overcharge(ceiling: int | None, event: ReplyReceived) -> float:
    return ((event.usage.input_tokens or 0) + (event.usage.output_tokens or 0)) / ceiling if ceiling else 1.0


def _use(uses: dict[AgentId, AgentUse], event: ReplyReceived) -> None:
    agent = owner_of(event.agent)
    use = uses.get(agent) or AgentUse()
    more = add_use(use, event.usage, price_usd=event.cost_usd)
    uses[agent] = more if agent == event.agent else evolve(more, steps=use.steps)


def _after_planner_reply(draft: StateDraft, event: ReplyReceived, *, cursor: int) -> None:
    state = draft.state
    state.fault = None
    if calls_of(event.items) or state.last_wake > cursor:
        state.planner = "ready"
    elif can_progress(state):
        state.planner = "waiting"
    elif state.planner == "nudged":
        state.finish = FinishRequested(outcome="completed", summary=text_of(event.items))
        state.checks = {}
    else:
        state.planner = "unfinished"


def _tool_started(draft: StateDraft, event: ToolStarted) -> None:
    draft.own("started_tools")[event.agent, event.call_id] = event
    if RunId(event.agent) in draft.state.board.runs:
        log = draft.log(event.agent).log
        log.tree = with_touch(log.tree, log.steps)


def _tool_finished(draft: StateDraft, event: ToolFinished) -> None:
    state, aside, log = draft.state, draft.spine(event.agent), draft.log(event.agent)
    spine, whole = aside.spine, whole_of(event)
    result = ToolResult(call_id=event.call_id, text=event.text, is_error=event.code != "ok")
    arguments = next((call.arguments for call in spine.open_calls if call.call_id == event.call_id), "")
    aside.add_result(result)
    log.add_call(event, arguments=arguments)
    if event.pages:
        aside.want(log.show(event, tokens=estimate_item(result), generation=spine.generation))
    if whole is not None:
        aside.take_whole(event.call_id, whole)
    if (event.agent, event.call_id) in state.started_tools:
        del draft.own("started_tools")[event.agent, event.call_id]
    for key in keys_of_call(state.hooks, event.agent, call_id=event.call_id):
        del draft.own("hooks")[key]
    state.denials += event.code == DENIED


STEPS: Final[Mapping[type[Any], Callable[[StateDraft, Any], None]]] = {
    RequestStarted: _request_started,
    ReplyReceived: _reply_received,
    ToolStarted: _tool_started,
    ToolFinished: _tool_finished,
}
"""By event type."""
