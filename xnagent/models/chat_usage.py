"""The usage numbers of the Chat Completions wire, in the dialects of its providers. Absent is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from xnagent.core.tokens import Usage
from xnagent.core.values import dataclass

MOST_TOKENS: Final = 1 << 40
"""A larger count is no count."""


def read_usage(usage: Mapping[str, Any] | None, timings: Mapping[str, Any] | None = None) -> tuple[Usage, str]:
    """The numbers, and what was odd about them.

    Without usable numbers the usage is marked as estimated and what is unknown is None: the caller fills it in.
    `timings` is what llama.cpp sends beside or instead of `usage`.
    """
    numbers = _Numbers.of(usage or {}, timings or {})
    if numbers.total_input is None:
        note = "the provider sent no usage" if not (usage or timings) else "the provider's usage has no input tokens"
        return Usage(output_tokens=numbers.output, is_estimated=True), note
    total, notes = numbers.total_input, []
    if numbers.cached is not None and numbers.cached > total:
        notes.append(f"cached tokens ({numbers.cached}) are not part of the input ({total}); added")
        total += numbers.cached + (numbers.written or 0)
    output, note = numbers.checked_output()
    notes += [note] if note else []
    read = Usage(
        input_tokens=total,
        cached_tokens=numbers.cached,
        cache_write_tokens=numbers.written,
        cache_write_short_tokens=numbers.written_short,
        cache_write_long_tokens=numbers.written_long,
        output_tokens=output,
        reasoning_tokens=numbers.reasoning,
        is_estimated=output is None,
    )
    return read, "; ".join(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """The fields that a provider may send; the first known name wins."""

    total_input: int | None
    cached: int | None
    written: int | None
    written_short: int | None
    written_long: int | None
    output: int | None
    reasoning: int | None
    total: int | None

    @staticmethod
    def of(usage: Mapping[str, Any], timings: Mapping[str, Any]) -> _Numbers:
        """Read them."""
        prompt = _part(usage, "prompt_tokens_details", "input_tokens_details")
        completion = _part(usage, "completion_tokens_details", "output_tokens_details")
        by_lifetime = _part(prompt, "cache_write_tokens_details")
        hit, miss = _count(usage, "prompt_cache_hit_tokens"), _count(usage, "prompt_cache_miss_tokens")
        evaluated, reused = _count(timings, "prompt_n"), _count(timings, "cache_n")
        total_input = _first(
            _count(usage, "prompt_tokens", "input_tokens"),
            None if hit is None or miss is None else hit + miss,
            None if evaluated is None else evaluated + (reused or 0),
        )
        cached = _first(
            _count(prompt, "cached_tokens"), hit, _count(usage, "cached_tokens", "cache_read_input_tokens"), reused
        )
        return _Numbers(
            total_input=total_input or None,
            cached=cached,
            written=_first(
                _count(prompt, "cache_write_tokens"),
                _sum(by_lifetime),
                _count(usage, "cache_creation_input_tokens"),
            ),
            written_short=_count(by_lifetime, "ttl_30m_tokens"),
            written_long=_count(by_lifetime, "ttl_12h_tokens"),
            output=_first(_count(usage, "completion_tokens", "output_tokens"), _count(timings, "predicted_n")),
            reasoning=_first(_count(completion, "reasoning_tokens"), _count(usage, "reasoning_tokens")),
            total=_count(usage, "total_tokens"),
        )

    def checked_output(self) -> tuple[int | None, str]:
        """All output with reasoning counted once, and what was wrong with the numbers (B070)."""
        output, reasoning = self.output, self.reasoning or 0
        rest = None if self.total is None or self.total_input is None else self.total - self.total_input
        if output is None:
            return (rest, "output tokens taken from the total") if rest and rest > 0 else (None, "no output tokens")
        if rest == output + reasoning and reasoning > 0:
            return rest, f"reasoning ({reasoning}) is not part of the output ({output}); total says {rest}"
        if reasoning > output:
            return output + reasoning, f"reasoning ({reasoning}) exceeds the output ({output}); added"
        return output, ""


def _part(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        if isinstance(part := usage.get(name), dict):
            return part
    return {}


def _count(source: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        if name in source and (count := token_count(source[name])) is not None:
            return count
    return None


def token_count(value: object) -> int | None:
    """A number of tokens as a provider sends it; None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MOST_TOKENS and value == value // 1 else None


def _sum(parts: Mapping[str, Any]) -> int | None:
    """Of what a provider splits by lifetime."""
    counts = map(token_count, parts.values())
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
