"""Reads a session back from its log: the exact bytes of a request, and whether all of it comes out the same again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from xnagent.agents.prompting import (
    FULL,
    LAST_STEP,
    SUBMIT_NUDGE,
    brief_message,
    harness_message,
    inbox_message,
    missed_message,
    project_message,
)
from xnagent.agents.worker import unanswered_text
from xnagent.app.crew import worker_policy
from xnagent.app.host import Host
from xnagent.app.lock import ROLES, changed_since
from xnagent.app.recalling import STATE_TOOL_EVENTS, is_recalled, is_same_call
from xnagent.app.resummarized import is_same_summary
from xnagent.config import Settings
from xnagent.config.entry import Role, model_names
from xnagent.core.checkpoint import checkpoint
from xnagent.core.clearing import old_results
from xnagent.core.decide import outcome_of
from xnagent.core.events import Event, SessionResumed, SessionSettled, SessionStarted, Stored
from xnagent.core.fallback import CHOSEN, Candidate, replacement
from xnagent.core.fold import fold
from xnagent.core.ids import PLANNER, AgentId, CallId, RunId, Ticket, owner_of, role_of
from xnagent.core.items import ToolResult
from xnagent.core.messages import nudge_message, objective_message, state_message
from xnagent.core.pruning import long_results, plan_pruning
from xnagent.core.rebase import RebasePolicy, Room, kept_tail, plan_rebase, room_for
from xnagent.core.spine import Spine
from xnagent.core.spine_events import (
    ManifestRecorded,
    ModelReplaced,
    RequestFailed,
    RequestStarted,
    ResultShortened,
    SpineExtended,
    SpineRebased,
    ToolFinished,
)
from xnagent.core.state import SessionState, ratio_of, spine_of, work_of
from xnagent.core.summary_events import SummaryMade
from xnagent.errors import UsageError
from xnagent.models.wires import encode
from xnagent.store.artifacts import digest, ticket_of

COMPUTED: Final = frozenset({"completed", "failed", "partial", "blocked", "limit", "deadline", "provider_error"})
"""Ends that come out of the state; others are told by what a process met."""


def request_bytes(events: Iterable[Stored], request: int) -> bytes:
    """The body of request `request` (1, 2, 3…), rebuilt from the log. Raises UsageError if there is none."""
    return next(iter(requests_made(events, {request}))).body


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A request, made again from the log."""

    seq: int
    """Of its event."""
    started: RequestStarted
    state: SessionState
    """As it was then."""

    @property
    def manifest(self) -> ManifestRecorded:
        """What stands before its history."""
        return self.state.manifests[self.started.manifest]

    @property
    def spine(self) -> Spine:
        """The history that it holds; that of a request for a summary, if it is aligned, is the Worker's."""
        spine, started = spine_of(self.state, self.started.agent), self.started
        return replace(spine, agent=self.agent, items=spine.items[: started.items], long_items=started.long_items)

    @property
    def agent(self) -> AgentId:
        """Whose history that is."""
        is_own = role_of(self.started.agent) == self.manifest.role.partition(":")[0]
        return self.started.agent if is_own else owner_of(self.started.agent)

    @property
    def body(self) -> bytes:
        """Its bytes."""
        return _body(self.state, self.started)


def requests_made(events: Iterable[Stored], requests: Collection[int]) -> list[Made]:
    """The requests in the order of the log, each as it was first sent. Raises UsageError for one that is not there."""
    state, count, found = SessionState(), 0, dict[int, Made]()
    for stored in events:
        state = fold(state, stored.event)
        if isinstance(stored.event, RequestStarted):
            count = max(count, stored.event.request)
            if stored.event.request in requests and stored.event.request not in found:
                found[stored.event.request] = Made(seq=stored.seq, started=stored.event, state=state)
    for missing in sorted(set(requests) - set(found)):
        raise UsageError(f"there is no request {missing}; the session has {count}")
    return list(found.values())


def _body(state: SessionState, started: RequestStarted) -> bytes:
    manifest = state.manifests[started.manifest]
    items = spine_of(state, started.agent).items[: started.items]
    return encode(manifest, items, long_items=started.long_items, agent=owner_of(started.agent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that did not come out as it was recorded."""

    seq: int
    """Of the event that shows it."""
    request: int | None
    """The first request that it is in; None: no request came after it."""
    agent: str
    segment: str
    """The part of the request: `system`, `tools`, `renderer`, the kind of a message, a tool's result, `body`."""
    source: str
    """The file or definition that is another here; empty: what is stored does not agree with itself."""
    what: str


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What a replay found."""

    requests: int = 0
    messages: int = 0
    """State messages, briefs and nudges that were made again from state."""
    rebases: int = 0
    replacements: int = 0
    """Models that took another's place after a fault."""
    calls: int = 0
    """Calls of state tools that were made again."""
    changed: list[str] = field(default_factory=list)
    """What this xnagent has otherwise than the one that recorded: renderer, prompts, tools. The record is kept."""
    problems: list[str] = field(default_factory=list)
    """What did not come out the same, with its place in the log."""
    first: Difference | None = None
    """The first of all of these, in the order of the log."""


@dataclass(slots=True, kw_only=True)
class _Replay:
    """Goes through a log and makes again what is a pure function of it."""

    found: Replayed = field(default_factory=Replayed)
    state: SessionState = field(default_factory=SessionState)
    settings: Settings = field(default_factory=Settings)
    pending: list[tuple[SessionState, Event]] = field(default_factory=list)
    """Events that may be a state tool's whose result has not come yet, each with the state before it."""
    cut: set[tuple[AgentId, CallId]] = field(default_factory=set)
    """Calls whose result was too long to stand in a history whole."""
    rebased_from: SessionState | None = None
    """The state before the last event, if that was a rebase."""
    waiting: str | None = None
    """Of the first difference, while no request with it was found: its agent, or the manifest."""

    def take(self, stored: Stored) -> None:
        """Fold one event and compare what can be made again."""
        event, before = stored.event, self.state
        if isinstance(event, SessionStarted | SessionResumed) and event.settings:
            self.settings = Settings.model_validate_json(event.settings)
        self.state = fold(before, event)
        self._compare(event, before, seq=stored.seq)
        self.rebased_from = before if isinstance(event, SpineRebased) else None
        self._keep(event, before)

    def _compare(self, event: Event, before: SessionState, *, seq: int) -> None:
        match event:
            case ManifestRecorded():
                self._head(event, seq=seq)
            case RequestStarted():
                self._request(event, seq)
            case SpineExtended():
                self._message(event, before, seq=seq)
            case SpineRebased():
                self._rebase(event, before, seq=seq)
            case SummaryMade() if not is_same_summary(event, before):
                what = f"summary {event.round} of {event.agent}: another text or other values"
                self._differs(seq, what, agent=event.agent, segment="summary")
            case ModelReplaced():
                self._replacement(event, before, seq=seq)
            case ResultShortened():
                self.cut.add((event.agent, event.call_id))
            case ToolFinished():
                self._call(event, before, seq=seq)
            case SessionSettled() if event.outcome in COMPUTED and event.outcome not in _outcomes(before):
                what = f"end of the session: {event.outcome} was recorded, its state says {outcome_of(before)}"
                self._differs(seq, what, agent=PLANNER, segment="end")
            case _:
                pass

    def _keep(self, event: Event, before: SessionState) -> None:
        if isinstance(event, STATE_TOOL_EVENTS):
            self.pending.append((before, event))
        else:
            self.pending.clear()

    def _head(self, event: ManifestRecorded, *, seq: int) -> None:
        for one in changed_since(event):
            self.found.changed.append(f"event {seq}: {one.what}")
            self._first(seq, one.what, agent=event.role, segment=one.segment, source=one.source)
        for segment, text, recorded in _digests(event):
            if recorded and sha256(text.encode()).hexdigest() != recorded:
                what = f"{segment} of {event.role}: other text than its hash says"
                self._differs(seq, what, agent=event.role, segment=segment)
        if self.found.first is not None and self.found.first.seq == seq:
            self.waiting = event.manifest

    def _request(self, event: RequestStarted, seq: int) -> None:
        self.found.requests += 1
        body = _body(self.state, event)
        if sha256(body).hexdigest() != event.sha256:
            what = f"request {event.request}: other bytes ({len(body):,} for {event.size_bytes:,})"
            self._differs(seq, what, agent=event.agent, segment="body")
        if self.found.first is not None and self.waiting in {event.agent, event.manifest}:
            self.found.first = replace(self.found.first, request=event.request, agent=event.agent)
            self.waiting = None

    def _message(self, event: SpineExtended, before: SessionState, *, seq: int) -> None:
        if event.kind == "message" and event.agent == PLANNER:
            made = None if self.rebased_from is None else missed_message(self.rebased_from)
        else:
            made = _remade(event, before, settings=self.settings)
        if made is None:
            return
        self.found.messages += 1
        if made.items != event.items:
            self._differs(seq, f"{event.kind} of {event.agent}: other text", agent=event.agent, segment=event.kind)

    def _rebase(self, event: SpineRebased, before: SessionState, *, seq: int) -> None:
        self.found.rebases += 1
        spine = spine_of(before, event.agent)
        room = _room(before, event)
        if event.cause == "prune":
            if plan_pruning(spine, room=room, tickets=_pruned(spine)).items != event.items:
                self._differs(seq, f"pruning of {event.agent}: another spine", agent=event.agent, segment="prune")
            return
        cause = work_of(before, event.agent).summary.cause if event.cause == "summary" else event.cause
        room = room_for(spine, room, cause=cause)
        policy = self.settings.spine.to_policy() if event.agent == PLANNER else worker_policy(self.settings)
        if event.edition == 1:
            policy = replace(policy, tail_tokens=None, least_tail_tokens=0, newest_share=None)
        tickets = tickets_for(spine, room, policy=policy) if event.edition > 1 else {}
        plan = plan_rebase(spine, checkpoint(before, event.agent), room=room, policy=policy, tickets=tickets)
        if plan.items != event.items:
            self._differs(seq, f"rebase of {event.agent}: another spine", agent=event.agent, segment="checkpoint")

    def _replacement(self, event: ModelReplaced, before: SessionState, *, seq: int) -> None:
        """Prices are of the table of that day; who goes on, and with what of the lineage, is not."""
        if event.cause == CHOSEN:
            return
        self.found.replacements += 1
        run = before.board.runs.get(RunId(event.agent))
        role: Role = "planner" if event.agent == PLANNER else "worker"
        chain = model_names(self.settings, role, name=None if run is None else run.model)
        failed = RequestFailed(agent=event.agent, request=event.request or 0, fault=event.cause, detail=event.detail)
        made = replacement(before, failed, chain=[Candidate(model=name) for name in chain])
        if made is None or replace(made, price_usd=event.price_usd) != event:
            what = f"replacement of {event.replaced} for {event.agent}: another model or loss"
            self._differs(seq, what, agent=event.agent, segment="model")

    def _call(self, event: ToolFinished, before: SessionState, *, seq: int) -> None:
        calls = [call for call in spine_of(before, event.agent).open_calls if call.call_id == event.call_id]
        is_cut = (event.agent, event.call_id) in self.cut
        if not calls or is_cut or not is_recalled(event, self.settings):
            return
        self.found.calls += 1
        found = (
            is_same_call(event, calls[0].arguments, state=state, own=own, settings=self.settings)
            for state, own in self._candidates(before)
        )
        if not any(found):
            what = f"{event.tool} of {event.agent}: another outcome"
            self._differs(seq, what, agent=event.agent, segment=f"result of {event.tool}")

    def _candidates(self, before: SessionState) -> Iterator[tuple[SessionState, list[Event]]]:
        """What the call may have found and done: its own events are the newest of those pending, older ones are not."""
        for start in range(len(self.pending) + 1):
            found = self.pending[start][0] if start < len(self.pending) else before
            yield found, [event for _, event in self.pending[start:]]

    def _differs(self, seq: int, what: str, *, agent: str, segment: str) -> None:
        self.found.problems.append(f"event {seq}: {what}")
        self._first(seq, what, agent=agent, segment=segment, source="")

    def _first(self, seq: int, what: str, *, agent: str, segment: str, source: str) -> None:
        if self.found.first is None:
            self.waiting = agent
            self.found.first = Difference(seq=seq, request=None, agent=agent, segment=segment, source=source, what=what)


def _digests(event: ManifestRecorded) -> Iterator[tuple[str, str, str]]:
    """Of the roles' own; that of a request for a summary is made of one of them."""
    if event.role.partition(":")[0] not in ROLES:
        return
    yield "system", event.system, event.system_sha256
    yield "tools", event.tools, event.tools_sha256


def _remade(event: SpineExtended, before: SessionState, *, settings: Settings) -> SpineExtended | None:
    """The message made anew from the state before it; None for what is not made from state alone."""
    match event.kind:
        case "objective":
            return objective_message(before)
        case "baseline" | "delta":
            return state_message(before)
        case "brief":
            return brief_message(before, RunId(event.agent))
        case "project":
            return project_message(before, agent=event.agent)
        case "message":
            return inbox_message(before, run=RunId(event.agent))
        case "nudge" if event.agent == PLANNER:
            return nudge_message(before)
        case "nudge" if owner_of(event.agent) == event.agent:
            return harness_message(RunId(event.agent), _nudge(before, event.agent, settings=settings))
        case _:
            return None


def _nudge(state: SessionState, agent: AgentId, *, settings: Settings) -> str:
    """What a Worker is to be told: that it answered without a call, or that this is its last step."""
    work = work_of(state, agent)
    if not work.nudged and unanswered_text(spine_of(state, agent)) is not None:
        return SUBMIT_NUDGE
    return LAST_STEP if work.steps == settings.limits.to_limits().run_steps - 1 else FULL


def _room(state: SessionState, event: SpineRebased) -> Room:
    run = state.board.runs.get(RunId(event.agent))
    named = f"worker:{run.model}" if run is not None and run.model else role_of(event.agent)
    manifest: ManifestRecorded = state.manifests[event.manifest or state.role_manifest[named]]
    head = manifest.head_tokens
    return Room(
        window_tokens=manifest.window_tokens,
        max_output_tokens=manifest.max_output_tokens,
        head_tokens=head,
        ratio=ratio_of(state, manifest.model) if event.edition > 1 else 1.0,
    )


def tickets_for(spine: Spine, room: Room, *, policy: RebasePolicy) -> Mapping[CallId, Ticket]:
    """The tickets that a rebase gives to a Worker's old results: each is the hash of the result."""
    if spine.agent == PLANNER:
        return {}
    old = set(old_results(kept_tail(spine, room, policy=policy)))
    texts = {item.call_id: item.text for item in spine.items if isinstance(item, ToolResult) and item.call_id in old}
    return {call_id: ticket_of(digest(text.encode())) for call_id, text in texts.items()}


def _pruned(spine: Spine) -> Mapping[CallId, Ticket]:
    cut = set(long_results(spine))
    texts = {item.call_id: item.text for item in spine.items if isinstance(item, ToolResult) and item.call_id in cut}
    return {call_id: ticket_of(digest(text.encode())) for call_id, text in texts.items()}


def _outcomes(state: SessionState) -> tuple[str, str]:
    """How the session may end: a signal may reach the log while an end that was found before it is being written."""
    return outcome_of(state), outcome_of(replace(state, interrupted=None))


def replay(events: Iterable[Stored]) -> Replayed:
    """Go through a log and make again every request, message, rebase and state call; what differs is a problem."""
    walk = _Replay()
    for stored in events:
        walk.take(stored)
    return walk.found


def replay_session(host: Host, session: str) -> Replayed:
    """Replay a stored session."""
    return replay(host.place(session).events())
