"""The parts of a request in the order in which the model reads them, and what a cache served of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, assert_never

from xnagent.core.ids import CallId
from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText

CacheState = Literal["cached", "partly", "fresh", "not sent", "unknown"]
"""`partly`: the cache's part ends in it. `not sent`: no answered request of this lineage held it."""

CHECKPOINT_BEGINS: Final = "<checkpoint"
DELTA_BEGINS: Final = "<state_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What became of one part."""

    tokens: int
    """Its share of what was reported of the whole; where nothing was, its estimate."""
    cached_tokens: int | None
    """None: the provider did not say."""
    cache: CacheState


def served(estimates: Sequence[int], *, reported: int | None, cached: int | None) -> list[Served]:
    """What a cache served of parts with these estimates, one after the other; a cache serves a beginning.

    `reported` is the input of the whole, `cached` what of it came from the cache; their shares add up to them.
    """
    whole = sum(estimates)
    input_tokens = whole if reported is None else reported
    ends = [round(end * input_tokens / whole) if whole else 0 for end in accumulate(estimates)]
    return [_served(begin, end, cached=cached) for begin, end in zip([0, *ends], ends, strict=False)]


def _served(begin: int, end: int, *, cached: int | None) -> Served:
    if cached is None:
        return Served(tokens=end - begin, cached_tokens=None, cache="unknown")
    part = min(end, max(begin, cached)) - begin
    return Served(tokens=end - begin, cached_tokens=part, cache=_state(end - begin, part, is_before=begin < cached))


def _state(tokens: int, cached: int, *, is_before: bool) -> CacheState:
    if cached == tokens and is_before:
        return "cached"
    return "partly" if cached else "fresh"


def names_of_calls(items: Iterable[Item]) -> Mapping[CallId, str]:
    """The tool of each call among the items."""
    return {item.call_id: item.name for item in items if isinstance(item, ToolCall)}


def what_of(item: Item, index: int, *, head: int, tools: Mapping[CallId, str]) -> str:
    """What an item of a spine is, for people; `head` is how many first items no rebase replaces."""
    match item:
        case UserText():
            return _message(item, is_first=index < head)
        case AssistantText():
            return "reply"
        case Reasoning():
            return "reasoning"
        case ToolCall():
            return f"call of {item.name}"
        case ToolResult():
            return f"result of {tools.get(item.call_id, '?')}"
        case _:
            assert_never(item)


def _message(item: UserText, *, is_first: bool) -> str:
    match item.origin:
        case "project":
            return "project instructions"
        case "user":
            return "objective" if is_first else "message of the user"
        case "task":
            return "brief" if is_first else "message of the Planner"
        case "harness":
            return "note of xnagent"
        case "state":
            return _state_message(item.text)
        case _:
            assert_never(item.origin)


def _state_message(text: str) -> str:
    if text.startswith(CHECKPOINT_BEGINS):
        return "checkpoint"
    return "delta" if text.startswith(DELTA_BEGINS) else "baseline"
