"""Reads a session back from its log: the exact bytes of a request, and whether all of it comes out the same again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from xnagent.agents.prompting import brief_message, project_message
from xnagent.app.crew import worker_policy
from xnagent.app.host import Host
from xnagent.app.lock import changed_since
from xnagent.app.resummarized import is_same_summary
from xnagent.config import Settings
from xnagent.config.entry import Role, model_names
from xnagent.core.checkpoint import checkpoint
from xnagent.core.clearing import old_results
from xnagent.core.events import (
    Event,
    FactCorrected,
    FactRecorded,
    FactRetracted,
    FinishRequested,
    LimitReached,
    ProgressNoted,
    RunCancelRequested,
    RunMessageSent,
    RunStarted,
    RunSubmitted,
    SessionResumed,
    SessionStarted,
    Stored,
    TaskAdded,
    TaskDropped,
    TaskRevised,
)
from xnagent.core.fallback import CHOSEN, Candidate, replacement
from xnagent.core.fold import fold
from xnagent.core.ids import PLANNER, AgentId, CallId, RunId, Ticket, owner_of, role_of
from xnagent.core.items import ToolResult
from xnagent.core.masking import is_same_but_masked
from xnagent.core.messages import nudge_message, objective_message, state_message
from xnagent.core.pruning import long_results, plan_pruning
from xnagent.core.rebase import RebasePolicy, Room, kept_tail, plan_rebase, room_for
from xnagent.core.reserving import Prospect
from xnagent.core.spine import Spine
from xnagent.core.spine_events import (
    ManifestRecorded,
    ModelReplaced,
    RequestFailed,
    RequestStarted,
    SpineExtended,
    SpineRebased,
    ToolFinished,
)
from xnagent.core.state import SessionState, ratio_of, spine_of, work_of
from xnagent.core.summary_events import SummaryMade
from xnagent.errors import UsageError
from xnagent.models.wires import encode
from xnagent.ports import Call, Outcome
from xnagent.store.artifacts import digest, ticket_of
from xnagent.tools.facts import fact_tools, reporting_tools
from xnagent.tools.planning import planning_tools
from xnagent.tools.state_tool import StateTool
from xnagent.tools.toolbox import toolbox

STATE_TOOL_EVENTS = (
    TaskAdded,
    TaskRevised,
    TaskDropped,
    RunStarted,
    RunMessageSent,
    RunCancelRequested,
    FactRecorded,
    FactCorrected,
    FactRetracted,
    FinishRequested,
    LimitReached,
    ProgressNoted,
    RunSubmitted,
)
"""What state tools put into the log, just before their result."""


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


@dataclass(slots=True, kw_only=True)
class _Replay:
    """Goes through a log and makes again what is a pure function of it."""

    found: Replayed = field(default_factory=Replayed)
    state: SessionState = field(default_factory=SessionState)
    settings: Settings = field(default_factory=Settings)
    pending: list[tuple[SessionState, Event]] = field(default_factory=list)
    """Events that may be a state tool's whose result has not come yet, each with the state before it."""

    def take(self, stored: Stored) -> None:
        """Fold one event and compare what can be made again."""
        event, before = stored.event, self.state
        if isinstance(event, SessionStarted | SessionResumed) and event.settings:
            self.settings = Settings.model_validate_json(event.settings)
        self.state = fold(before, event)
        match event:
            case ManifestRecorded():
                self.found.changed += [f"event {stored.seq}: {what}" for what in changed_since(event)]
            case RequestStarted():
                self._request(event, stored.seq)
            case SpineExtended():
                self._message(event, before, seq=stored.seq)
            case SpineRebased():
                self._rebase(event, before, seq=stored.seq)
            case SummaryMade() if not is_same_summary(event, before):
                self._differs(stored.seq, f"summary {event.round} of {event.agent}: another text or other values")
            case ModelReplaced():
                self._replacement(event, before, seq=stored.seq)
            case ToolFinished():
                self._call(event, before, seq=stored.seq)
            case _:
                pass
        self._keep(event, before)

    def _keep(self, event: Event, before: SessionState) -> None:
        if isinstance(event, STATE_TOOL_EVENTS):
            self.pending.append((before, event))
        else:
            self.pending.clear()

    def _request(self, event: RequestStarted, seq: int) -> None:
        self.found.requests += 1
        body = _body(self.state, event)
        if sha256(body).hexdigest() != event.sha256:
            self._differs(seq, f"request {event.request}: other bytes ({len(body):,} for {event.size_bytes:,})")

    def _message(self, event: SpineExtended, before: SessionState, *, seq: int) -> None:
        made = _remade(event, before)
        if made is None:
            return
        self.found.messages += 1
        if made.items != event.items:
            self._differs(seq, f"{event.kind} of {event.agent}: other text")

    def _rebase(self, event: SpineRebased, before: SessionState, *, seq: int) -> None:
        self.found.rebases += 1
        spine = spine_of(before, event.agent)
        room = _room(before, event)
        if event.cause == "prune":
            if plan_pruning(spine, room=room, tickets=_pruned(spine)).items != event.items:
                self._differs(seq, f"pruning of {event.agent}: another spine")
            return
        cause = work_of(before, event.agent).summary.cause if event.cause == "summary" else event.cause
        room = room_for(spine, room, cause=cause)
        policy = self.settings.spine.to_policy() if event.agent == PLANNER else worker_policy(self.settings)
        if event.edition == 1:
            policy = replace(policy, tail_tokens=None, least_tail_tokens=0, newest_share=None)
        tickets = tickets_for(spine, room, policy=policy) if event.edition > 1 else {}
        plan = plan_rebase(spine, checkpoint(before, event.agent), room=room, policy=policy, tickets=tickets)
        if plan.items != event.items:
            self._differs(seq, f"rebase of {event.agent}: another spine")

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
            self._differs(seq, f"replacement of {event.replaced} for {event.agent}: another model or loss")

    def _call(self, event: ToolFinished, before: SessionState, *, seq: int) -> None:
        calls = [call for call in spine_of(before, event.agent).open_calls if call.call_id == event.call_id]
        names = {tool.spec.name for tool in _state_tools(self.settings)}
        if not calls or event.code != "ok" or event.tool not in names:
            return
        self.found.calls += 1
        if not any(self._is_same(event, calls[0].arguments, own=own) for own in self._candidates(before)):
            self._differs(seq, f"{event.tool} of {event.agent}: another outcome")

    def _candidates(self, before: SessionState) -> Iterator[tuple[SessionState, list[Event]]]:
        """What the call may have found and done: its own events are the newest of those pending, older ones are not."""
        for start in range(len(self.pending) + 1):
            found = self.pending[start][0] if start < len(self.pending) else before
            yield found, [event for _, event in self.pending[start:]]

    def _is_same(self, event: ToolFinished, arguments: str, *, own: tuple[SessionState, list[Event]]) -> bool:
        tools = _state_tools(self.settings, own[1])
        made = _made_again(event, arguments, state=own[0], tools=tools)
        if made is None or not (event.text.endswith(made.text) or is_same_but_masked(made.text, event.text)):
            return False
        pairs = zip(made.events, own[1], strict=False)
        return len(made.events) == len(own[1]) and all(a == b or is_same_but_masked(str(a), str(b)) for a, b in pairs)

    def _differs(self, seq: int, what: str) -> None:
        self.found.problems.append(f"event {seq}: {what}")


def _made_again(
    event: ToolFinished, arguments: str, *, state: SessionState, tools: Iterable[StateTool]
) -> Outcome | None:
    tool = {tool.spec.name: tool for tool in tools}.get(event.tool)
    if tool is None:
        return None
    parsed = toolbox([tool]).parse(event.tool, arguments)
    if isinstance(parsed, Outcome):
        return parsed
    nothing = _Nothing()
    call = Call(
        agent=event.agent,
        call_id=event.call_id,
        arguments=parsed.arguments,
        state=state,
        artifacts=nothing,
        history=nothing,
    )
    return tool.act(call)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Foreseen:
    """What was foreseen when the run began: of histories and prices of that day, so it is not made again."""

    events: tuple[Event, ...] = ()

    def of(self, _state: SessionState, started: RunStarted) -> Prospect | None:
        known = [event.forecast for event in self.events if isinstance(event, RunStarted) and event.run == started.run]
        return Prospect(forecast=known[0]) if known and known[0] is not None else None


def _state_tools(settings: Settings, own: Iterable[Event] = ()) -> tuple[StateTool, ...]:
    planning = planning_tools(limits=settings.limits.to_limits(), prospects=_Foreseen(events=tuple(own)))
    return (*planning, *fact_tools(), *reporting_tools())


class _Nothing:
    """State tools read neither artifacts nor history; what they store is in the session's file already."""

    def put(self, data: bytes, *, is_verbatim: bool = False) -> Ticket:
        return ticket_of(digest(data))

    async def get(self, ticket: Ticket) -> bytes | None:
        raise NotImplementedError

    async def history(self, agent: AgentId) -> tuple[Stored, ...]:
        raise NotImplementedError


def _remade(event: SpineExtended, before: SessionState) -> SpineExtended | None:
    """The message made anew from the state before it; None for kinds that are not made from state alone."""
    match event.kind:
        case "objective":
            return objective_message(before)
        case "baseline" | "delta":
            return state_message(before)
        case "brief":
            return brief_message(before, RunId(event.agent))
        case "project":
            return project_message(before, agent=event.agent)
        case "nudge" if event.agent == PLANNER:
            return nudge_message(before)
        case _:
            return None


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


def replay(events: Iterable[Stored]) -> Replayed:
    """Go through a log and make again every request, message, rebase and state call; what differs is a problem."""
    walk = _Replay()
    for stored in events:
        walk.take(stored)
    return walk.found


def replay_session(host: Host, session: str) -> Replayed:
    """Replay a stored session."""
    return replay(host.place(session).events())
