"""The way of a process's sessions to a provider: so many calls at once, none into a refusal, one first for a cold head.

All sessions of a process share the gates. A turn waits for three things, in this order: that nobody else is warming the
cache for the same head, that a place is free, that the provider's allowance is not used up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import anyio

from xnagent.models.quota import Need, Quota, learned, refilled, taken, wait_seconds
from xnagent.models.quota_headers import read_quota
from xnagent.ports import Clock

BYTES_PER_TOKEN: Final = 4
WARMING_SECONDS: Final = 20.0
"""How long calls wait for the first token of the one that goes first."""
LIFETIME_SECONDS: Final = 300.0
"""How long a head stays warm where the provider does not say."""
KNOWN_HEADS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A call that would like to begin."""

    head: bytes
    """What it shares with others: system text and tools as rendered."""
    size_bytes: int

    @property
    def need(self) -> Need:
        """What it will use of the allowances."""
        tokens = self.size_bytes / BYTES_PER_TOKEN
        return {"requests": 1.0, "tokens": tokens, "input_tokens": tokens, "output_tokens": 1.0}


@dataclass(slots=True, kw_only=True)
class _Head:
    """A head that calls share."""

    first_token: anyio.Event = field(default_factory=anyio.Event)
    used_at: float = 0.0
    is_warm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmth:
    """What is worth knowing of a provider's cache before many calls with one head begin."""

    lifetime_seconds: float = LIFETIME_SECONDS
    minimum_bytes: int = 0
    """A shorter head is not cached."""


class Turn:
    """A call under way; it is told what comes back."""

    def __init__(self, gate: Gate, head: _Head | None, *, need: Need) -> None:
        self.need = need
        self._gate = gate
        self._head = head

    def headers(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer begins."""
        self._gate.unheard.discard(self)
        self._gate.learn(status, headers)

    def first_piece(self) -> None:
        """The first piece of the answer came: what was sent is in the cache now."""
        if self._head is not None:
            self._head.is_warm = True
            self._head.used_at = self._gate.seconds()
            self._head.first_token.set()


class Gate:
    """The gate before one model at one endpoint."""

    def __init__(
        self,
        *,
        places: anyio.CapacityLimiter | None,
        sharers: int = 1,
        warmth: Warmth | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`places` are shared by all models of the endpoint; `sharers` processes use the allowance side by side.

        Without a clock, the event loop's time counts.
        """
        self.seconds = anyio.current_time if clock is None else clock.monotonic
        """The time, from an arbitrary start."""
        self._sleep = anyio.sleep if clock is None else clock.sleep
        self.quota = Quota()
        self.unheard: set[Turn] = set()
        """Calls that began and were not answered yet."""
        self._places = places
        self._sharers = sharers
        self._warmth = warmth
        self._heads: dict[bytes, _Head] = {}
        self._door = anyio.Lock(fast_acquire=True)
        self._news = anyio.Event()
        self._under_way = 0

    @asynccontextmanager
    async def turn(self, ask: Ask) -> AsyncIterator[Turn]:
        """Wait until the call may begin; leave when it ended."""
        head = await self._led(ask)
        try:
            async with _held(self._places):
                await self._enter(ask.need)
                turn = Turn(self, head, need=ask.need)
                self.unheard.add(turn)
                try:
                    yield turn
                finally:
                    self.unheard.discard(turn)
                    self._under_way -= 1
        finally:
            self._cool(ask, head)

    def learn(self, status: int, headers: Mapping[str, str]) -> None:
        """An answer's headers came."""
        now = self.seconds()
        reading = read_quota(headers, status=status, now=datetime.now(UTC), monotonic=now)
        pending = {name: sum(turn.need.get(name, 0.0) for turn in self.unheard) for name in reading.allowances}
        self.quota = learned(self.quota, reading, now=now, pending=pending)
        self._news.set()

    async def _enter(self, need: Need) -> None:
        async with self._door:
            while (pause := self._pause(need)) > 0:
                await self._wait(pause)
            self.quota = taken(self.quota, need)
            self._under_way += 1

    async def _wait(self, pause: float) -> None:
        """For so long, or until another answer tells more."""
        self._news = anyio.Event()
        async with anyio.create_task_group() as group:

            async def listen() -> None:
                await self._news.wait()
                group.cancel_scope.cancel()

            group.start_soon(listen)
            await self._sleep(pause)
            group.cancel_scope.cancel()

    def _pause(self, need: Need) -> float:
        now = self.seconds()
        self.quota = refilled(self.quota, now=now)
        pause = wait_seconds(self.quota, need, now=now, sharers=self._sharers)
        is_told = self._under_way > 0 or any(one.reset_at for one in self.quota.allowances.values())
        return pause if is_told or self.quota.not_before > now else 0.0

    async def _led(self, ask: Ask) -> _Head | None:
        """The head, if this call warms it or keeps it warm; waits while another call warms it."""
        if self._warmth is None or len(ask.head) < max(self._warmth.minimum_bytes, 1):
            return None
        key = sha256(ask.head).digest()
        with anyio.move_on_after(WARMING_SECONDS):
            while (head := self._heads.get(key)) is not None and not head.is_warm:
                await head.first_token.wait()
        head = self._heads.get(key)
        if head is None or (head.is_warm and self._is_cold(head)):
            self._forget_cold()
            head = self._heads[key] = _Head()
        return head

    def _is_cold(self, head: _Head) -> bool:
        lifetime = LIFETIME_SECONDS if self._warmth is None else self._warmth.lifetime_seconds
        return self.seconds() - head.used_at > lifetime

    def _forget_cold(self) -> None:
        if len(self._heads) >= KNOWN_HEADS:
            self._heads = {key: head for key, head in self._heads.items() if not self._is_cold(head)}

    def _cool(self, ask: Ask, head: _Head | None) -> None:
        """A call that was to warm a head and failed lets another one try."""
        if head is not None and not head.is_warm:
            key = sha256(ask.head).digest()
            if self._heads.get(key) is head:
                del self._heads[key]
            head.first_token.set()


@asynccontextmanager
async def _held(places: anyio.CapacityLimiter | None) -> AsyncIterator[None]:
    if places is None:
        yield
        return
    async with places:
        yield


@dataclass(slots=True, kw_only=True)
class Gates:
    """The gates of a process."""

    at_once: int | None = None
    """Calls at the same time at one endpoint; None: no limit."""
    sharers: int = 1
    places: dict[str, anyio.CapacityLimiter] = field(default_factory=dict)
    gates: dict[tuple[str, str, str], Gate] = field(default_factory=dict)

    def to(self, *, endpoint: str, key: str, model: str, warmth: Warmth | None, clock: Clock | None = None) -> Gate:
        """The gate to a model; `key` names the variable of its key, since limits belong to a key."""
        place = (endpoint, key, model)
        if place not in self.gates:
            if self.at_once is not None and endpoint not in self.places:
                self.places[endpoint] = anyio.CapacityLimiter(self.at_once)
            places = self.places.get(endpoint)
            self.gates[place] = Gate(places=places, sharers=self.sharers, warmth=warmth, clock=clock)
        return self.gates[place]
