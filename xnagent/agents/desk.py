"""What an agent works with: the desk is the session's, the seat is its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Literal, Protocol

import anyio

from xnagent.agents.hooking import Hooks
from xnagent.core.caching import CacheRule
from xnagent.core.fallback import Candidate
from xnagent.core.ids import AgentId
from xnagent.core.lifetime import Lifetime
from xnagent.core.limits import Limits
from xnagent.core.pricing import Price
from xnagent.core.rebase import RebaseCause, RebasePolicy, Room
from xnagent.core.retry import RetryPolicy
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.state import SessionState
from xnagent.core.values import dataclass
from xnagent.errors import XnagentError
from xnagent.ports import Clock, Log, Model, Toolbox, Workspace

PrefixMode = Literal["off", "warn", "strict"]


class HaltError(XnagentError):
    """The session halts (a limit was met); the reason is in the log already."""


class RunFailedError(XnagentError):
    """The run cannot go on; the message is the reason that the Planner reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The last request of a lineage, to compare the next one with."""

    lineage: str
    segments: Sequence[bytes]
    manifest: ManifestRecorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The last reply that an agent got in this process."""

    sent_at_seconds: float
    """When its request was sent, on the monotonic clock."""
    at_seconds: float
    lifetime_seconds: float | None
    """How long the cache serves what that request left there; None: nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What all agents of a session share."""

    log: Log
    clock: Clock
    limits: Limits
    retry: RetryPolicy
    prefix: PrefixMode
    hooks: Hooks | None = None
    """The user's commands around all this; None: there are none."""
    turn: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))
    """Held while a tool turns state into events, so that two can't give the same id."""
    sent: dict[AgentId, Sent] = field(default_factory=dict)
    """By agent: what this process sent last."""
    answered: dict[AgentId, Answered] = field(default_factory=dict)
    """By agent."""


class Place(Protocol):
    """Where an agent's tools work."""

    async def open(self) -> Workspace:
        """The tree as it should be now."""


class Condenser(Protocol):
    """Another way to shorten a history than from stored state alone."""

    async def condense(self, desk: Desk, seat: Seat, *, cause: RebaseCause) -> bool:
        """Shorten it; False: it stays as it is, and the log says why where something was tried."""

    def is_given_up(self, state: SessionState, agent: AgentId) -> bool:
        """Whether it is no longer tried, so that the history is shortened from stored state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One agent with its model and tools."""

    agent: AgentId
    model: Model
    manifest: ManifestRecorded
    price: Price | None
    policy: RebasePolicy
    toolbox: Toolbox
    place: Place
    head_tokens: int
    """Estimate of system text and tools."""
    placed: frozenset[str]
    """The tools that act on the tree; the others act on the state."""
    cache: CacheRule = field(default_factory=CacheRule)
    """What is known of the model's cache."""
    lifetime: Lifetime = "5m"
    """How long what its requests leave there is to live."""
    renderer: str = ""
    """Version and fingerprint of what makes bytes of its requests here."""
    chain: tuple[Candidate, ...] = ()
    """The models that may answer this agent, in the user's order; its own is one of them."""
    condenser: Condenser | None = None
    """None: its history is shortened from stored state alone."""

    @property
    def room(self) -> Room:
        """How much fits into a request."""
        return Room(
            window_tokens=self.manifest.window_tokens,
            max_output_tokens=self.manifest.max_output_tokens,
            head_tokens=self.head_tokens,
        )


class Succession(Protocol):
    """Knows who sits where."""

    async def in_force(self, seat: Seat) -> Seat:
        """The seat as it is, or with the model that the log says has taken the place of its own."""
