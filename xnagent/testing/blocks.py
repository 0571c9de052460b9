"""Caches that need no marks: blocks of a fixed size (OpenAI before 5.6, vLLM) and whole units (DeepSeek)."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

from xnagent.testing.lookup import Lookup
from xnagent.testing.prompt import Prompt


@dataclass(slots=True)
class _Entry:
    since: float
    used: float


@dataclass(slots=True, kw_only=True)
class BlockStore:
    """Keeps a chained hash for each block of each prompt."""

    block_bytes: int
    interval_blocks: int
    has_units: bool
    """Only ends of requests and answers, places where two parted and intervals can be read."""
    delay_seconds: float
    lifetime_seconds: float
    _entries: dict[bytes, _Entry] = field(default_factory=dict)
    """Chained hash of a readable prefix."""
    _seen: set[bytes] = field(default_factory=set)

    def look_up(self, prompt: Prompt, now: float) -> Lookup:
        """The longest readable prefix in whole blocks; then the prompt is written."""
        chain = self._chain(prompt)
        length = max(self._longest(chain, now), self._answered(prompt, now))
        for link in chain[:length]:
            if link in self._entries:
                self._entries[link].used = now
        self._write(chain, now)
        return Lookup(cached_bytes=length * self.block_bytes)

    def add_output(self, prompt: Prompt, digest: bytes, *, now: float) -> None:
        """The end of an answer is the end of a unit."""
        if self.has_units:
            self._entries[_answer_key(_start(prompt, prompt.data).digest(), digest)] = _Entry(now, now)

    def _chain(self, prompt: Prompt) -> list[bytes]:
        size, data = self.block_bytes, prompt.data
        chain, link = [], prompt.scope
        for start in range(0, len(data) - size + 1, size):
            link = hashlib.blake2b(link + data[start : start + size], digest_size=16).digest()
            chain.append(link)
        return chain

    def _longest(self, chain: list[bytes], now: float) -> int:
        return next((n for n in range(len(chain), 0, -1) if self._is_readable(chain[n - 1], now)), 0)

    def _answered(self, prompt: Prompt, now: float) -> int:
        """Blocks up to the end of the last answer that came back as it was given."""
        data, at, running, length = prompt.data, 0, _start(prompt, b""), 0
        for begin, end, digest in prompt.turns() if self.has_units else ():
            running.update(data[at:begin])
            at = begin
            if self._is_readable(_answer_key(running.digest(), digest), now):
                length = end // self.block_bytes
        return length

    def _is_readable(self, link: bytes, now: float) -> bool:
        entry = self._entries.get(link)
        if entry is None or now - entry.since < self.delay_seconds:
            return False
        return now - entry.used <= (self.lifetime_seconds or math.inf)

    def _write(self, chain: list[bytes], now: float) -> None:
        readable = chain
        if self.has_units:
            common = next((n for n, link in enumerate(chain) if link not in self._seen), len(chain))
            intervals = chain[self.interval_blocks - 1 :: self.interval_blocks] if self.interval_blocks else []
            readable = [*intervals, *chain[max(common - 1, 0) : common], *chain[-1:]]
        for link in readable:
            entry = self._entries.get(link)
            if entry is None or now - entry.used > (self.lifetime_seconds or math.inf):
                self._entries[link] = _Entry(now, now)
        self._seen.update(chain)


def _start(prompt: Prompt, data: bytes) -> hashlib.blake2b:
    return hashlib.blake2b(prompt.scope + data, digest_size=16)


def _answer_key(before: bytes, digest: bytes) -> bytes:
    return b"answer" + before + digest
