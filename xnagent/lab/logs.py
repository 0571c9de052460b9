"""The product's own sessions as recordings: each agent's spine is a thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xnagent.core.events import Event, Stored
from xnagent.core.ids import AgentId, owner_of, role_of
from xnagent.core.items import AssistantText, Reasoning, ReplyItem, ToolCall, UserText
from xnagent.core.spine_events import (
    ManifestRecorded,
    ReplyReceived,
    ResultOffloaded,
    SpineExtended,
    SpineRebased,
    ToolFinished,
)
from xnagent.core.tokens import Usage
from xnagent.lab.fields import seconds_of
from xnagent.lab.messages import Call, Message, thread_of
from xnagent.lab.threads import Recorded, Run


def run_of(events: Iterable[Stored], *, name: str) -> Run:
    """The session as a run: its work, without what was asked for summaries of it."""
    messages: dict[AgentId, list[Message]] = {}
    heads: dict[str, int] = {}
    for stored in events:
        event = stored.event
        if isinstance(event, ManifestRecorded):
            heads.setdefault(event.role, event.head_tokens)
        elif (
            isinstance(event, SpineExtended | SpineRebased | ReplyReceived | ToolFinished | ResultOffloaded)
            and owner_of(event.agent) == event.agent
        ):
            _put(messages.setdefault(event.agent, []), event, at=seconds_of(stored.at))
    threads = (
        thread_of(told, run=name, agent=agent, head_tokens=heads.get(role_of(agent), 0))
        for agent, told in messages.items()
    )
    return Run(name=name, client="xnagent", threads=tuple(thread for thread in threads if thread.steps))


def _put(messages: list[Message], event: Event, *, at: float | None) -> None:
    if isinstance(event, ResultOffloaded):
        _shorten(messages, event)
    else:
        messages.extend(_messages(event, at))


def _shorten(messages: list[Message], event: ResultOffloaded) -> None:
    """A result of the step that is not complete yet stands in the spine in short."""
    for number, message in enumerate(messages):
        if message.kind == "result" and message.call_id == event.call_id:
            messages[number] = Message(kind="result", text=event.text, call_id=event.call_id)


def _messages(event: Event, at: float | None) -> Iterator[Message]:
    match event:
        case SpineExtended():
            yield from (Message(kind="user", text=item.text) for item in event.items if isinstance(item, UserText))
        case SpineRebased():
            yield Message(kind="compaction")
        case ReplyReceived():
            yield _reply(event.items, usage=event.usage, at=at)
        case ToolFinished():
            yield Message(kind="result", text=event.text, call_id=event.call_id)
        case _:
            return


def _reply(items: Iterable[ReplyItem], *, usage: Usage, at: float | None) -> Message:
    items = tuple(items)
    return Message(
        kind="reply",
        text="".join(item.text for item in items if isinstance(item, AssistantText)),
        reasoning="".join(item.payload for item in items if isinstance(item, Reasoning)),
        calls=[
            Call(call_id=item.call_id, name=item.name, arguments=item.arguments)
            for item in items
            if isinstance(item, ToolCall)
        ],
        recorded=_recorded(usage),
        at=at,
    )


def _recorded(usage: Usage) -> Recorded | None:
    if usage.input_tokens is None or usage.is_estimated:
        return None
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
    return Recorded(
        fresh=usage.input_tokens - cached - written,
        cached=cached,
        written=written,
        written_long=min(usage.cache_write_long_tokens or 0, written),
        output=usage.output_tokens or 0,
    )
