"""Tool calls of the Chat Completions wire, put together from their deltas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field

from xnagent.core.ids import CallId
from xnagent.core.items import ToolCall
from xnagent.core.text import Json, clean
from xnagent.core.values import dataclass
from xnagent.models.chat import EXTRA
from xnagent.models.raw_json import dump


@dataclass(slots=True, kw_only=True)
class _Slot:
    """One call while it grows."""

    call_id: str = ""
    name: str = ""
    extra: Mapping[str, Json] = field(default_factory=dict)
    """What a provider puts beside the call and wants back as it was."""
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def repeats(self, call_id: str, *, name: str, piece: str) -> bool:
        """Whether a delta says again, with its id, what is there already."""
        return bool(call_id and call_id == self.call_id and name == self.name and piece == self.arguments and name)


class CallAssembler:
    """Takes the deltas in order; gives the calls in the order in which they were opened.

    The index alone does not tell calls apart: gateways number every parallel call 0, or not at all, and send empty ids
    and names on continuations.
    """

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}

    def add(self, delta: object) -> None:
        """Take one entry of `tool_calls`; what is no call at all is ignored."""
        if not isinstance(delta, dict):
            return
        function = delta.get("function")
        function = function if isinstance(function, dict) else delta
        call_id, name, piece = _text(delta.get("id")), _text(function.get("name")), _piece(function.get("arguments"))
        slot = self._slot_for(_index(delta.get("index")), call_id=call_id, name=name)
        if slot.repeats(call_id, name=name, piece=piece):
            return
        slot.call_id = slot.call_id or call_id
        slot.name = slot.name or name
        extra = delta.get(EXTRA)
        slot.extra = slot.extra or (extra if isinstance(extra, dict) else {})
        if piece:
            slot.pieces.append(piece)

    def _slot_for(self, index: int | None, *, call_id: str, name: str) -> _Slot:
        current = self._current(index, call_id)
        if current is None or _opens_another(current, call_id=call_id, name=name):
            known = next((slot for slot in self._slots if call_id and slot.call_id == call_id), None)
            current = known if current is not None and known is not None else self._open()
        if index is not None:
            self._by_index[index] = current
        return current

    def _current(self, index: int | None, call_id: str) -> _Slot | None:
        if index is not None:
            return self._by_index.get(index)
        return self._slots[-1] if self._slots else None

    def _open(self) -> _Slot:
        self._slots.append(_Slot())
        return self._slots[-1]

    @property
    def has_open_arguments(self) -> bool:
        """Whether some call's arguments are not a whole JSON value."""
        return any(slot.arguments.strip() and not _is_whole(slot.arguments) for slot in self._slots)

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls; ids as they came, possibly empty or not unique."""
        return tuple(
            ToolCall(call_id=CallId(clean(slot.call_id)), name=clean(slot.name), arguments=clean(slot.arguments))
            for slot in self._called
        )

    def extras(self) -> str:
        """What stood beside the calls, as a JSON list with a place for each; empty if nothing did."""
        found: list[Json] = [dict(slot.extra) or None for slot in self._called]
        return dump(found) if any(found) else ""

    @property
    def _called(self) -> list[_Slot]:
        return [slot for slot in self._slots if slot.name or slot.pieces]


def _opens_another(slot: _Slot, *, call_id: str, name: str) -> bool:
    if call_id and slot.call_id:
        return call_id != slot.call_id
    if not name or not slot.name or call_id == slot.call_id != "":
        return False
    return name != slot.name or _is_whole(slot.arguments)


def _is_whole(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _piece(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, Mapping | list):
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return ""


def _index(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
