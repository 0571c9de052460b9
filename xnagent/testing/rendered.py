"""An answer as bytes, in the wire of its request and with its quirks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xnagent.core.text import Json
from xnagent.testing import chat_wire, messages_wire, responses_wire
from xnagent.testing.answer import Answer, Rendering
from xnagent.testing.cache import CacheReading
from xnagent.testing.reading import Wire
from xnagent.testing.script import ReplySpec
from xnagent.testing.usage import Usage

_RENDER: Final = {"chat": chat_wire.render, "responses": responses_wire.render, "messages": messages_wire.render}
_WHOLE: Final = {"chat": chat_wire.whole, "responses": responses_wire.whole, "messages": messages_wire.whole}
_ERROR: Final = {
    "chat": chat_wire.error_event,
    "responses": responses_wire.error_event,
    "messages": messages_wire.error_event,
}
_NOISE: Final = (b": keepalive\n\n", b":\n\n", b"data:\n\n", b"data: \n\n", b'event: ping\ndata: {"type": "ping"}\n\n')
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SPLIT_BYTES: Final = 7


def render(answer: Answer) -> Rendering:
    """The events of the answer."""
    plain = _RENDER[answer.wire](answer)
    events, closing = plain.events, plain.closing
    if "keepalive" in answer.quirks:
        events = [piece for n, one in enumerate(events) for piece in (_NOISE[n % len(_NOISE)], one)]
        closing = [_NOISE[0], *closing]
    if "crlf" in answer.quirks:
        events, closing = _with_crlf(events), _with_crlf(closing)
    if "bom" in answer.quirks:
        events = [_BYTE_ORDER_MARK + events[0], *events[1:]]
    return Rendering(events=events, closing=closing)


def chunks(answer: Answer) -> list[bytes]:
    """The stream as it goes over the network."""
    events = render(answer).all
    if "split" not in answer.quirks:
        return events
    data = b"".join(events)
    return [data[start : start + _SPLIT_BYTES] for start in range(0, len(data), _SPLIT_BYTES)]


def whole(answer: Answer) -> bytes:
    """The answer to a request without `stream`."""
    return _WHOLE[answer.wire](answer)


def error_event(wire: Wire, error: Json) -> bytes:
    """An error in a stream that began well."""
    return _ERROR[wire](error)


def first_words(wire: Wire) -> list[bytes]:
    """How any answer may begin."""
    usage = Usage(dialect="none", reading=CacheReading(prompt=0), output=0, reasoning=0)
    begun = Answer(spec=ReplySpec(text="Wait"), ids=(), model="", created="0", usage=usage, wire=wire)
    return _RENDER[wire](begun).events


def _with_crlf(events: Iterable[bytes]) -> list[bytes]:
    return [one.replace(b"\n", b"\r\n") for one in events]
