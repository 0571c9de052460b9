"""A simulated prefix cache: what each provider finds again of what it has read before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from xnagent.testing.blocks import BlockStore
from xnagent.testing.breakpoints import BreakpointStore
from xnagent.testing.lookup import Lookup
from xnagent.testing.prompt import Order, Prompt, digest_reply, ends_of, prompt_of, tokens_of
from xnagent.testing.received import Received
from xnagent.testing.script import ReplySpec
from xnagent.testing.slots import SlotStore

Dialect = Literal["openai", "deepseek", "llama.cpp", "anthropic", "none"]
Units = Literal["blocks", "requests", "breakpoints", "slots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """How the provider caches and reports."""

    block_tokens: int = 64
    bytes_per_token: int = 4
    visible_after_seconds: float = 0.0
    """How long what was written cannot be read."""
    minimum_tokens: int = 0
    """Shorter hits count as none; a mark on a shorter prefix writes nothing."""
    order: Order = "tools-system-messages"
    """In which order the prompt is made of the request."""
    units: Units = "blocks"
    """What can be read.

    `blocks`: any block; `requests` (DeepSeek): up to where a request or its answer ended, where two were seen to
    part, and each `interval_tokens`; `breakpoints` (Anthropic, OpenAI since 5.6): up to a mark; `slots` (llama.cpp):
    what a slot has in common with the prompt.
    """
    dialect: Dialect = "openai"
    """In which fields usage is reported."""
    lifetime_seconds: float = 0.0
    """How long after the newest read a block is kept, 0: for ever; marks have lifetimes of their own."""
    interval_tokens: int = 0
    """Distance of the units that long texts get by themselves (`requests`); 0: none."""
    look_back_blocks: int = 20
    """How many places a mark looks for a hit, itself included; 0: as many as there are."""
    has_implicit_mark: bool = False
    """Whether the end of the newest message is a mark (OpenAI)."""
    slots: int = 4
    """How many prompts are kept (`slots`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReading:
    """One request as the cache saw it, in tokens."""

    prompt: int
    cached: int = 0
    written_short: int = 0
    """Written for the shorter lifetime (5m, 30m)."""
    written_long: int = 0
    """Written for the longer one (1h, 12h)."""

    @property
    def written(self) -> int:
        """Written for any lifetime."""
        return self.written_short + self.written_long


@dataclass(slots=True, kw_only=True)
class Books:
    """Totals of the whole answers, to compare with a client's ledger."""

    requests: int = 0
    input_tokens: int = 0
    """With what was cached and written."""
    cached_tokens: int = 0
    output_tokens: int = 0
    """With reasoning."""
    written_tokens: int = 0
    written_long_tokens: int = 0
    """What of that was for the longer lifetime."""
    reasoning_tokens: int = 0

    def add(self, reading: CacheReading, *, output: int, reasoning: int) -> None:
        """Count one whole answer."""
        self.requests += 1
        self.input_tokens += reading.prompt
        self.cached_tokens += reading.cached
        self.written_tokens += reading.written
        self.written_long_tokens += reading.written_long
        self.output_tokens += output
        self.reasoning_tokens += reasoning


class _Store(Protocol):
    """Finds and keeps prompts; sizes in bytes."""

    def look_up(self, prompt: Prompt, now: float) -> Lookup:
        """What is there of a prompt; then it is kept."""
        ...

    def add_output(self, prompt: Prompt, digest: bytes, *, now: float) -> None:
        """The model has answered it."""
        ...


class PrefixCache:
    """Takes prompts in order; the cost of a request is linear in its size."""

    def __init__(self, rules: CacheRules, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._rules = rules
        self._clock = clock
        self._store = _store(rules)
        self._newest: tuple[Received, Prompt] | None = None

    def take(self, request: Received) -> tuple[int, int]:
        """Tokens of the prompt, and how many of them were read from the cache; then the prompt is cached."""
        reading = self.read(request)
        return reading.prompt, reading.cached

    def read(self, request: Received) -> CacheReading:
        """What the cache did for a request."""
        prompt = prompt_of(request, self._rules.order)
        self._newest = request, prompt
        found = self._store.look_up(prompt, self._clock())
        per_token, total = self._rules.bytes_per_token, len(prompt.data)
        is_exact = self._rules.units == "breakpoints"
        cached = tokens_of(found.cached_bytes, per_token) if is_exact else found.cached_bytes // per_token
        if cached < self._rules.minimum_tokens:
            cached = 0
        ends = ends_of(prompt.blocks)
        long_end, end = (tokens_of(ends[n], per_token) if n >= 0 else 0 for n in (found.long_mark, found.last_mark))
        end, tokens = max(end, long_end), tokens_of(total, per_token)
        long = max(0, long_end - cached)
        return CacheReading(
            prompt=tokens, cached=cached, written_long=long, written_short=max(0, end - max(long_end, cached))
        )

    def add_output(self, request: Received, spec: ReplySpec) -> None:
        """The model has answered: what it wrote is there for the next request that brings it back."""
        known = self._newest
        prompt = known[1] if known is not None and known[0] is request else prompt_of(request, self._rules.order)
        self._store.add_output(prompt, digest_reply(spec), now=self._clock())


def _store(rules: CacheRules) -> _Store:
    match rules.units:
        case "breakpoints":
            return BreakpointStore(
                minimum_bytes=rules.minimum_tokens * rules.bytes_per_token,
                look_back=rules.look_back_blocks,
                is_implicit=rules.has_implicit_mark,
                delay_seconds=rules.visible_after_seconds,
            )
        case "slots":
            return SlotStore(count=rules.slots, token_bytes=rules.bytes_per_token)
        case _:
            return BlockStore(
                block_bytes=rules.block_tokens * rules.bytes_per_token,
                interval_blocks=rules.interval_tokens // rules.block_tokens,
                has_units=rules.units == "requests",
                delay_seconds=rules.visible_after_seconds,
                lifetime_seconds=rules.lifetime_seconds,
            )
