"""Spans: what they hold, their ids, which depend on the log alone, and those that have begun and not ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from xnagent.core.ids import PLANNER, AgentId, SessionId, owner_of, role_of
from xnagent.export import conventions as names

Kind = Literal["internal", "client"]
Value: TypeAlias = "str | bool | int | float | Sequence[str]"
TRACE_DIGITS: Final = 32
SPAN_DIGITS: Final = 16
NANO: Final = 1_000_000_000
MICRO: Final = 1_000
INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened within a span."""

    name: str
    at: int
    attributes: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span that has ended. Times are nanoseconds since 1970."""

    name: str
    trace: str
    """32 hex digits."""
    span: str
    """16 hex digits."""
    parent: str | None
    kind: Kind
    start: int
    end: int
    attributes: Mapping[str, Value]
    moments: tuple[Moment, ...] = ()
    links: tuple[str, ...] = ()
    """Spans of the same trace."""
    error: str | None = None
    """What went wrong; None: nothing did."""


def trace_of(session: SessionId) -> str:
    """The trace of a session, however many processes work on it."""
    return sha256(f"xnagent\0{session}".encode()).hexdigest()[:TRACE_DIGITS]


def span_of(session: SessionId, *parts: object) -> str:
    """The id of what the parts name within a session."""
    text = "\0".join(["xnagent", session, *map(str, parts)])
    return sha256(text.encode()).hexdigest()[:SPAN_DIGITS]


@dataclass(slots=True, kw_only=True)
class Opened:
    """The spans of a session that have begun and not ended, by what they are of: agents, requests, calls."""

    session: SessionId = SessionId("")
    version: str = ""
    epoch: int = 1
    spans: dict[str, Span] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    """By run, the span of the call that began it."""

    def begin_planner(self, at: int) -> None:
        """A process takes the session up; the first one's span is the root of the trace."""
        parent = None if self.epoch == 1 else span_of(self.session, PLANNER, 1)
        self._begin(PLANNER, at, parent=parent)

    def agent(self, agent: AgentId, at: int) -> Span:
        """The agent's in this process; a run that goes on after a resume begins anew."""
        owner = owner_of(agent)
        if owner not in self.spans:
            planner = self.spans.get(PLANNER)
            self._begin(owner, at, parent=planner.span if planner else None)
        return self.spans[owner]

    def _begin(self, agent: AgentId, at: int, *, parent: str | None) -> None:
        name, link = role_of(agent), self.links.get(agent)
        version: dict[str, Value] = {names.AGENT_VERSION: self.version} if self.version else {}
        self.spans[agent] = Span(
            name=f"{names.INVOKE_AGENT} {name}",
            trace=trace_of(self.session),
            span=span_of(self.session, agent, self.epoch),
            parent=parent,
            kind="internal",
            start=at,
            end=at,
            attributes={**self._common(names.INVOKE_AGENT, agent), names.AGENT_NAME: name, **version},
            links=() if link is None else (link,),
        )

    def _common(self, operation: str, agent: str) -> dict[str, Value]:
        return {names.OPERATION: operation, names.CONVERSATION: self.session, "xnagent.agent": agent}

    def child(self, agent: AgentId, at: int, *, name: str, key: str, kind: Kind = "internal") -> Span:
        """A span below the agent's; it is not kept."""
        parent = self.agent(agent, at)
        return Span(
            name=name,
            trace=parent.trace,
            span=span_of(self.session, key, self.epoch),
            parent=parent.span,
            kind=kind,
            start=at,
            end=at,
            attributes=self._common(name.partition(" ")[0], agent),
        )

    def happened(self, key: str, moment: Moment) -> None:
        """Something happened within a span, if it is open."""
        span = self.spans.get(key)
        if span is not None:
            self.spans[key] = replace(span, moments=(*span.moments, moment))

    def end(
        self, key: str, at: int, *, error: str | None = None, more: Mapping[str, Value] | None = None
    ) -> Iterator[Span]:
        """The span, ended; nothing if it was not open."""
        span = self.spans.pop(key, None)
        if span is None:
            return
        kind: dict[str, Value] = {} if error is None else {names.ERROR: error}
        attributes = {**span.attributes, **(more or {}), **kind}
        yield replace(span, end=max(at, span.start), attributes=attributes, error=error)

    def close(self, at: int, *, error: str = INTERRUPTED, but: str = "") -> Iterator[Span]:
        """End all of them, the Planner's last; nobody works on them any more."""
        for key in sorted(self.spans.keys() - {but}, key=lambda one: (one == PLANNER, one)):
            yield from self.end(key, at, error=error)


def nanoseconds(at: str) -> int:
    """A time of the log since 1970."""
    moment = datetime.fromisoformat(at)
    return (int(moment.timestamp()) * 1_000_000 + moment.microsecond) * MICRO
