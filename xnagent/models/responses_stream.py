"""The answer of the Responses wire: data strings of a stream to a reply. No network, no clock.

What an item is, its `output_item.done` says, whole; deltas count only where a gateway sends none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from xnagent.core.ids import CallId
from xnagent.core.items import AssistantText, Reasoning, ReplyItem, ToolCall
from xnagent.core.text import clean
from xnagent.core.values import dataclass
from xnagent.errors import ModelError
from xnagent.models.chat_usage import read_usage
from xnagent.models.decoding import DONE, Frame, fold, frames, incomplete, is_error
from xnagent.models.encoder import with_what_follows
from xnagent.models.faults import classify_event, short
from xnagent.models.raw_json import dump, elements, members
from xnagent.models.responses import PHASE, WIRE
from xnagent.ports import Reply

_TERMINAL: Final[Mapping[str, str]] = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_ENDED: Final = frozenset(_TERMINAL.values())
_REASONS: Final[Mapping[str, str]] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}
_OPAQUE: Final = frozenset({"reasoning", "compaction"})
_TEXT_DELTAS: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_ARGUMENTS_DELTA: Final = "response.function_call_arguments.delta"


@dataclass(slots=True, kw_only=True)
class _Slot:
    """One item while it grows."""

    added: Mapping[str, Any] = field(default_factory=dict)
    done: str = ""
    """The item as it came, once it is whole."""
    text: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def item_text(self) -> str:
        """The item's JSON."""
        if self.done:
            return self.done
        kind = self.added.get("type") or ("function_call" if self.arguments else "message")
        if kind == "function_call":
            arguments = "".join(self.arguments) or self.added.get("arguments")
            return dump({**self.added, "type": kind, "arguments": arguments})
        if kind == "message":
            return dump({**self.added, "type": kind, "content": [{"type": "output_text", "text": "".join(self.text)}]})
        return dump(self.added)


class ResponsesDecoder:
    """Folds the data strings of one attempt. Implements `decoding.Decoder`."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_place: dict[str, _Slot] = {}
        self._response: Mapping[str, Any] = {}
        self._output: list[str] = []
        self._status = ""
        self._is_closed = False
        self.has_begun = True
        """This wire tells no progress: whatever counts as a piece is one of the answer."""

    @property
    def is_complete(self) -> bool:
        """Whether the response's end came."""
        return bool(self._status)

    @property
    def is_done(self) -> bool:
        """Whether the response's end came: nothing follows it."""
        return bool(self._status) or self._is_closed

    def feed(self, data: str) -> bool:
        """Take one data string; whether it was a piece of the answer (a ping or a status is not)."""
        text = data.strip()
        if not text or self.is_done:
            return False
        if text == DONE:
            self._is_closed = True
            return True
        pieces = [self._take(frame) for frame in frames(text)]
        return any(pieces)

    def _take(self, frame: Frame) -> bool:
        event = frame.event
        if is_error(event):
            raise classify_event(event)
        kind = _string(event.get("type"))
        if kind in _TERMINAL and isinstance(event.get("response"), dict):
            return self._end(event["response"], members(frame.text)["response"], status=_TERMINAL[kind])
        status = _string(event.get("status"))
        if event.get("object") == "response" and status in _ENDED:
            return self._end(event, frame.text, status=status)
        return self._take_part(kind, frame)

    def _end(self, response: Mapping[str, Any], text: str, *, status: str) -> bool:
        if status in {"failed", "cancelled"}:
            raise ModelError(f"the response ended as {status!r} without a reason; try again", fault="server")
        self._response, self._status = response, status
        self._output = list(elements(members(text).get("output", "[]")))
        return True

    def _take_part(self, kind: str, frame: Frame) -> bool:
        event = frame.event
        if kind == "response.output_item.added":
            item = event.get("item")
            self._open(event).added = item if isinstance(item, dict) else {}
        elif kind == "response.output_item.done":
            self._slot(event).done = members(frame.text).get("item", "{}")
        elif kind in _TEXT_DELTAS:
            self._slot(event).text.append(_string(event.get("delta")))
        elif kind == _ARGUMENTS_DELTA:
            self._slot(event).arguments.append(_string(event.get("delta")))
        else:
            return kind.endswith(".delta")
        return True

    def _slot(self, event: Mapping[str, Any]) -> _Slot:
        """The item that an event is about; another one if that is whole already."""
        slot = self._by_place.get(_place(event))
        return self._open(event) if slot is None or slot.done else slot

    def _open(self, event: Mapping[str, Any]) -> _Slot:
        slot = _Slot()
        self._slots.append(slot)
        self._by_place[_place(event)] = slot
        return slot

    def finish(self) -> Reply:
        """The reply. Raises ModelError if the stream stopped before the answer's end; nothing of it is used then."""
        if not self._status:
            size = len("".join(piece for slot in self._slots for piece in slot.text))
            raise incomplete(size, sum(bool(slot.arguments or "name" in slot.added) for slot in self._slots))
        items, notes = self._items()
        finish, note = self._outcome(items)
        if finish == "length":
            items = with_what_follows(items)
        usage, oddity = read_usage(_mapping(self._response.get("usage")))
        note = "; ".join(filter(None, [note, *notes, oddity]))
        return Reply(items=items, usage=usage, finish=finish, note=note)

    def _items(self) -> tuple[tuple[ReplyItem, ...], list[str]]:
        whole = sum(bool(slot.done) for slot in self._slots)
        use_output = len(self._output) > whole
        texts = self._output if use_output else [slot.item_text() for slot in self._slots]
        items, notes = [], []
        for text in texts:
            item = json.loads(text)
            found = list(_read_item(_mapping(item), text))
            items += found
            kind = str(_mapping(item).get("type"))
            if not found and kind not in {"message", *_OPAQUE}:
                notes.append(f"an item of type {short(kind)!r} was left out")
        return tuple(items), notes

    def _outcome(self, items: tuple[ReplyItem, ...]) -> tuple[str, str]:
        if self._status == "completed":
            return ("tool_calls" if any(isinstance(item, ToolCall) for item in items) else "stop"), ""
        reason = _string(_mapping(self._response.get("incomplete_details")).get("reason"))
        if reason in _REASONS:
            return _REASONS[reason], ""
        return "length", f"the response is incomplete ({short(reason) or 'no reason'}), read as 'length'"


def decode(stream: Iterable[str]) -> Reply:
    """The reply that the data strings of one stream make."""
    return fold(ResponsesDecoder(), stream)


def _read_item(item: Mapping[str, Any], text: str) -> Iterator[ReplyItem]:
    match item.get("type"):
        case "message":
            yield from _read_message(item)
        case "function_call":
            call_id = _string(item.get("call_id")) or _string(item.get("id"))
            name, arguments = clean(_string(item.get("name"))), item.get("arguments")
            written = arguments if isinstance(arguments, str) else "" if arguments is None else dump(arguments)
            yield ToolCall(call_id=CallId(clean(call_id)), name=name, arguments=clean(written))
        case "reasoning" | "compaction":
            yield Reasoning(wire=WIRE, payload=clean(text))
        case _:
            pass


def _read_message(item: Mapping[str, Any]) -> Iterator[ReplyItem]:
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    shown = [part for part in parts if isinstance(part, dict)]
    text = "".join(_string(part.get("text")) or _string(part.get("refusal")) for part in shown)
    if text and item.get(PHASE):
        yield Reasoning(wire=WIRE, payload=dump({PHASE: item[PHASE]}))
    if text:
        yield AssistantText(text=clean(text))


def _place(event: Mapping[str, Any]) -> str:
    index = event.get("output_index")
    return str(index) if index is not None else _string(event.get("item_id"))


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
