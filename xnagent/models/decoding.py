"""What the decoders of all wires share: data strings to JSON, error objects, the closing mark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from xnagent.core.values import dataclass
from xnagent.errors import ModelError
from xnagent.models.faults import short
from xnagent.ports import Reply

DONE: Final = "[DONE]"


class Decoder(Protocol):
    """What takes the data strings of one answer. An attempt needs one of its own (B027)."""

    def feed(self, data: str) -> bool:
        """Take one; whether it carried a piece of the answer. Raises ModelError for an error object."""

    @property
    def has_begun(self) -> bool:
        """Whether something of the answer itself came; the progress of reading the prompt is none of it."""

    @property
    def is_complete(self) -> bool:
        """Whether the answer is whole: what may still come is usage."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come."""

    def finish(self) -> Reply:
        """The reply. Raises ModelError if the stream stopped before the answer's end; nothing of it is used then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One JSON object of a stream, with the text that it came as."""

    text: str
    event: Mapping[str, Any]


def frames(data: str) -> list[Frame]:
    """The objects in a data string. Raises ModelError for what is not JSON."""
    return [Frame(text=text, event=event) for text, event in _parse(data.strip()) if isinstance(event, dict)]


def is_whole(data: str) -> bool:
    """Whether a data string that nothing closed is one all the same, not the beginning of one."""
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


def _parse(text: str) -> list[tuple[str, Any]]:
    try:
        return [(text, json.loads(text))]
    except (ValueError, RecursionError):
        lines = [line for line in text.split("\n") if line.strip() and line.strip() != DONE]
    try:
        # Some gateways put no empty line between events, which joins their data.
        return [(line, json.loads(line)) for line in lines] if len(lines) > 1 else _refuse(text)
    except (ValueError, RecursionError):
        return _refuse(text)


def _refuse(text: str) -> list[tuple[str, Any]]:
    raise ModelError(f"the stream holds something that is not JSON: {short(text)}", fault="server")


def is_error(event: Mapping[str, Any]) -> bool:
    """Whether an object of a stream reports an error, in any of the shapes that gateways send (B021)."""
    if event.get("error") or event.get("type") == "error" or event.get("object") == "error":
        return True
    if isinstance(event.get("choices"), list):
        return False
    response = event.get("response")
    if isinstance(response, dict) and response.get("error"):
        return True
    return isinstance(event.get("message"), str) and bool(event.get("code") or event.get("status"))


def fold(decoder: Decoder, stream: Iterable[str]) -> Reply:
    """The reply that the data strings of one stream make."""
    for data in stream:
        decoder.feed(data)
    return decoder.finish()


def incomplete(characters: int, calls: int) -> ModelError:
    """The error of a stream that ended in the middle (B019)."""
    return ModelError(
        f"the stream ended before the answer's end (after {characters} characters and {calls} calls); "
        "the partial answer is not used",
        fault="incomplete",
    )
