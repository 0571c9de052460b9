"""The cache of llama.cpp: each slot keeps its newest prompt and answer, and a request goes on from what is common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from xnagent.testing.lookup import Lookup
from xnagent.testing.prompt import Prompt

_LIKE: Final = 0.1
"""Share of the prompt that a slot must have in common to be chosen for it (`--slot-prompt-similarity`)."""


@dataclass(slots=True)
class _Slot:
    data: bytes = b""
    answer: bytes = b""
    """Digest of the answer behind the prompt."""
    used: int = 0


@dataclass(slots=True, kw_only=True)
class SlotStore:
    """So many prompts; the one used longest ago gives way."""

    count: int
    token_bytes: int
    _slots: list[_Slot] = field(default_factory=list)
    _turn: int = 0

    def look_up(self, prompt: Prompt, now: float) -> Lookup:
        """What the chosen slot has in common with the prompt; at least one token is always read anew."""
        self._turn += 1
        slot = self._choose(prompt)
        length = _common(slot, prompt)
        slot.data, slot.answer, slot.used = prompt.scope + prompt.data, b"", self._turn
        return Lookup(cached_bytes=min(length, max(0, len(prompt.data) - self.token_bytes)))

    def add_output(self, prompt: Prompt, digest: bytes, *, now: float) -> None:
        """The slot keeps the answer too."""
        data = prompt.scope + prompt.data
        for slot in self._slots:
            if slot.data == data:
                slot.answer = digest

    def _choose(self, prompt: Prompt) -> _Slot:
        self._slots = self._slots or [_Slot() for _ in range(self.count)]
        if prompt.slot is not None and prompt.slot < self.count:
            return self._slots[prompt.slot]
        best = max(self._slots, key=lambda slot: _common(slot, prompt))
        if _common(best, prompt) > _LIKE * len(prompt.data):
            return best
        return min(self._slots, key=lambda slot: slot.used)


def _common(slot: _Slot, prompt: Prompt) -> int:
    data = prompt.scope + prompt.data
    same = _common_bytes(slot.data, data)
    length = max(0, same - len(prompt.scope))
    if slot.answer and same == len(slot.data):
        length = next(
            (end for begin, end, digest in prompt.turns() if (begin, digest) == (length, slot.answer)), length
        )
    return length


def _common_bytes(first: bytes, second: bytes) -> int:
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low
