"""The way of a process's sessions to a provider: so many calls at once, none into a refusal, one first for a cold head.

All sessions of a process share the gates. A turn waits for three things, in this order: that nobody else is warming the
cache for the same head (`warming`), that a place is free, that the provider's allowance is not used up. Of the calls
that wait for a place or the allowance, the one whose history's cache is about to expire goes first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from datetime import UTC, datetime

import anyio

from xnagent.core.lifetime import PATIENCE_SECONDS
from xnagent.core.tokens import Usage
from xnagent.core.values import dataclass
from xnagent.models.places import Places
from xnagent.models.quota import Need, Quota, learned, refilled, taken, wait_seconds
from xnagent.models.quota_headers import read_quota
from xnagent.models.warming import BYTES_PER_TOKEN, Head, Heads, Served, Warmth
from xnagent.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A call that would like to begin."""

    head: bytes
    """What it shares with others: system text and tools as rendered."""
    size_bytes: int
    is_first: bool = True
    """Whether it is its history's first: a later one finds the head in that history's own cache."""
    due: float | None = None
    """Until when it should have begun, by the gate's time; None: like a call with nothing to lose."""

    @property
    def need(self) -> Need:
        """What it will use of the allowances."""
        tokens = self.size_bytes / BYTES_PER_TOKEN
        return {"requests": 1.0, "tokens": tokens, "input_tokens": tokens, "output_tokens": 1.0}


class Turn:
    """A call under way; it is told what comes back."""

    def __init__(self, gate: Gate, head: Head | None, *, ask: Ask) -> None:
        self.need = ask.need
        self._gate = gate
        self._head = head
        self._is_first = ask.is_first
        self._sent_at = gate.seconds()

    def headers(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer begins."""
        self._gate.unheard.discard(self)
        self._gate.learn(status, headers)

    def first_piece(self) -> None:
        """The first piece of the answer came."""
        if self._head is not None:
            self._gate.heads.begun(self._head)

    def answered(self, usage: Usage) -> None:
        """The answer is whole."""
        if self._head is not None and self._is_first and not usage.is_estimated:
            cached, written = usage.cached_tokens, usage.cache_write_tokens
            served = Served(sent_at=self._sent_at, cached_tokens=cached, written_tokens=written)
            self._gate.heads.answered(self._head, served)


class Gate:
    """The gate before one model at one endpoint."""

    def __init__(
        self,
        *,
        places: Places | None,
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
        self.heads = Heads(warmth, seconds=self.seconds, sleep=self._sleep)
        self.lifetime_seconds = None if warmth is None else warmth.lifetime_seconds
        self._door = Places(1)
        self._news = anyio.Event()
        self._under_way = 0

    @asynccontextmanager
    async def turn(self, ask: Ask) -> AsyncIterator[Turn]:
        """Wait until the call may begin; leave when it ended."""
        head = await self.heads.led(ask.head, is_first=ask.is_first)
        due = self.seconds() + PATIENCE_SECONDS if ask.due is None else ask.due
        try:
            async with _held(self._places, due):
                await self._enter(ask.need, due)
                turn = Turn(self, head, ask=ask)
                self.unheard.add(turn)
                try:
                    yield turn
                finally:
                    self.unheard.discard(turn)
                    self._under_way -= 1
        finally:
            self.heads.cool(ask.head, head)

    def learn(self, status: int, headers: Mapping[str, str]) -> None:
        """An answer's headers came."""
        now = self.seconds()
        reading = read_quota(headers, status=status, now=datetime.now(UTC), monotonic=now)
        pending = {name: sum(turn.need.get(name, 0.0) for turn in self.unheard) for name in reading.allowances}
        self.quota = learned(self.quota, reading, now=now, pending=pending)
        self._news.set()

    async def _enter(self, need: Need, due: float) -> None:
        async with self._door.held(due):
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


@asynccontextmanager
async def _held(places: Places | None, due: float) -> AsyncIterator[None]:
    if places is None:
        yield
        return
    async with places.held(due):
        yield


@dataclass(slots=True, kw_only=True)
class Gates:
    """The gates of a process."""

    at_once: int | None = None
    """Calls at the same time at one endpoint; None: no limit."""
    sharers: int = 1
    places: dict[str, Places] = field(default_factory=dict)
    gates: dict[tuple[str, str, str], Gate] = field(default_factory=dict)

    def to(self, *, endpoint: str, key: str, model: str, warmth: Warmth | None, clock: Clock | None = None) -> Gate:
        """The gate to a model; `key` names the variable of its key, since limits belong to a key."""
        place = (endpoint, key, model)
        if place not in self.gates:
            if self.at_once is not None and endpoint not in self.places:
                self.places[endpoint] = Places(self.at_once)
            places = self.places.get(endpoint)
            self.gates[place] = Gate(places=places, sharers=self.sharers, warmth=warmth, clock=clock)
        return self.gates[place]
