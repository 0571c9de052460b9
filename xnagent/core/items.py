"""What a spine is made of: provider-neutral history items.

A *group* is what one event adds to a spine: a message, a whole reply (reasoning, text, calls), or all the results of
one reply. Groups are closed: a spine that ends with a group that makes no calls is valid on every wire.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal, TypeAlias

from xnagent.core.ids import CallId
from xnagent.core.values import dataclass

Origin = Literal["user", "task", "state", "harness", "project"]
"""Who speaks in a user message: the person, the Planner's brief, the state, xnagent itself, or files of the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserText:
    """A message to the model."""

    text: str
    origin: Origin
    kind: Literal["user_text"] = "user_text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """The model's reasoning, kept verbatim and sent back only to the wire and the model that made it (B054)."""

    wire: str
    """`chat`, `responses` or `messages`: only this one can read the payload."""
    payload: str
    """Exactly what has to be sent back."""
    model: str = ""
    """The model that made it; empty: unknown (a log from before this was kept), then any model gets it."""
    kind: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantText:
    """Text that the model wrote."""

    text: str
    kind: Literal["assistant_text"] = "assistant_text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The model asks for a tool."""

    call_id: CallId
    """Unique in the spine and not empty, whatever the provider sent."""
    name: str
    arguments: str
    """The bytes that the model wrote, never parsed and dumped again."""
    kind: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to one call."""

    call_id: CallId
    text: str
    is_error: bool = False
    kind: Literal["tool_result"] = "tool_result"


Item: TypeAlias = UserText | Reasoning | AssistantText | ToolCall | ToolResult
ReplyItem: TypeAlias = Reasoning | AssistantText | ToolCall


def made_by(model: str, items: Iterable[ReplyItem]) -> tuple[ReplyItem, ...]:
    """The reply with the name of its model on its reasoning."""
    return tuple(replace(item, model=model) if isinstance(item, Reasoning) else item for item in items)


def calls_of(items: Iterable[Item]) -> tuple[ToolCall, ...]:
    """The tool calls among the items, in order."""
    return tuple(item for item in items if isinstance(item, ToolCall))


def with_unique_ids(items: Iterable[ReplyItem], used: Collection[str]) -> tuple[ReplyItem, ...]:
    """The reply with call ids that are not empty and not used before; ids that already are so stay as they are (B005).

    The choice depends on the reply and on the ids in use alone, so a resent or replayed reply gets the same ids.
    """
    added: set[str] = set()
    unique: list[ReplyItem] = []
    for item in items:
        new = item
        if isinstance(item, ToolCall):
            call_id = _free_id(item.call_id, (used, added))
            added.add(call_id)
            new = item if call_id == item.call_id else replace(item, call_id=CallId(call_id))
        unique.append(new)
    return tuple(unique)


def _free_id(wanted: str, taken: Iterable[Collection[str]]) -> str:
    if wanted and not any(wanted in ids for ids in taken):
        return wanted
    stem = wanted or "call"
    return next(name for name in (f"{stem}_x{n}" for n in count(2)) if not any(name in ids for ids in taken))


def text_of(items: Iterable[Item]) -> str:
    """The assistant text among the items, joined."""
    return "".join(item.text for item in items if isinstance(item, AssistantText))


def closed_groups(items: Sequence[Item]) -> tuple[tuple[Item, ...], ...]:
    """Cut the items into the smallest pieces that are each valid alone: a message, or a reply with its results."""
    groups: list[tuple[Item, ...]] = []
    current: list[Item] = []
    for item in items:
        starts_message = isinstance(item, UserText)
        starts_reply = isinstance(item, Reasoning | AssistantText | ToolCall) and (
            not current or isinstance(current[-1], UserText | ToolResult)
        )
        if current and (starts_message or starts_reply):
            groups.append(tuple(current))
            current = []
        current.append(item)
    if current:
        groups.append(tuple(current))
    return tuple(groups)


def is_balanced(items: Sequence[Item]) -> bool:
    """Whether every call has exactly one result right after the reply that made it, in the order of the calls (I3)."""
    seen: set[CallId] = set()
    for group in closed_groups(items):
        calls = [item.call_id for item in group if isinstance(item, ToolCall)]
        results = [item.call_id for item in group if isinstance(item, ToolResult)]
        if calls != results or seen.intersection(calls) or len(set(calls)) != len(calls):
            return False
        seen.update(calls)
    return True
