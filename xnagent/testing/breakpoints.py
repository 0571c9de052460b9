"""Caches that need marks: Anthropic's `cache_control`, and the breakpoints of OpenAI since 5.6."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from xnagent.testing.lookup import Lookup
from xnagent.testing.prompt import LIFETIMES, Prompt, ends_of

_MOST_MARKS: Final = 4
_MOST_CANDIDATES: Final = 80
"""So many of the newest earlier marks are looked at (OpenAI)."""
_LONG: Final = frozenset({"1h", "12h"})


@dataclass(slots=True)
class _Entry:
    since: float
    expires: float
    lifetime: float


@dataclass(slots=True, kw_only=True)
class BreakpointStore:
    """Keeps the prefixes that had a mark."""

    minimum_bytes: int
    look_back: int
    is_implicit: bool
    delay_seconds: float
    _entries: dict[bytes, _Entry] = field(default_factory=dict)
    """Chained hash of the blocks up to a mark."""

    def look_up(self, prompt: Prompt, now: float) -> Lookup:
        """The longest hit that a mark of this request sees; then its marks are written."""
        marks = self._marks(prompt)
        if not marks:
            return Lookup(cached_bytes=0)
        chain, ends = _chain(prompt), ends_of(prompt.blocks)
        hit = max(self._hit(chain, mark, now=now) for mark in marks)
        for link in chain[: hit + 1]:
            if (entry := self._entries.get(link)) is not None and entry.expires >= now:
                entry.expires = now + entry.lifetime
        kept = {mark: name for mark, name in marks.items() if ends[mark] >= self.minimum_bytes}
        for mark, name in kept.items():
            self._write(chain[mark], LIFETIMES.get(name, LIFETIMES["5m"]), now=now)
        long = max((mark for mark, name in kept.items() if name in _LONG), default=-1)
        return Lookup(cached_bytes=ends[hit] if hit >= 0 else 0, last_mark=max(kept, default=-1), long_mark=long)

    def add_output(self, prompt: Prompt, digest: bytes, *, now: float) -> None:
        """What the model wrote is kept when a mark stands behind it in a later request."""

    def _marks(self, prompt: Prompt) -> dict[int, str]:
        names = [(n, block.mark) for n, block in enumerate(prompt.blocks) if block.mark]
        marks = {n: prompt.default_mark if name == "default" else name for n, name in names}
        if not self.is_implicit:
            return marks
        if prompt.mode == "explicit":
            return dict(list(marks.items())[-_MOST_MARKS:])
        marks = dict(list(marks.items())[1 - _MOST_MARKS :])
        return {**marks, len(prompt.blocks) - 1: prompt.default_mark}

    def _hit(self, chain: list[bytes], mark: int, *, now: float) -> int:
        last = mark - self.look_back if self.look_back else -1
        places = [n for n in range(mark, max(last, -1), -1) if chain[n] in self._entries]
        return next((n for n in places[:_MOST_CANDIDATES] if self._is_readable(chain[n], now)), -1)

    def _is_readable(self, link: bytes, now: float) -> bool:
        entry = self._entries[link]
        return entry.since + self.delay_seconds <= now <= entry.expires

    def _write(self, link: bytes, lifetime: float, *, now: float) -> None:
        entry = self._entries.get(link)
        if entry is None or entry.expires < now:
            self._entries[link] = _Entry(now, now + lifetime, lifetime)
        else:
            entry.lifetime = max(entry.lifetime, lifetime)
            entry.expires = now + entry.lifetime


def _chain(prompt: Prompt) -> list[bytes]:
    chain, link = [], prompt.scope
    for block in prompt.blocks:
        link = hashlib.blake2b(link + hashlib.sha256(block.data).digest(), digest_size=16).digest()
        chain.append(link)
    return chain
