"""Of calls that share a head which no cache holds yet, one goes first; this says when the others follow.

What a provider has read it can serve to others from some moment on: by the first token of the answer at the latest,
most say. So the others leave then. Where usage shows that it was later, a gate remembers by how much, and the next time
the others follow in waves of 2, 4, 8… until one of them is served from the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from hashlib import sha256
from typing import Final, Protocol

import anyio

from xnagent.core.values import dataclass

BYTES_PER_TOKEN: Final = 4
WARMING_SECONDS: Final = 20.0
"""How long calls wait for the first token of the one that goes first."""
MOST_LAG_SECONDS: Final = 8.0
"""How long they wait behind it at most."""
LEAST_LAG_SECONDS: Final = 0.25
MOST_WAVES: Final = 16
"""Then nobody waits any more: it is more calls than a process has."""
LIFETIME_SECONDS: Final = 300.0
"""How long a head stays warm where the provider does not say."""
SERVED_SHARE: Final = 0.5
"""Of a head that counts as served when so much of it came from the cache: rounding takes some."""
HOPELESS_MISSES: Final = 4
"""After so many calls in a row that were served nothing although they came late enough, nobody waits any more."""
KNOWN_HEADS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmth:
    """What is worth knowing of a provider's cache before many calls with one head begin."""

    lifetime_seconds: float = LIFETIME_SECONDS
    minimum_bytes: int = 0
    """A shorter head is not cached."""
    lag_seconds: float = 0.0
    """From the first token of an answer until what was read for it is served to others."""


@dataclass(slots=True, kw_only=True)
class Head:
    """A head that calls share."""

    size_bytes: int
    first_token: anyio.Event = field(default_factory=anyio.Event)
    first_at: float = 0.0
    """When the first token came."""
    used_at: float = 0.0
    is_warm: bool = False
    """The first token came."""
    followers: int = 0
    seen: anyio.Event = field(default_factory=anyio.Event)
    """Set when a follower was served from the cache, or there is nothing to wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What usage says of the first call of a history."""

    sent_at: float
    cached_tokens: int | None
    """Read from the cache; None: the provider does not say."""
    written_tokens: int | None
    """Written to it at a price of its own; None: the provider does not say."""


class Sleep(Protocol):
    """Waits by the session's clock."""

    async def __call__(self, seconds: float, /) -> None:
        """So long."""


class Heads:
    """The heads of the calls that pass one gate, and what was learnt about the cache behind it."""

    def __init__(self, warmth: Warmth | None, *, seconds: Callable[[], float], sleep: Sleep) -> None:
        self.lag_seconds = 0.0 if warmth is None else warmth.lag_seconds
        self._warmth = warmth
        self._seconds = seconds
        self._sleep = sleep
        self._heads: dict[bytes, Head] = {}
        self._lost = 0

    async def led(self, content: bytes, *, is_first: bool = True) -> Head | None:
        """The head, if this call warms it or keeps it warm; waits while another call warms it.

        A call that is not its history's first has the head in that history's own cache, and waits for nobody.
        """
        if self._warmth is None or len(content) < max(self._warmth.minimum_bytes, 1) or self._is_hopeless:
            return None
        key = sha256(content).digest()
        if is_first:
            await self._wait(key)
        head = self._heads.get(key)
        if head is None or (head.is_warm and self._is_cold(head)):
            self._forget_cold()
            head = self._heads[key] = Head(size_bytes=len(content))
        return head

    async def _wait(self, key: bytes) -> None:
        with anyio.move_on_after(WARMING_SECONDS):
            while (head := self._heads.get(key)) is not None and not head.is_warm:
                await head.first_token.wait()
            if head is not None and not self._is_cold(head):
                await self._follow(head)

    def begun(self, head: Head) -> None:
        """The first piece of an answer came: what was sent for it is in the cache, or will be soon."""
        head.used_at = self._seconds()
        if not head.is_warm:
            head.is_warm, head.first_at = True, head.used_at
        head.first_token.set()

    def answered(self, head: Head, served: Served) -> None:
        """The answer to a history's first call is whole, and its usage tells what the cache did for the head."""
        if served.cached_tokens is None:
            return
        is_follower = head.is_warm and served.sent_at >= head.first_at
        late = served.sent_at - head.first_at if is_follower else 0.0
        if served.cached_tokens * BYTES_PER_TOKEN >= head.size_bytes * SERVED_SHARE:
            self._lost = 0
            self.lag_seconds = min(self.lag_seconds, late) if is_follower else self.lag_seconds
            head.seen.set()
        elif served.written_tokens == 0:
            head.seen.set()
        elif is_follower:
            self._missed(late)

    def cool(self, content: bytes, head: Head | None) -> None:
        """A call that was to warm a head and failed lets another one try."""
        if head is not None and not head.is_warm:
            key = sha256(content).digest()
            if self._heads.get(key) is head:
                del self._heads[key]
            head.first_token.set()

    @property
    def _is_hopeless(self) -> bool:
        return self._lost >= HOPELESS_MISSES

    def _missed(self, late: float) -> None:
        if late >= MOST_LAG_SECONDS:
            self._lost += 1
        else:
            self.lag_seconds = max(self.lag_seconds, min(MOST_LAG_SECONDS, max(LEAST_LAG_SECONDS, 2 * late)))

    async def _follow(self, head: Head) -> None:
        while not head.seen.is_set() and (pause := pause_seconds(head, self._seconds(), lag_seconds=self.lag_seconds)):
            async with anyio.create_task_group() as group:

                async def listen() -> None:
                    await head.seen.wait()
                    group.cancel_scope.cancel()

                group.start_soon(listen)
                await self._sleep(pause)
                group.cancel_scope.cancel()
        head.followers += 1

    def _is_cold(self, head: Head) -> bool:
        lifetime = LIFETIME_SECONDS if self._warmth is None else self._warmth.lifetime_seconds
        return self._seconds() - head.used_at > lifetime

    def _forget_cold(self) -> None:
        if len(self._heads) >= KNOWN_HEADS:
            self._heads = {key: head for key, head in self._heads.items() if not self._is_cold(head)}


def pause_seconds(head: Head, now: float, *, lag_seconds: float) -> float:
    """How long the next follower waits: the first two for the lag, the next four for two, then eight; 0: it may go."""
    waited = now - head.first_at
    if lag_seconds <= 0 or waited >= MOST_LAG_SECONDS:
        return 0.0
    waves = math.floor(min(waited / lag_seconds, MOST_WAVES))
    if head.followers < 2 ** (waves + 1) - 2:
        return 0.0
    return max(0.001, min((waves + 1) * lag_seconds, MOST_LAG_SECONDS) - waited)
