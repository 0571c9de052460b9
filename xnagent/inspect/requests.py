"""One row for each request, from the events alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from xnagent.core.events import Stored
from xnagent.core.evolve import evolve
from xnagent.core.ids import AgentId, owner_of, role_of
from xnagent.core.occupancy import filled_share
from xnagent.core.rebase import Room
from xnagent.core.spine_events import (
    CacheDrifted,
    ManifestRecorded,
    ModelReplaced,
    ReplyReceived,
    RequestFailed,
    RequestRetried,
    RequestStarted,
    SpineRebased,
    WindowFilled,
)
from xnagent.core.state import SUMMARY_ROLE
from xnagent.core.tokens import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """What was sent, what was expected of it, and what the provider reported. None is unknown."""

    request: int
    agent: AgentId
    """Whose history it holds."""
    purpose: str
    """`step`, or `summary`: it asks for a summary of that history."""
    generation: int
    """Rebases of the agent's spine before it."""
    at: str
    model: str
    """Empty: the log does not say."""
    items: int
    estimate_tokens: int
    predicted_cached_tokens: int | None
    size_bytes: int
    sha256: str
    long_items: int
    """Up to how many items its cache markers asked for the longer lifetime."""
    waited_seconds: float | None
    """Since the agent's request before; None: unknown."""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    duration_seconds: float | None = None
    first_token_seconds: float | None = None
    finish: str | None = None
    """None: no reply yet."""
    retries: int = 0
    fault: str | None = None
    """Why it failed, or why it was last tried again."""
    note: str = ""
    window_share: float | None = None
    """What the estimate takes of the usable window; None: the log does not say how large that is."""
    warned_share: float | None = None
    """The level of the window that it was the first to reach since the last rebase (`spine.warn_shares`)."""
    cache_miss: str | None = None
    """The likely cause, if much less came from the cache than the request before had left there."""
    replaced: ModelReplaced | None = None
    """With the first request to a model that took another's place: the declared break."""


TOLD: Final = frozenset(
    {
        CacheDrifted,
        ManifestRecorded,
        ModelReplaced,
        ReplyReceived,
        RequestFailed,
        RequestRetried,
        RequestStarted,
        SpineRebased,
        WindowFilled,
    }
)
"""The kinds of events that rows are made of."""


def request_rows(events: Iterable[Stored]) -> list[RequestRow]:
    """The rows in the order of their numbers; a request that was sent again after a crash has one row."""
    ledger = Ledger()
    for stored in events:
        ledger.take(stored)
    return ledger.in_order()


@dataclass(slots=True)
class _Known:
    """What the log has said so far of the requests to come."""

    generations: dict[AgentId, int] = field(default_factory=dict)
    manifests: dict[str, ManifestRecorded] = field(default_factory=dict)
    levels: dict[int, float] = field(default_factory=dict)
    """The level of the window that a request reaches, by request."""
    replaced: dict[AgentId, tuple[ModelReplaced, int | None]] = field(default_factory=dict)
    """The newest break of each agent, with the first request after it, once there is one."""

    def take(self, event: SpineRebased | ModelReplaced | ManifestRecorded | WindowFilled) -> None:
        """Remember it."""
        match event:
            case SpineRebased():
                self.generations[event.agent] = self.generations.get(event.agent, 0) + 1
            case ModelReplaced():
                self.replaced[event.agent] = event, None
            case ManifestRecorded():
                self.manifests[event.manifest] = event
            case WindowFilled():
                self.levels[event.request] = event.level

    def started(self, event: RequestStarted, at: str) -> RequestRow:
        """The row of a request; sent again after a crash it is the same one."""
        broken, first = self.replaced.get(event.agent, (None, None))
        row = self._row(event, at)
        if broken is None or first not in {None, event.request}:
            return row
        self.replaced[event.agent] = broken, event.request
        return evolve(row, replaced=broken)

    def _row(self, event: RequestStarted, at: str) -> RequestRow:
        manifest = self.manifests.get(event.manifest)
        return RequestRow(
            request=event.request,
            agent=owner_of(event.agent),
            purpose="summary" if role_of(event.agent) == SUMMARY_ROLE else "step",
            generation=self.generations.get(owner_of(event.agent), 0),
            at=at,
            model="" if manifest is None else manifest.model,
            items=event.items,
            estimate_tokens=event.estimate_tokens,
            predicted_cached_tokens=event.predicted_cached_tokens,
            size_bytes=event.size_bytes,
            sha256=event.sha256,
            long_items=event.long_items,
            waited_seconds=event.waited_seconds,
            window_share=None if manifest is None else _window_share(event.estimate_tokens, manifest),
            warned_share=self.levels.get(event.request),
        )


@dataclass(slots=True)
class Ledger:
    """The rows as far as the log was taken, event by event."""

    rows: dict[int, RequestRow] = field(default_factory=dict)
    known: _Known = field(default_factory=_Known)

    def take(self, stored: Stored) -> int | None:
        """Go on by one event; the number of the request whose row it made or changed."""
        rows, event = self.rows, stored.event
        if type(event) not in TOLD:
            return None
        match event:
            case SpineRebased() | ModelReplaced() | ManifestRecorded() | WindowFilled():
                self.known.take(event)
                return None
            case RequestStarted():
                rows[event.request] = self.known.started(event, stored.at)
            case CacheDrifted() if event.request in rows:
                rows[event.request] = evolve(rows[event.request], cache_miss=event.cause)
            case ReplyReceived() | RequestRetried() | RequestFailed() if event.request in rows:
                rows[event.request] = _updated(rows[event.request], event)
            case _:
                return None
        return event.request

    def in_order(self) -> list[RequestRow]:
        """The rows in the order of their numbers."""
        return [self.rows[number] for number in sorted(self.rows)]


def _window_share(tokens: int, manifest: ManifestRecorded) -> float | None:
    room = Room(window_tokens=manifest.window_tokens, max_output_tokens=manifest.max_output_tokens, head_tokens=0)
    share = filled_share(tokens, room)
    return None if share is None else round(share, 4)


def _updated(row: RequestRow, event: ReplyReceived | RequestRetried | RequestFailed) -> RequestRow:
    match event:
        case RequestRetried():
            return evolve(row, retries=row.retries + 1, fault=event.fault)
        case RequestFailed():
            return evolve(row, fault=event.fault, note=event.detail)
        case ReplyReceived():
            return evolve(
                row,
                usage=event.usage,
                cost_usd=event.cost_usd,
                duration_seconds=event.duration_seconds,
                first_token_seconds=event.first_token_seconds,
                finish=event.finish,
                note=event.note,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShare:
    """How much of a role's input came from a cache, over the requests for which the provider reported both."""

    role: str
    requests: int
    """All requests with a reply."""
    reported: int
    """Those whose provider reported input and cached input."""
    input_tokens: int | None
    cached_tokens: int | None


def shares_of(events: Iterable[Stored]) -> list[CacheShare]:
    """One for each role, None where nothing was reported: unknown is not 0 (M33)."""
    told: dict[int, tuple[AgentId, Usage | None]] = {}
    for stored in events:
        event = stored.event
        if isinstance(event, RequestStarted):
            told[event.request] = event.agent, None
        elif isinstance(event, ReplyReceived) and event.request in told:
            told[event.request] = told[event.request][0], event.usage
    return _shares([(role_of(agent), usage) for agent, usage in told.values() if usage is not None])


def _shares(replied: list[tuple[str, Usage]]) -> list[CacheShare]:
    roles = ("planner", "worker", *([SUMMARY_ROLE] if any(role == SUMMARY_ROLE for role, _ in replied) else []))
    return [_share(role, [usage for own, usage in replied if own == role]) for role in roles]


def role_of_row(row: RequestRow) -> str:
    """Under which name its tokens and money are summed up."""
    return SUMMARY_ROLE if row.purpose == SUMMARY_ROLE else role_of(row.agent)


def _share(role: str, usages: list[Usage]) -> CacheShare:
    reported = [
        (usage.input_tokens, usage.cached_tokens)
        for usage in usages
        if usage.input_tokens is not None and usage.cached_tokens is not None and not usage.is_estimated
    ]
    return CacheShare(
        role=role,
        requests=len(usages),
        reported=len(reported),
        input_tokens=sum(whole for whole, _ in reported) if reported else None,
        cached_tokens=sum(part for _, part in reported) if reported else None,
    )
