"""One agent's part of a log as the steps of a trajectory, by the rules of ATIF v1.8."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from xnagent.core.events import CheckFinished, Event, RunInterrupted, RunSettled, Stored
from xnagent.core.ids import PLANNER, AgentId, RunId, owner_of, role_of
from xnagent.core.items import Reasoning, ReplyItem, ToolCall, UserText, calls_of, text_of
from xnagent.core.spine_events import (
    ManifestRecorded,
    ReplyReceived,
    RequestFailed,
    RequestStarted,
    ResultOffloaded,
    SpineExtended,
    SpineRebased,
    ToolFinished,
)
from xnagent.core.state import SUMMARY_ROLE
from xnagent.core.text import Json
from xnagent.core.tokens import Usage, add_usage

NOTE: Final = "note"
"""The kind of a step that no model read: it only tells what happened."""
USER_KINDS: Final = frozenset({"objective", "brief", "message"})
"""What a person or the Planner said; other messages are xnagent's."""
READABLE: Final = ("thinking", "text", "summary", "content")
"""Where providers put the readable part of reasoning."""

Fields = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Trajectory:
    """What one agent was told, said and did so far."""

    agent: AgentId
    trajectory_of: Callable[[RunId], str]
    """The name under which a run's own trajectory is found."""
    steps: list[Fields] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    """None as soon as the cost of one request is unknown."""
    manifest: ManifestRecorded | None = None
    """The newest that the agent's requests were made with."""
    calls: dict[str, Fields] = field(default_factory=dict)
    """The step that made a call, by the call's id."""
    requests: dict[int, RequestStarted] = field(default_factory=dict)
    delegated: RunId | None = None
    """A run that was begun by the call whose result comes next."""

    def take(self, stored: Stored, manifests: Mapping[str, ManifestRecorded]) -> None:
        """One more event that is about this agent."""
        event = stored.event
        match event:
            case RequestStarted():
                self.requests[event.request] = event
                self._use(manifests.get(event.manifest), stored)
            case SpineExtended():
                self._told(event, stored)
            case SpineRebased():
                self._rebased(event, stored)
            case ReplyReceived():
                self._replied(event, stored, manifests=manifests)
            case ToolFinished():
                self._result(event)
            case ResultOffloaded():
                self._shortened(event)
            case _:
                self._happened(event, stored)

    def _use(self, manifest: ManifestRecorded | None, stored: Stored) -> None:
        """The first request shows what stands before the history: it was there from the beginning."""
        if manifest is None or manifest.role.partition(":")[0] == SUMMARY_ROLE:
            return
        if self.manifest is None:
            self.steps.insert(0, _step("system", manifest.system, at=stored.at, kind="system"))
        self.manifest = manifest

    def _told(self, event: SpineExtended, stored: Stored) -> None:
        source = "user" if event.kind in USER_KINDS else "system"
        for item in event.items:
            if isinstance(item, UserText):
                self.steps.append(_step(source, item.text, at=stored.at, kind=event.kind))

    def _rebased(self, event: SpineRebased, stored: Stored) -> None:
        texts = [item.text for item in event.items if isinstance(item, UserText)]
        more: Fields = {
            "cause": event.cause,
            "tokens_before": event.tokens_before,
            "tokens_after": event.tokens_after,
            "items_dropped": event.items_dropped,
        }
        self.steps.append(_step("system", texts[1] if len(texts) > 1 else "", at=stored.at, kind="rebase", **more))

    def _replied(self, event: ReplyReceived, stored: Stored, *, manifests: Mapping[str, ManifestRecorded]) -> None:
        started = self.requests.get(event.request)
        manifest = None if started is None else manifests.get(started.manifest)
        is_summary = role_of(event.agent) == SUMMARY_ROLE
        step = _step("agent", text_of(event.items), at=stored.at, kind="summary" if is_summary else "reply")
        step["extra"] |= {"request": event.request, "finish": event.finish}
        step |= {"llm_call_count": 1, "metrics": _metrics(event, started)}
        if manifest is not None:
            step["model_name"] = manifest.model
        if reasoning := readable(event.items):
            step["reasoning_content"] = reasoning
        if calls := calls_of(event.items):
            step["tool_calls"] = [_call(call) for call in calls]
            self.calls |= {call.call_id: step for call in calls}
        self.steps.append(step)
        self.usage = add_usage(self.usage, event.usage)
        is_known = self.cost_usd is not None and event.cost_usd is not None
        self.cost_usd = (self.cost_usd or 0.0) + (event.cost_usd or 0.0) if is_known else None

    def _result(self, event: ToolFinished) -> None:
        step = self.calls.get(event.call_id)
        if step is None:
            return
        result: Fields = {"source_call_id": event.call_id, "content": event.text}
        extra: Fields = {"code": event.code, "duration_seconds": event.duration_seconds}
        if event.exit_code is not None:
            extra["exit_code"] = event.exit_code
        if event.artifact is not None:
            extra["artifact"] = event.artifact
        if self.delegated is not None:
            result["subagent_trajectory_ref"] = [{"trajectory_id": self.trajectory_of(self.delegated)}]
            self.delegated = None
        step.setdefault("observation", {"results": []})["results"].append(result | {"extra": extra})

    def _shortened(self, event: ResultOffloaded) -> None:
        """The model reads the short text; who reads the trajectory reads what the model read."""
        step = self.calls.get(event.call_id, {})
        for result in step.get("observation", {}).get("results", ()):
            if result["source_call_id"] == event.call_id:
                result["content"] = event.text

    def _happened(self, event: Event, stored: Stored) -> None:
        match event:
            case RequestFailed():
                text = f"Request {event.request} failed ({event.fault}): {event.detail}"
                self._note(text, stored, fault=event.fault, request=event.request)
            case CheckFinished():
                evidence = event.evidence
                step = self._note(f"Check: {evidence.command}", stored, exit_code=evidence.exit_code)
                step["observation"] = {"results": [{"content": evidence.tail}]}
            case RunSettled():
                self._note(f"Run {event.run} ended: {event.status}", stored, status=event.status, reason=event.reason)
            case RunInterrupted():
                self._note(f"Run {event.run} was interrupted", stored, status="interrupted", reason=event.reason)
            case _:
                pass

    def _note(self, text: str, stored: Stored, **more: Json) -> Fields:
        step = _step("system", text, at=stored.at, kind=NOTE, **more)
        self.steps.append(step)
        return step


def agent_of_event(event: Event) -> AgentId | None:
    """In whose trajectory an event stands; None: in none."""
    match event:
        case (
            RequestStarted()
            | SpineExtended()
            | SpineRebased()
            | ReplyReceived()
            | ToolFinished()
            | ResultOffloaded()
            | RequestFailed()
        ):
            return owner_of(event.agent)
        case CheckFinished() | RunSettled() | RunInterrupted():
            return PLANNER if event.run is None else AgentId(event.run)
        case _:
            return None


def readable(items: Iterable[ReplyItem]) -> str:
    """What of a reply's reasoning a person can read: nothing of what is sealed or signed."""
    texts = [_readable(item) for item in items if isinstance(item, Reasoning)]
    return "\n".join(text for text in texts if text)


def _readable(item: Reasoning) -> str:
    if item.wire == "chat":
        return item.payload
    if item.wire.endswith(":extra_content"):
        return ""
    try:
        return "\n".join(_texts(json.loads(item.payload)))
    except (ValueError, RecursionError):
        return ""


def _texts(value: object) -> list[str]:
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    if not isinstance(value, dict):
        return []
    found = [value.get(name) for name in READABLE]
    return [text for part in found for text in ([part] if isinstance(part, str) and part else _texts(part))]


def _step(source: str, message: str, *, at: str, kind: str, **more: Json) -> Fields:
    told = {name: value for name, value in more.items() if value not in {None, ""}}
    return {"timestamp": at, "source": source, "message": message, "extra": {"kind": kind, **told}}


def _call(call: ToolCall) -> Fields:
    """Arguments have to be an object; what a model wrote instead stands beside."""
    made: Fields = {"tool_call_id": call.call_id, "function_name": call.name}
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return made | {"arguments": arguments}
    return made | {"arguments": {}, "extra": {"raw_arguments": call.arguments}}


def _metrics(event: ReplyReceived, started: RequestStarted | None) -> Fields:
    usage = event.usage
    extra = {
        "cache_write_tokens": usage.cache_write_tokens,
        "cache_write_long_tokens": usage.cache_write_long_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "is_estimated": True if usage.is_estimated else None,
        "predicted_cached_tokens": None if started is None else started.predicted_cached_tokens,
        "duration_seconds": event.duration_seconds,
        "first_token_seconds": event.first_token_seconds,
    }
    return {**token_fields(usage), **_known(cost_usd=event.cost_usd), "extra": _known(**extra)}


def token_fields(usage: Usage, prefix: str = "") -> Fields:
    """The counts under ATIF's names; an unknown one is left out."""
    named = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
    }
    return {f"{prefix}{name}": value for name, value in named.items() if value is not None}


def _known(**fields: Json) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}
