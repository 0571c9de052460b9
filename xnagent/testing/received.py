"""What a scripted server receives: a request taken apart, and the rules it must keep."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from xnagent.testing.prefix import Prefix, marked_prefix, plain_prefix, without_markers
from xnagent.testing.reading import Wire, read_messages
from xnagent.testing.script import Role

CHECKPOINT_MARK: Final = "<checkpoint"
SUMMARY_MARK: Final = "<summary_request"
PROJECT: Final = re.compile(r"<project>\n.*\n</project>", re.DOTALL)
"""The message with instructions and skills that all agents have in common."""
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})


@dataclass(frozen=True)
class Received:
    """One request."""

    body: bytes
    wire: Wire = "chat"

    @cached_property
    def data(self) -> dict[str, Any]:
        """The parsed body. Raises ValueError or TypeError if it is no JSON object."""
        parsed = json.loads(self.body)
        if not isinstance(parsed, dict):
            raise TypeError("the body is no JSON object")
        return parsed

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """Its messages, in chat form."""
        return read_messages(self.wire, self.data)

    @cached_property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools on offer."""
        return tuple(tool.get("function", tool).get("name", "") for tool in self.data.get("tools") or ())

    @property
    def role(self) -> Role:
        """Whoever may delegate is the Planner."""
        return "planner" if "delegate" in self.tools else "worker"

    @cached_property
    def head_count(self) -> int:
        """Messages up to and including the first one of the user; what a project brings along stands before it."""
        return next((n for n, m in enumerate(self.messages, 1) if _is_first(m)), len(self.messages))

    @cached_property
    def first_user(self) -> str:
        """Text of the first user message."""
        return text_of(self.messages[self.head_count - 1]) if self.messages else ""

    @cached_property
    def conversation(self) -> str:
        """Name of the conversation: what does not change over its requests."""
        head = json.dumps([without_markers(message) for message in self.messages[: self.head_count]], sort_keys=True)
        return hashlib.sha256(f"[{head}]".encode()).hexdigest()[:16]

    @property
    def has_reply(self) -> bool:
        """Whether the model has said something in it."""
        return any(message.get("role") == "assistant" for message in self.messages)

    @property
    def is_rebased(self) -> bool:
        """Whether the message after the first user message is a checkpoint."""
        after = self.messages[self.head_count : self.head_count + 1]
        return bool(after) and CHECKPOINT_MARK in text_of(after[0])

    @cached_property
    def prefix(self) -> Prefix:
        """What the next request must begin with."""
        return marked_prefix(self.data) if self.wire == "messages" else plain_prefix(self.body, self.data)

    def extends(self, earlier: Received) -> bool:
        """Whether it begins with an earlier request and goes on behind it, or is the same.

        By bytes; on the Messages wire by content without cache markers, which move.
        """
        return self.body == earlier.body or self.prefix.extends(earlier.prefix)

    def keeps_head_of(self, earlier: Received) -> bool:
        """Whether everything up to the first user message is the same."""
        return self.prefix.keeps_head_of(earlier.prefix)


def is_aside(request: Received) -> bool:
    """Whether it asks for a summary of the history: what comes next need not hold that question."""
    heard = [message for message in request.messages if message.get("role") == "user"]
    return any(SUMMARY_MARK in text_of(message) for message in heard[-2:])


def _is_first(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "user" and not PROJECT.fullmatch(text_of(message))


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whichever way its content is written."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def new_text(request: Received, answered: Received | None) -> str:
    """What the user and the tools say that the last answered request did not hold."""
    before = answered.messages if answered is not None else []
    if answered is not None and request.extends(answered):
        fresh = request.messages[len(before) :]
    else:
        known = {json.dumps(message, sort_keys=True) for message in before}
        fresh = [message for message in request.messages if json.dumps(message, sort_keys=True) not in known]
    return "\n".join(text_of(message) for message in fresh if message.get("role") in {"user", "tool"})


def pairing_problems(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is wrong with roles, calls and results (I3): each call one result, right after it, in order, ids unique."""
    seen: set[str] = set()
    waiting: list[str] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in _ROLES:
            yield f"message {number} has role {role!r}"
        if role == "tool":
            expected = waiting.pop(0) if waiting else None
            if message.get("tool_call_id") != expected:
                yield f"message {number} is the result of {message.get('tool_call_id')!r}, expected {expected!r}"
        elif waiting:
            yield f"message {number} ({role}) stands before the results of {waiting}"
            waiting = []
        if role == "assistant":
            waiting = _ids(message)
            yield from _id_problems(number, waiting, seen=seen)
    if waiting:
        yield f"no results of {waiting} at the end"


def _ids(message: Mapping[str, Any]) -> list[str]:
    return [call.get("id") or "" for call in message.get("tool_calls") or ()]


def _id_problems(number: int, ids: Sequence[str], *, seen: set[str]) -> Iterator[str]:
    for call_id in ids:
        if not call_id:
            yield f"message {number} has a call without an id"
        elif call_id in seen:
            yield f"message {number} uses the id {call_id!r} again"
        seen.add(call_id)


def reasoning_problems(messages: Sequence[Mapping[str, Any]], sent: Mapping[str, str]) -> Iterator[str]:
    """Calls whose reasoning did not come back as it was sent (M122); `sent` is the reasoning by call id."""
    for number, message in enumerate(messages):
        for call_id in _ids(message):
            if call_id in sent and message.get("reasoning_content") != sent[call_id]:
                yield f"message {number} made the call {call_id!r} and lacks its reasoning_content"
