"""How many tokens something is: an estimate for what is new, anchored on what the provider reported."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Final, assert_never

from xnagent.core.evolve import evolve
from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.values import dataclass

PER_MESSAGE: Final = 8
PER_CALL: Final = 12
PER_TOOL: Final = 30
PER_CHARACTER: Final = 0.3
PER_CJK_CHARACTER: Final = 0.6
_CJK: Final = re.compile("[\u2e80-\U0010ffff]")

MOST_SHARE: Final = 1 / PER_CHARACTER
"""So many tokens can one estimated token turn out to be: no tokenizer makes more than one of a plain character."""
PLAUSIBLE_FROM: Final = 0.25
PLAUSIBLE_TO: Final = 4.0
ALWAYS_TRUSTED_TOKENS: Final = 500
WEIGHED_PAIRS: Final = 8
"""The newest of so many requests weighs an eighth: the ratio follows, and no single report moves it far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one request used, in tokens, as disjoint as the provider lets it be. None is unknown, never 0."""

    input_tokens: int | None = None
    """All input: uncached, read from a cache, and written to one."""
    cached_tokens: int | None = None
    """The part of the input that was read from a cache."""
    cache_write_tokens: int | None = None
    """The part of the input that was written to a cache at a price of its own, for whatever lifetime."""
    cache_write_short_tokens: int | None = None
    """What of the written part lives for the shorter lifetime; None: the provider does not split it."""
    cache_write_long_tokens: int | None = None
    """What of it lives for the longer one, which may cost more; the two are disjoint."""
    output_tokens: int | None = None
    """All output, reasoning included."""
    reasoning_tokens: int | None = None
    """The part of the output that was reasoning."""
    is_estimated: bool = False
    """The provider gave no usable numbers; these are ours."""


COUNTED: Final = tuple(field.name for field in fields(Usage) if field.name != "is_estimated")
"""The fields that are numbers of tokens."""


def add_usage(left: Usage, right: Usage) -> Usage:
    """The sum; a number that either side knows is kept, unknown plus unknown stays unknown."""
    return evolve(
        left,
        input_tokens=_plus(left.input_tokens, right.input_tokens),
        cached_tokens=_plus(left.cached_tokens, right.cached_tokens),
        cache_write_tokens=_plus(left.cache_write_tokens, right.cache_write_tokens),
        cache_write_short_tokens=_plus(left.cache_write_short_tokens, right.cache_write_short_tokens),
        cache_write_long_tokens=_plus(left.cache_write_long_tokens, right.cache_write_long_tokens),
        output_tokens=_plus(left.output_tokens, right.output_tokens),
        reasoning_tokens=_plus(left.reasoning_tokens, right.reasoning_tokens),
        is_estimated=left.is_estimated or right.is_estimated,
    )


def _plus(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right


def estimate_text(text: str) -> int:
    """0.6 tokens for each character from U+2E80 on, 0.3 for each other one."""
    return round(estimate_part(text))


def estimate_part(text: str) -> float:
    """The same, not rounded: what a text adds to the estimate of the one that it is a part of."""
    if text.isascii():
        return len(text) * PER_CHARACTER
    cjk = sum(1 for _ in _CJK.finditer(text))
    return cjk * PER_CJK_CHARACTER + (len(text) - cjk) * PER_CHARACTER


def estimate_item(item: Item) -> int:
    """Tokens of one item with its share of the protocol's overhead."""
    match item:
        case UserText() | AssistantText():
            return PER_MESSAGE + estimate_text(item.text)
        case ToolResult():
            return PER_MESSAGE + estimate_text(item.text)
        case Reasoning():
            return estimate_text(item.payload)
        case ToolCall():
            return PER_CALL + estimate_text(item.name) + estimate_text(item.arguments)
        case _:
            assert_never(item)


def estimate_items(items: Iterable[Item]) -> int:
    """Tokens of all the items."""
    return sum(map(estimate_item, items))


def estimate_head(system: str, tools: str, *, tool_count: int) -> int:
    """Tokens of what stands before the history: system text and tool definitions."""
    return PER_MESSAGE + estimate_text(system) + estimate_text(tools) + PER_TOOL * tool_count


def is_plausible(reported: int, estimated: int) -> bool:
    """Whether a reported size may anchor the next estimate: within 0.25 × to 4 ×, small ones always."""
    if estimated <= ALWAYS_TRUSTED_TOKENS:
        return True
    return PLAUSIBLE_FROM * estimated <= reported <= PLAUSIBLE_TO * estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a model counts for one estimated token, from reports and estimates of the same requests (T8)."""

    ratio: float = 1.0
    pairs: int = 0
    """How many requests it is from."""


def calibrate(known: Calibration, *, reported: int | None, estimated: int) -> Calibration:
    """The ratio with one more pair.

    `estimated` is the estimate of all that was sent, without any report in it. A pair that is not plausible, or too
    small to say something, changes nothing; so the ratio stays within what is plausible.
    """
    if reported is None or estimated <= ALWAYS_TRUSTED_TOKENS or not is_plausible(reported, estimated):
        return known
    weight = 1 / min(known.pairs + 1, WEIGHED_PAIRS)
    ratio = known.ratio + weight * (reported / estimated - known.ratio)
    return Calibration(ratio=ratio, pairs=known.pairs + 1)
