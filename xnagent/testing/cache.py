"""A simulated prefix cache, and the usage that a provider with such a cache would report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from xnagent.core.text import Json
from xnagent.testing.received import Received

Order = Literal["tools-system-messages", "system-tools-messages"]
Dialect = Literal["openai", "deepseek", "llama.cpp", "none"]

_MESSAGES: Final = b'"messages":['


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """How the provider caches and reports."""

    block_tokens: int = 64
    bytes_per_token: int = 4
    visible_after_seconds: float = 0.0
    """How long a written block cannot be read."""
    minimum_tokens: int = 0
    """Shorter hits count as none."""
    order: Order = "tools-system-messages"
    """In which order the prompt is made of the request."""
    units: Literal["blocks", "requests"] = "blocks"
    """What can be read: any block, or (DeepSeek) only up to where a request ended or two were seen to part."""
    dialect: Dialect = "openai"
    """In which fields usage is reported."""


@dataclass(slots=True, kw_only=True)
class Books:
    """Totals of the whole answers, to compare with a client's ledger."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, prompt: int, cached: int, *, output: int) -> None:
        """Count one whole answer."""
        self.requests += 1
        self.input_tokens += prompt
        self.cached_tokens += cached
        self.output_tokens += output


class PrefixCache:
    """Keeps a chained hash for each block of each prompt; the cost of a request is linear in its size."""

    def __init__(self, rules: CacheRules, clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock
        self._written: dict[bytes, float] = {}
        """Chained hash of a readable prefix, and since when it is there."""
        self._seen: set[bytes] = set()

    def take(self, request: Received) -> tuple[int, int]:
        """Tokens of the prompt, and how many of them were read from the cache; then the prompt is cached."""
        prompt = prompt_bytes(request, self._rules.order)
        chain = self._chain(prompt)
        hit = self._longest_hit(chain)
        self._write(chain)
        tokens = -(-len(prompt) // self._rules.bytes_per_token)
        cached = hit * self._rules.block_tokens
        return tokens, cached if cached >= self._rules.minimum_tokens else 0

    def _chain(self, prompt: bytes) -> list[bytes]:
        size = self._rules.block_tokens * self._rules.bytes_per_token
        chain, link = [], b""
        for start in range(0, len(prompt) - size + 1, size):
            link = hashlib.blake2b(link + prompt[start : start + size], digest_size=16).digest()
            chain.append(link)
        return chain

    def _longest_hit(self, chain: list[bytes]) -> int:
        now = self._clock()
        for length in range(len(chain), 0, -1):
            since = self._written.get(chain[length - 1])
            if since is not None and now - since >= self._rules.visible_after_seconds:
                return length
        return 0

    def _write(self, chain: list[bytes]) -> None:
        now = self._clock()
        common = next((n for n, link in enumerate(chain) if link not in self._seen), len(chain))
        readable = chain if self._rules.units == "blocks" else [*chain[common - 1 : common], *chain[-1:]]
        for link in readable:
            self._written.setdefault(link, now)
        self._seen.update(chain)


def prompt_bytes(request: Received, order: Order) -> bytes:
    """The request as the model reads it: tools, system and messages, in the provider's order."""
    tools = json.dumps(request.data.get("tools") or []).encode()
    start = request.body.find(_MESSAGES)
    messages = request.open_bytes[start + len(_MESSAGES) :] if start >= 0 else b""
    if order == "tools-system-messages" or not request.messages or request.messages[0].get("role") != "system":
        return tools + messages
    text = messages.decode()
    _, end = json.JSONDecoder().raw_decode(text)
    return text[:end].encode() + tools + text[end:].encode()


def report_usage(
    dialect: Dialect, *, prompt: int, cached: int, completion: int, reasoning: int
) -> dict[str, dict[str, Json]]:
    """The fields that carry usage, by their name at the top of the last chunk: `usage`, or `timings` beside it."""
    totals: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    match dialect:
        case "openai":
            return {"usage": {**totals, "prompt_tokens_details": {"cached_tokens": cached}, **details}}
        case "deepseek":
            shares = {"prompt_cache_hit_tokens": cached, "prompt_cache_miss_tokens": prompt - cached}
            return {"usage": {**totals, **shares, **details}}
        case "llama.cpp":
            timings = {"cache_n": cached, "prompt_n": prompt - cached, "predicted_n": completion}
            return {"usage": totals, "timings": timings}
        case "none":
            return {}
