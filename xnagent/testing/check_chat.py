"""What OpenAI, DeepSeek and llama.cpp refuse in a Chat Completions request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from xnagent.testing.check_ids import openai_id
from xnagent.testing.check_schema import openai_tools
from xnagent.testing.providers import Provider
from xnagent.testing.refusal import Refusal

_ROLES: Final = ("system", "assistant", "user", "function", "tool", "developer")
_MOST_ID_LETTERS: Final = 40
_REASONING_MISSING: Final = "The `reasoning_content` in the thinking mode must be passed back to the API."

_LLAMA_FIELDS: Final = ("cache_prompt", "id_slot", "return_progress", "slots")
"""Of llama.cpp, but the last: that is an option of ours that nobody is to see."""

Message = Mapping[str, Any]


def check_chat(data: Mapping[str, Any], *, provider: Provider) -> Iterator[Refusal]:
    """Everything wrong, in the order in which it would be found."""
    yield from _foreign_fields(data, family=provider.family)
    messages = data.get("messages")
    if not isinstance(messages, list):
        yield Refusal(
            message="Missing required parameter: 'messages'.", code="missing_required_parameter", param="messages"
        )
        return
    if not messages:
        yield Refusal(
            message="Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array "
            "instead.",
            code="empty_array",
            param="messages",
        )
    if provider.alternates:
        yield from _alternation(messages)
    for number, message in enumerate(messages):
        yield from _message(number, message)
        if provider.family == "llama.cpp":
            yield from _unread_arguments(message)
    yield from _pairs(messages, family=provider.family)
    yield from openai_tools(data.get("tools"), is_flat=False)


def check_reasoning(
    data: Mapping[str, Any], *, calls: Mapping[str, str], texts: Mapping[str, set[str]]
) -> Iterator[Refusal]:
    """DeepSeek: with tools on offer, the reasoning of each turn comes back as it was given.

    `calls` is the reasoning by id of a call, `texts` by text of a turn without calls.
    """
    thinking = data.get("thinking") or {}
    if not data.get("tools") or thinking.get("type") == "disabled":
        return
    for message in data.get("messages") or ():
        if message.get("role") != "assistant":
            continue
        ids = [call.get("id") for call in message.get("tool_calls") or ()]
        expected = {calls[one] for one in ids if one in calls}
        if not ids:
            expected = texts.get(message.get("content") or "", set())
        if expected and message.get("reasoning_content") not in expected:
            yield Refusal(message=_REASONING_MISSING)


def _foreign_fields(data: Mapping[str, Any], *, family: str) -> Iterator[Refusal]:
    """llama.cpp passes over what it does not know; the others are asked nothing that they do not know."""
    known = _LLAMA_FIELDS[:-1] if family == "llama.cpp" else ()
    for name in (name for name in _LLAMA_FIELDS if name in data and name not in known):
        yield Refusal(message=f"Unrecognized request argument supplied: {name}")


def _alternation(messages: Sequence[Message]) -> Iterator[Refusal]:
    """As chat templates say it."""
    roles = [message.get("role") for message in messages if message.get("role") not in {"system", "developer", "tool"}]
    pairs = pairwise(roles)
    if roles[:1] == ["assistant"] or any(first == second == "user" for first, second in pairs):
        yield Refusal(
            message="Conversation roles must alternate user/assistant/user/assistant/...",
            status=500,
            type="server_error",
        )


def _message(number: int, message: Message) -> Iterator[Refusal]:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if role not in _ROLES:
        listed = ", ".join(repr(one) for one in _ROLES[:-1])
        yield Refusal(
            message=f"Invalid value: {role!r}. Supported values are: {listed}, and {_ROLES[-1]!r}.",
            code="invalid_value",
            param=f"messages[{number}].role",
        )
    if content is None and calls is None:
        yield Refusal(
            message="Invalid value for 'content': expected a string, got null.", param=f"messages.[{number}].content"
        )
    if calls == []:
        yield Refusal(
            message=f"Invalid 'messages[{number}].tool_calls': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            code="empty_array",
            param=f"messages[{number}].tool_calls",
        )
    for place, call in enumerate(calls or ()):
        yield from openai_id(
            f"messages[{number}].tool_calls[{place}].id", call.get("id"), most_letters=_MOST_ID_LETTERS
        )
        yield from _call_function(f"messages[{number}].tool_calls[{place}].function", call.get("function") or {})


def _call_function(where: str, function: Mapping[str, Any]) -> Iterator[Refusal]:
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        yield Refusal(
            message=f"Invalid type for '{where}.arguments': expected a string, but got {type(arguments).__name__} "
            "instead.",
            code="invalid_type",
            param=f"{where}.arguments",
        )


def _unread_arguments(message: Message) -> Iterator[Refusal]:
    """llama.cpp hands the arguments of old calls to the chat template as values; its words, up to the parser's own."""
    for call in message.get("tool_calls") or ():
        try:
            json.loads((call.get("function") or {}).get("arguments") or "")
        except (ValueError, TypeError):
            yield Refusal(message="Failed to parse tool call arguments as JSON", status=500, type="server_error")


def _pairs(messages: Sequence[Message], *, family: str) -> Iterator[Refusal]:
    waiting: list[str] = []
    for number, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in waiting:
                yield _orphan(number, family)
            else:
                waiting.remove(str(message["tool_call_id"]))
            continue
        if waiting:
            yield _unanswered(number, waiting, family=family)
        waiting = [str(call.get("id")) for call in message.get("tool_calls") or ()]
    if waiting:
        yield _unanswered(len(messages), waiting, family=family)


def _orphan(number: int, family: str) -> Refusal:
    if family == "deepseek":
        return Refusal(message="Messages with role 'tool' must be a response to a preceding message with 'tool_calls'")
    return Refusal(
        message="Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
        "'tool_calls'.",
        param=f"messages.[{number}].role",
    )


def _unanswered(number: int, waiting: Sequence[str], *, family: str) -> Refusal:
    says = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
    if family == "deepseek":
        return Refusal(message=f"{says} (insufficient tool messages following tool_calls message)")
    return Refusal(
        message=f"{says} The following tool_call_ids did not have response messages: {', '.join(waiting)}",
        param=f"messages.[{number}].role",
    )
