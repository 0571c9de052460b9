"""Places for so many calls at once; of those that wait, the one that is due first gets the next one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field

import anyio
import anyio.lowlevel

from xnagent.core.values import dataclass


@dataclass(slots=True, kw_only=True)
class _Waiter:
    due: float
    number: int
    turn: anyio.Event = field(default_factory=anyio.Event)


class Places:
    """Like a semaphore, but not first come, first served."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._waiting: list[_Waiter] = []
        self._count = 0

    @asynccontextmanager
    async def held(self, due: float) -> AsyncIterator[None]:
        """A place, as soon as there is one and nobody who waits is due before; equals come in turn."""
        await self._take(due)
        try:
            yield
        finally:
            self._give()

    async def _take(self, due: float) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        if self._free:
            self._free -= 1
            return
        self._count += 1
        waiter = _Waiter(due=due, number=self._count)
        self._waiting.append(waiter)
        try:
            await waiter.turn.wait()
        except anyio.get_cancelled_exc_class():
            self._leave(waiter)
            raise

    def _leave(self, waiter: _Waiter) -> None:
        """Cancelled: out of the queue; a place that was given to it at the last moment goes to the next."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        else:
            self._give()

    def _give(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        first = min(self._waiting, key=lambda one: (one.due, one.number))
        self._waiting.remove(first)
        first.turn.set()
