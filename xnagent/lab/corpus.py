"""Recorded runs in the corpus' schema: one object a line, with the messages of all its agents in time order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xnagent.core.text import Json
from xnagent.core.tokens import estimate_head, estimate_text
from xnagent.lab.fields import Fields, count_at, list_at, object_at, seconds_of, text_at
from xnagent.lab.messages import Call, Message, thread_of
from xnagent.lab.threads import Recorded, Run, Thread

SUMMARISER: Final = "acompact"
"""Agents of that name are the recorded client's own summaries (Claude Code), no work."""
COMPACTIONS: Final = frozenset({"compaction", "opaque_compaction_item"})


def is_corpus(record: Fields) -> bool:
    """Whether a record looks like a run in this schema."""
    return isinstance(record.get("messages"), list)


def run_of(record: Fields) -> Run:
    """The run with its threads; those without a model call are left out."""
    name = text_at(record, "id")
    sorted_out: dict[str, list[Fields]] = {}
    for message in list_at(record, "messages"):
        agent = text_at(message, "agent_id")
        if not agent.startswith(SUMMARISER):
            sorted_out.setdefault(agent, []).append(message)
    threads = (_thread(messages, record, name=name, agent=agent) for agent, messages in sorted_out.items())
    return Run(name=name, client=text_at(record, "agent"), threads=tuple(one for one in threads if one.steps))


def _thread(messages: list[Fields], record: Fields, *, name: str, agent: str) -> Thread:
    """Of the main agent the head is known, as far as it was recorded; sub-agents have heads of their own."""
    head = _head(record) if not agent else 0
    system = sum(estimate_text(text_at(one, "content")) for one in messages if one.get("role") == "system")
    return thread_of(_messages(messages), run=name, agent=agent, head_tokens=max(head, system))


def _head(record: Fields) -> int:
    tools = record.get("tools")
    count = len(tools) if isinstance(tools, list) else 0
    return estimate_head(text_at(record, "system"), text_at(record, "tools"), tool_count=count)


def _messages(messages: list[Fields]) -> Iterator[Message]:
    for message in messages:
        role, kind = message.get("role"), text_at(message, "kind")
        if role == "user":
            is_summary = kind == "compaction_summary"
            is_of_client = bool(kind)
            yield Message(
                kind="user", text=text_at(message, "content"), is_of_client=is_of_client, is_summary=is_summary
            )
        elif role == "assistant":
            yield _reply(message)
        elif role == "tool":
            yield Message(kind="result", text=text_at(message, "content"), call_id=text_at(message, "tool_call_id"))
        elif role == "marker" and text_at(message, "event") in COMPACTIONS:
            yield Message(kind="compaction")


def _reply(message: Fields) -> Message:
    return Message(
        kind="reply",
        text=text_at(message, "content"),
        reasoning=text_at(message, "reasoning"),
        calls=[_call(call) for call in list_at(message, "tool_calls")],
        recorded=_recorded(message.get("usage")),
        at=seconds_of(text_at(message, "timestamp")),
    )


def _call(call: Fields) -> Call:
    return Call(call_id=text_at(call, "id"), name=text_at(call, "name"), arguments=text_at(call, "arguments"))


def _recorded(usage: Json) -> Recorded | None:
    if not isinstance(usage, dict):
        return None
    fields = object_at({"usage": usage}, "usage")
    recorded = Recorded(
        fresh=count_at(fields, "input"),
        cached=count_at(fields, "cached_read"),
        written=count_at(fields, "cache_write"),
        written_long=count_at(fields, "cache_write_1h"),
        output=count_at(fields, "output"),
    )
    return recorded if recorded.prompt else None
