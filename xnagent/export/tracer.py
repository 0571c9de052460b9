"""A log as spans: one for each agent and process, each model call and each tool call.

`Tracer` takes the events in order and gives out each span when it ends. So a process that goes on with a session gives
out what is new, in the same trace, and all of the log at once is the whole trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xnagent.core.events import (
    CheckFinished,
    Event,
    RunLaunched,
    RunSettled,
    RunStarted,
    SessionInterrupted,
    SessionResumed,
    SessionSettled,
    SessionStarted,
    Stored,
)
from xnagent.core.ids import PLANNER, AgentId, owner_of
from xnagent.core.items import ToolCall, UserText, calls_of, text_of
from xnagent.core.spine_events import (
    ManifestRecorded,
    ReplyReceived,
    RequestFailed,
    RequestRetried,
    RequestStarted,
    SpineExtended,
    SpineRebased,
    ToolFinished,
    ToolStarted,
)
from xnagent.core.text import Json, canonical
from xnagent.export import conventions as names
from xnagent.export.spans import NANO, Moment, Opened, Span, Value, nanoseconds


@dataclass(slots=True, kw_only=True)
class Tracer:
    """Folds events into spans."""

    has_content: bool = False
    """Whether what was said goes into the spans."""
    opened: Opened = field(default_factory=Opened)
    last: int = 0
    """When the newest event happened."""
    manifests: dict[str, ManifestRecorded] = field(default_factory=dict)
    calls: dict[tuple[AgentId, str], ToolCall] = field(default_factory=dict)
    """Calls without a result, where content is wanted."""
    told: dict[AgentId, list[Json]] = field(default_factory=dict)
    """What was new to an agent since its last request, where content is wanted."""
    begun: list[str] = field(default_factory=list)
    """Runs whose call has no result yet."""
    compacted: set[AgentId] = field(default_factory=set)

    def take(self, stored: Stored) -> list[Span]:
        """One more event: the spans that ended with it."""
        at = nanoseconds(stored.at)
        ended = list(self._take(stored.event, at))
        self.last = max(self.last, at)
        return ended

    def rest(self) -> Iterator[Span]:
        """What has not ended, as far as it came: of a session that runs, or whose process is gone."""
        return self.opened.close(self.last)

    def _take(self, event: Event, at: int) -> Iterable[Span]:
        match event:
            case SessionStarted() | SessionResumed() | SessionInterrupted() | SessionSettled():
                return self._session(event, at)
            case RunStarted() | RunLaunched() | RunSettled() | CheckFinished():
                return self._run(event, at)
            case ToolStarted() | ToolFinished():
                return self._tool(event, at)
            case RequestStarted() | RequestRetried() | RequestFailed() | ReplyReceived():
                return self._request(event, at)
            case SpineExtended() | SpineRebased():
                self._spine(event, at)
            case ManifestRecorded():
                self.manifests[event.manifest] = event
            case _:
                pass
        return ()

    def _session(
        self, event: SessionStarted | SessionResumed | SessionInterrupted | SessionSettled, at: int
    ) -> Iterator[Span]:
        match event:
            case SessionStarted():
                self.opened.session, self.opened.version = event.session, event.version
                self.opened.begin_planner(at)
            case SessionResumed():
                yield from self.opened.close(self.last)
                self.opened.epoch = event.epoch
                self.opened.begin_planner(at)
            case SessionInterrupted():
                self.opened.happened(PLANNER, Moment(name="xnagent.interrupted", at=at, attributes={}))
            case SessionSettled():
                yield from self.opened.close(at, error=event.outcome, but=PLANNER)
                error = None if event.exit_code == 0 else event.error_class or event.outcome
                more: dict[str, Value] = {"xnagent.outcome": event.outcome, "xnagent.exit_code": event.exit_code}
                yield from self.opened.end(PLANNER, at, error=error, more=more)

    def _run(self, event: RunStarted | RunLaunched | RunSettled | CheckFinished, at: int) -> Iterator[Span]:
        match event:
            case RunStarted():
                self.begun.append(event.run)
            case RunLaunched():
                self.opened.agent(AgentId(event.run), at)
            case RunSettled():
                error = None if event.status == "completed" else event.status
                yield from self.opened.end(event.run, at, error=error, more={"xnagent.outcome": event.status})
            case CheckFinished():
                passed = {"xnagent.check.passed": event.evidence.has_passed}
                self.opened.happened(event.run or PLANNER, Moment(name="xnagent.check", at=at, attributes=passed))

    def _spine(self, event: SpineExtended | SpineRebased, at: int) -> None:
        if isinstance(event, SpineRebased):
            self.compacted.add(event.agent)
            receipt: dict[str, Value] = {
                "xnagent.cause": event.cause,
                "xnagent.tokens_before": event.tokens_before,
                "xnagent.tokens_after": event.tokens_after,
            }
            self.opened.happened(event.agent, Moment(name="xnagent.rebase", at=at, attributes=receipt))
        texts = [item.text for item in event.items if isinstance(item, UserText)]
        self._tell(event.agent, [_message("user", {"type": "text", "content": text}) for text in texts])

    def _tell(self, agent: AgentId, messages: Sequence[Json]) -> None:
        if self.has_content:
            self.told.setdefault(agent, []).extend(messages)

    def _request(
        self, event: RequestStarted | RequestRetried | RequestFailed | ReplyReceived, at: int
    ) -> Iterator[Span]:
        key = f"request {event.request}"
        match event:
            case RequestStarted():
                if key not in self.opened.spans:
                    self._ask(event, at, key=key)
            case RequestRetried():
                attributes: dict[str, Value] = {names.ERROR: event.fault, "xnagent.wait_seconds": event.wait_seconds}
                self.opened.happened(key, Moment(name="xnagent.retry", at=at, attributes=attributes))
            case RequestFailed():
                yield from self.opened.end(key, at, error=event.fault)
            case ReplyReceived():
                yield from self.opened.end(key, at, more={**_reply(event), **self._answer(event)})

    def _ask(self, event: RequestStarted, at: int, *, key: str) -> None:
        manifest = self.manifests.get(event.manifest)
        name = names.CHAT if manifest is None else f"{names.CHAT} {manifest.model}"
        span = self.opened.child(event.agent, at, name=name, key=key, kind="client")
        attributes: dict[str, Value] = {
            **span.attributes,
            **_asked(event, manifest),
            **({names.COMPACTED: True} if owner_of(event.agent) in self.compacted else {}),
        }
        if told := self.told.pop(event.agent, []):
            attributes[names.INPUT_MESSAGES] = canonical(told)
        self.opened.spans[key] = replace(span, attributes=attributes)

    def _answer(self, event: ReplyReceived) -> dict[str, Value]:
        if not self.has_content:
            return {}
        calls = calls_of(event.items)
        self.calls |= {(event.agent, call.call_id): call for call in calls}
        parts: list[Json] = [{"type": "text", "content": text}] if (text := text_of(event.items)) else []
        parts += [
            {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": call.arguments} for call in calls
        ]
        return {names.OUTPUT_MESSAGES: canonical([_message("assistant", *parts)])}

    def _tool(self, event: ToolStarted | ToolFinished, at: int) -> Iterator[Span]:
        key = f"{event.agent} {event.call_id}"
        if key not in self.opened.spans:
            span = self.opened.child(event.agent, at, name=f"{names.EXECUTE_TOOL} {event.tool}", key=key)
            lasted = round(event.duration_seconds * NANO) if isinstance(event, ToolFinished) else 0
            start = max(at - lasted, self.opened.agent(event.agent, at).start)
            self.opened.spans[key] = replace(span, start=start, attributes={**span.attributes, **_called(event)})
        if isinstance(event, ToolFinished):
            self.opened.links |= dict.fromkeys(self.begun, self.opened.spans[key].span)
            self.begun.clear()
            error = None if event.code == "ok" else event.code
            yield from self.opened.end(key, at, error=error, more=self._result(event))

    def _result(self, event: ToolFinished) -> dict[str, Value]:
        more: dict[str, Value] = {} if event.exit_code is None else {"xnagent.exit_code": event.exit_code}
        if self.has_content:
            call = self.calls.pop((event.agent, event.call_id), None)
            more |= {names.TOOL_ARGUMENTS: "" if call is None else call.arguments, names.TOOL_RESULT: event.text}
            answer: Json = {"type": "tool_call_response", "id": event.call_id, "response": event.text}
            self._tell(event.agent, [_message("tool", answer)])
        return more


def _message(role: str, *parts: Json) -> Json:
    return {"role": role, "parts": list(parts)}


def _called(event: ToolStarted | ToolFinished) -> Mapping[str, Value]:
    return {names.TOOL_NAME: event.tool, names.TOOL_TYPE: "function", names.TOOL_CALL: event.call_id}


def _asked(event: RequestStarted, manifest: ManifestRecorded | None) -> dict[str, Value]:
    asked: dict[str, Value] = {
        names.REQUEST_STREAM: True,
        "xnagent.request": event.request,
        "xnagent.estimate_tokens": event.estimate_tokens,
    }
    if event.predicted_cached_tokens is not None:
        asked["xnagent.predicted_cached_tokens"] = event.predicted_cached_tokens
    if manifest is not None:
        asked |= {
            names.PROVIDER: names.PROVIDERS.get(manifest.wire, manifest.wire),
            names.REQUEST_MODEL: manifest.model,
            names.REQUEST_MAX_TOKENS: manifest.max_output_tokens,
        }
    return asked


def _reply(event: ReplyReceived) -> dict[str, Value]:
    usage = event.usage
    counted = {
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ: usage.cached_tokens,
        names.CACHE_WRITE: usage.cache_write_tokens,
        names.CACHE_CREATION: usage.cache_write_tokens,
        names.REASONING_TOKENS: usage.reasoning_tokens,
        names.FIRST_CHUNK: event.first_token_seconds,
        "xnagent.cost_usd": event.cost_usd,
    }
    known: dict[str, Value] = {name: value for name, value in counted.items() if value is not None}
    return {names.FINISH_REASONS: [event.finish], **known}


def spans_of(events: Iterable[Stored], *, has_content: bool = False) -> Iterator[Span]:
    """All spans of a log, in the order in which they end; what has not ended comes last."""
    tracer = Tracer(has_content=has_content)
    for stored in events:
        yield from tracer.take(stored)
    yield from tracer.rest()
