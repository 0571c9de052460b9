"""Caches that need no marks: blocks of a fixed size (OpenAI before 5.6, vLLM) and whole units (DeepSeek)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
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
        chain, ends = self._chain(prompt), _ends(prompt) if self.has_units else {}
        length = max(self._longest(chain, now), self._unit(prompt, ends, now=now))
        for link in chain[:length]:
            if link in self._entries:
                self._entries[link].used = now
        self._write(chain, now)
        self._add(list(ends.values())[-1:], now)
        return Lookup(cached_bytes=length * self.block_bytes)

    def add_output(self, prompt: Prompt, digest: bytes, *, now: float) -> None:
        """The end of an answer is the end of a unit."""
        if self.has_units:
            self._add([_answer_key(list(_ends(prompt).values())[-1], digest)], now)

    def _chain(self, prompt: Prompt) -> list[bytes]:
        size, data = self.block_bytes, prompt.data
        chain, link = [], prompt.scope
        for start in range(0, len(data) - size + 1, size):
            link = hashlib.blake2b(link + data[start : start + size], digest_size=16).digest()
            chain.append(link)
        return chain

    def _longest(self, chain: list[bytes], now: float) -> int:
        return next((n for n in range(len(chain), 0, -1) if self._is_readable(chain[n - 1], now)), 0)

    def _unit(self, prompt: Prompt, ends: Mapping[int, bytes], *, now: float) -> int:
        """Blocks up to where the longest earlier request ended, or its answer that came back as it was given."""
        answers = {end: _answer_key(ends[begin], digest) for begin, end, digest in prompt.turns() if begin in ends}
        places = [*ends.items(), *answers.items()]
        return max((end for end, key in places if self._is_readable(key, now)), default=0) // self.block_bytes

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
            readable = [*intervals, *chain[max(common - 1, 0) : common]]
        self._add(readable, now)
        self._seen.update(chain)

    def _add(self, links: Iterable[bytes], now: float) -> None:
        for link in links:
            entry = self._entries.get(link)
            if entry is None or now - entry.used > (self.lifetime_seconds or math.inf):
                self._entries[link] = _Entry(now, now)


def _ends(prompt: Prompt) -> dict[int, bytes]:
    """Where each block of a prompt ends, in bytes, and a digest of everything up to there."""
    running, at, ends = hashlib.blake2b(b"end" + prompt.scope, digest_size=16), 0, {}
    for block in prompt.blocks:
        running.update(block.data)
        at += len(block.data)
        ends[at] = running.digest()
    return ends


def _answer_key(before: bytes, digest: bytes) -> bytes:
    return b"answer" + before + digest
