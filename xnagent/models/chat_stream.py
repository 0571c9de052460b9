"""The answer of the Chat Completions wire: data strings of a stream to a reply. No network, no clock.

A whole JSON completion is one such string too. An attempt needs a decoder of its own, so that nothing of a failed one
can reach the next (B027).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from xnagent.core.items import AssistantText, Reasoning, ReplyItem
from xnagent.core.text import clean
from xnagent.errors import FaultKind, ModelError
from xnagent.models.chat import DETAILS_WIRE, EXTRA_WIRE, WIRE
from xnagent.models.chat_calls import CallAssembler
from xnagent.models.chat_usage import read_usage
from xnagent.models.decoding import DONE, fold, frames, incomplete, is_error
from xnagent.models.faults import classify_event
from xnagent.models.reasoning_details import FIELD, DetailAssembler
from xnagent.ports import Reply

_FINISH: Final[Mapping[str, str]] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
}
_FAILED_FINISH: Final[Mapping[str, FaultKind]] = {
    "insufficient_system_resource": "overloaded",
    "network_error": "server",
    "error": "server",
    "abort": "incomplete",
}


PROGRESS: Final = "prompt_progress"
"""Marks the chunks in which llama.cpp says how much of the prompt it has read."""


class ChatDecoder:
    """Folds the data strings of one attempt."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._details = DetailAssembler()
        self._calls = CallAssembler()
        self._usage: Mapping[str, Any] | None = None
        self._timings: Mapping[str, Any] | None = None
        self._finish = ""
        self._is_done = False
        self.has_begun = False
        """Whether more came than how far llama.cpp has read the prompt."""

    @property
    def is_complete(self) -> bool:
        """Whether a finish reason came, or the closing mark."""
        return bool(self._finish) or self._is_done

    @property
    def is_done(self) -> bool:
        """Whether the closing mark came."""
        return self._is_done

    def feed(self, data: str) -> bool:
        """Take one data string; whether it was a piece of the answer (a ping or an empty frame is not)."""
        text = data.strip()
        if not text or self._is_done:
            return False
        if text == DONE:
            self._is_done = True
            return True
        pieces = [self._take(frame.event) for frame in frames(text)]
        return any(pieces)

    def _take(self, event: Mapping[str, Any]) -> bool:
        if is_error(event):
            raise classify_event(event)
        self.has_begun = self.has_begun or PROGRESS not in event
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        if isinstance(event.get("timings"), dict):
            self._timings = event["timings"]
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return self._usage is not None and "usage" in event
        self._take_choice(choices[0])
        return True

    def _take_choice(self, choice: Mapping[str, Any]) -> None:
        if isinstance(choice.get("usage"), dict):
            self._usage = choice["usage"]
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._take_delta(delta)
        elif isinstance(choice.get("text"), str):
            self._text.append(choice["text"])
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = self._finish or reason.strip().lower()

    def _take_delta(self, delta: Mapping[str, Any]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str):
            self._reasoning.append(reasoning)
        self._details.add(delta.get(FIELD))
        self._take_content(delta.get("content"))
        self._take_content(delta.get("refusal"))
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else [calls]:
            self._calls.add(call)
        if isinstance(delta.get("function_call"), dict):
            self._calls.add({"index": 0, "function": delta["function_call"]})

    def _take_content(self, content: object) -> None:
        if isinstance(content, str):
            self._text.append(content)
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                self._text.append(part["text"])
            elif isinstance(part, dict):
                self._reasoning += _texts(part.get("thinking"))

    def finish(self) -> Reply:
        """The reply. Raises ModelError if the stream stopped before the answer's end; nothing of it is used then."""
        items = tuple(self._items())
        finish, note = self._outcome(items)
        usage, oddity = read_usage(self._usage, self._timings)
        return Reply(items=items, usage=usage, finish=finish, note="; ".join(filter(None, [note, oddity])))

    def _items(self) -> Iterator[ReplyItem]:
        reasoning, text = "".join(self._reasoning), "".join(self._text)
        if details := self._details.payload():
            yield Reasoning(wire=DETAILS_WIRE, payload=details)
        elif reasoning:
            yield Reasoning(wire=WIRE, payload=clean(reasoning))
        if text:
            yield AssistantText(text=clean(text))
        if extras := self._calls.extras():
            yield Reasoning(wire=EXTRA_WIRE, payload=extras)
        yield from self._calls.calls()

    def _outcome(self, items: tuple[ReplyItem, ...]) -> tuple[str, str]:
        has_calls = bool(self._calls.calls())
        if self._finish in _FAILED_FINISH:
            raise ModelError(f"the model stopped with {self._finish!r}; try again", fault=_FAILED_FINISH[self._finish])
        if not self._finish:
            self._require_an_end(items)
        finish = _FINISH.get(self._finish or "stop", "stop")
        note = "" if self._finish in _FINISH else f"finish reason {self._finish or 'missing'!r} read as {finish!r}"
        if finish in {"stop", "tool_calls"}:
            finish = "tool_calls" if has_calls else "stop"
        return finish, note

    def _require_an_end(self, items: tuple[ReplyItem, ...]) -> None:
        if self._is_done and items and not self._calls.has_open_arguments:
            return
        size = len("".join(self._text)) + len("".join(self._reasoning))
        raise incomplete(size, len(self._calls.calls()))


def decode(stream: Iterable[str]) -> Reply:
    """The reply that the data strings of one stream make."""
    return fold(ChatDecoder(), stream)


def _texts(parts: object) -> list[str]:
    if isinstance(parts, str):
        return [parts]
    found = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return [text for text in found if isinstance(text, str)]
