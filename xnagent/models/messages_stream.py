"""The answer of the Messages wire: data strings of a stream to a reply. No network, no clock.

A whole JSON message is one such string too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from xnagent.core.ids import CallId
from xnagent.core.items import AssistantText, Reasoning, ReplyItem, ToolCall
from xnagent.core.text import Json, clean
from xnagent.core.values import dataclass
from xnagent.models.decoding import DONE, Frame, fold, frames, incomplete, is_error
from xnagent.models.encoder import with_what_follows
from xnagent.models.faults import classify_event, short
from xnagent.models.messages import WIRE
from xnagent.models.messages_usage import UsageMeter
from xnagent.models.raw_json import dump, elements, members
from xnagent.ports import Reply

_FINISH: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "stop": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "length": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "sensitive": "content_filter",
}
_DELTAS: Final[Mapping[str, str]] = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""In which field each kind of delta brings its text."""


@dataclass(slots=True, kw_only=True)
class _Block:
    """One content block while it grows."""

    text: str
    """What it started as, as JSON."""
    start: Mapping[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return _string(self.start.get("type"))

    def joined(self, name: str) -> str:
        """A field: what it started with and what came."""
        return _string(self.start.get(name)) + "".join(self.pieces.get(name, []))

    def item(self) -> ReplyItem | None:
        """What it is; None: nothing that the history keeps."""
        match self.kind:
            case "text":
                text = clean(self.joined("text"))
                return AssistantText(text=text) if text else None
            case "tool_use":
                call_id = CallId(clean(_string(self.start.get("id"))))
                return ToolCall(call_id=call_id, name=clean(self.joined("name")), arguments=self._arguments())
            case "thinking":
                return Reasoning(wire=WIRE, payload=self._thinking())
            case "redacted_thinking":
                return Reasoning(wire=WIRE, payload=clean(self.text))
            case _:
                return None

    def _arguments(self) -> str:
        written = "".join(self.pieces.get("partial_json", []))
        if written.strip():
            return clean(written)
        given = self.start.get("input")
        return clean(given if isinstance(given, str) else members(self.text).get("input", ""))

    def _thinking(self) -> str:
        if not self.pieces:
            return clean(self.text)
        grown: dict[str, Json] = {
            name: self.joined(name) for name in ("thinking", "signature") if name in (*self.start, *self.pieces)
        }
        return dump({**self.start, **grown})

    @property
    def is_unsigned(self) -> bool:
        """Whether it is thinking whose signature has not come."""
        return self.kind == "thinking" and not self.joined("signature")


class MessagesDecoder:
    """Folds the data strings of one attempt. Implements `decoding.Decoder`."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._by_index: dict[str, _Block] = {}
        self._meter = UsageMeter()
        self._stop = ""
        self._is_done = False
        self.has_begun = True
        """This wire tells no progress: whatever counts as a piece is one of the answer."""

    @property
    def is_complete(self) -> bool:
        """Whether a stop reason came, or the message's end."""
        return bool(self._stop) or self._is_done

    @property
    def is_done(self) -> bool:
        """Whether the message's end came."""
        return self._is_done

    def feed(self, data: str) -> bool:
        """Take one data string; whether it was a piece of the answer (a ping is not)."""
        text = data.strip()
        if not text or self._is_done:
            return False
        if text == DONE:
            self._is_done = True
            return True
        pieces = [self._take(frame) for frame in frames(text)]
        return any(pieces)

    def _take(self, frame: Frame) -> bool:
        event = frame.event
        if is_error(event):
            raise classify_event(event)
        match event.get("type"):
            case "message_start":
                self._meter.take(_mapping(event.get("message")).get("usage"))
            case "content_block_start":
                self._open(str(event.get("index")), members(frame.text).get("content_block", "{}"), event=event)
            case "content_block_delta":
                return self._grow(str(event.get("index")), _mapping(event.get("delta")))
            case "message_delta":
                self._meter.take(event.get("usage"))
                self._end(_mapping(event.get("delta")).get("stop_reason"))
            case "message_stop":
                self._is_done = True
            case "message":
                self._take_whole(frame)
            case _:
                return False
        return True

    def _open(self, index: str, text: str, *, event: Mapping[str, Any]) -> None:
        block = _Block(text=text, start=_mapping(event.get("content_block")))
        self._blocks.append(block)
        self._by_index[index] = block

    def _grow(self, index: str, delta: Mapping[str, Any]) -> bool:
        """Put a piece where it belongs; a delta whose block was never opened opens one for its text."""
        name = _DELTAS.get(_string(delta.get("type")))
        piece = _string(delta.get(name)) if name else ""
        if name is None:
            return False
        block = self._by_index.get(index)
        if block is None and name in {"text", "thinking"}:
            self._open(index, "{}", event={"content_block": {"type": name}})
            block = self._by_index[index]
        if block is not None:
            block.pieces.setdefault(name, []).append(piece)
        return True

    def _end(self, reason: object) -> None:
        self._stop = self._stop or _string(reason).strip().lower()

    def _take_whole(self, frame: Frame) -> None:
        content = frame.event.get("content")
        texts = elements(members(frame.text).get("content", "[]"))
        for index, (text, block) in enumerate(zip(texts, content if isinstance(content, list) else [], strict=False)):
            self._open(str(index), text, event={"content_block": block})
        self._meter.take(frame.event.get("usage"))
        self._end(frame.event.get("stop_reason"))
        self._is_done = True

    def finish(self) -> Reply:
        """The reply. Raises ModelError if the stream stopped before the answer's end; nothing of it is used then."""
        calls = sum(block.kind == "tool_use" for block in self._blocks)
        if not self._stop:
            self._require_an_end(calls)
        finish, note = _outcome(self._stop, has_calls=calls > 0)
        items = tuple(self._items(is_cut=finish == "length"))
        usage, oddity = self._meter.read()
        return Reply(items=items, usage=usage, finish=finish, note="; ".join(filter(None, [note, oddity])))

    def _items(self, *, is_cut: bool) -> Iterator[ReplyItem]:
        # Thinking that was cut off has no signature, and could never be sent back.
        kept = self._blocks[:-1] if is_cut and self._blocks and self._blocks[-1].is_unsigned else self._blocks
        found = tuple(item for item in (block.item() for block in kept) if item is not None)
        yield from with_what_follows(found) if is_cut else found

    def _require_an_end(self, calls: int) -> None:
        """Without a stop reason only an answer that says its end, and has something in it, is whole."""
        if self._is_done and any(block.item() is not None for block in self._blocks):
            return
        size = sum(len(block.joined("text")) for block in self._blocks)
        raise incomplete(size, calls)


def _outcome(reason: str, *, has_calls: bool) -> tuple[str, str]:
    finish = _FINISH.get(reason or "end_turn", "stop")
    note = "" if reason in _FINISH else f"stop reason {short(reason) or 'missing'!r} read as {finish!r}"
    if finish in {"stop", "tool_calls"}:
        finish = "tool_calls" if has_calls else "stop"
    return finish, note


def decode(stream: Iterable[str]) -> Reply:
    """The reply that the data strings of one stream make."""
    return fold(MessagesDecoder(), stream)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
