"""Events as bytes and back, and as the flat records that `--output jsonl` prints."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from xnagent.core.events import Event, SessionStarted, Stored
from xnagent.core.ids import SessionId
from xnagent.core.masking import Mask
from xnagent.core.spine_events import ManifestRecorded, ReplyReceived, SpineExtended, SpineRebased
from xnagent.core.summary_events import SummaryMade, SummaryStarted
from xnagent.core.text import Json, clean
from xnagent.errors import StoreDamagedError, StoreWriteError

COMPRESS_FROM_BYTES: Final = 512
COMPRESSION_LEVEL: Final = 1

Encoding = Literal["raw", "zlib"]

VERBATIM: Final = (ManifestRecorded, ReplyReceived, SpineExtended, SpineRebased, SummaryStarted, SummaryMade)
KEPT_FIELDS: Final = frozenset(
    {
        "after",
        "agent",
        "artifact",
        "base",
        "before",
        "branch",
        "call_id",
        "changed_files",
        "code",
        "commit",
        "patch",
        "paths_changed",
        "paths_read",
        "repository",
        "seen",
        "session",
        "sha256",
        "spool",
        "tool",
        "type",
    }
)
"""Fields that xnagent works with: names, places and hashes."""


@cache
def _adapter() -> TypeAdapter[Event]:
    return TypeAdapter(Annotated[Event, Field(discriminator="type")], config=ConfigDict(ser_json_inf_nan="constants"))


@cache
def _validate() -> Callable[[bytes], Event]:
    """The adapter's own work, without a call around it: it is done for each event of a log."""
    return _adapter().validator.validate_json


def prepare() -> None:
    """Make what reads and writes events, which takes a moment, before anybody waits for it."""
    _validate()


def encode(event: Event) -> tuple[Event, bytes]:
    """The event as compact JSON, and the event as it will be read back.

    The two events differ only where text held lone surrogates, which no file can hold: there `clean` has replaced them
    (B055). Raises StoreWriteError for an event that could not be read back.
    """
    try:
        return event, _adapter().dump_json(event, warnings="error")
    except PydanticSerializationError:
        return _encode_cleaned(event)


def _encode_cleaned(event: Event) -> tuple[Event, bytes]:
    fields = _cleaned(_adapter().dump_python(event, warnings=False))
    content = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=str).encode()
    try:
        return _adapter().validate_json(content), content
    except ValidationError as error:
        message = f"STORE_EVENT_INVALID: a {event.type} event does not fit its own type and was not stored: {error}"
        raise StoreWriteError(message) from error


def _cleaned(value: object) -> object:
    match value:
        case str():
            return clean(value)
        case dict():
            return {key: _cleaned(part) for key, part in value.items()}
        case list() | tuple():
            return [_cleaned(part) for part in value]
        case _:
            return value


def masked(event: Event, content: bytes, *, mask: Mask) -> tuple[Event, bytes]:
    """The event and its JSON without secrets; the same two where there are none, or where bytes are kept as they are.

    What a model sent and what it is sent are kept: a request is built from them again, byte for byte. No secret gets
    there, because whatever they are made of went through here.
    """
    if isinstance(event, VERBATIM):
        return event, content
    flat = content.replace(b"\\n", b"\n")
    if mask.data(flat) is flat:
        return event, content
    fields: dict[str, object] = json.loads(content)
    fields = {name: value if name in KEPT_FIELDS else mask.value(value) for name, value in fields.items()}
    content = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    return _adapter().validate_json(content), content


def decode(content: bytes, *, seq: int) -> Event:
    """The event that `encode` turned into these bytes. Raises StoreDamagedError with the event's number."""
    try:
        return _validate()(content)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        at = f" at {where}" if where else ""
        raise StoreDamagedError(
            f"STORE_EVENT_DAMAGED: event {seq} cannot be read{at}: {fault['msg']}. "
            f"It is damaged, or a newer xnagent wrote it; the events before it are readable."
        ) from error


def pack(content: bytes) -> tuple[Encoding, bytes]:
    """Compress what is worth it."""
    if len(content) < COMPRESS_FROM_BYTES:
        return "raw", content
    packed = zlib.compress(content, COMPRESSION_LEVEL)
    return ("zlib", packed) if len(packed) < len(content) else ("raw", content)


def unpack(encoding: str, payload: bytes, *, what: str) -> bytes:
    """What was packed; `what` names it in the StoreDamagedError."""
    if encoding == "raw":
        return payload
    if encoding != "zlib":
        raise StoreDamagedError(f"STORE_EVENT_DAMAGED: {what} has the unknown encoding {encoding!r}.")
    try:
        return zlib.decompress(payload)
    except (zlib.error, TypeError) as error:
        raise StoreDamagedError(f"STORE_EVENT_DAMAGED: {what} cannot be unpacked: {error}.") from error


def as_record(session: SessionId, stored: Stored) -> dict[str, Json]:
    """The event as one flat JSON object: `type`, `session`, `seq`, `at`, then its fields in their order.

    A number that JSON cannot say is null.
    """
    told = _adapter().dump_python(stored.event, mode="json", warnings="error")
    fields: dict[str, Json] = {name: value if type(value) in PLAIN else _sayable(value) for name, value in told.items()}
    return {"type": fields.pop("type"), "session": session, "seq": stored.seq, "at": stored.at, **fields}


PLAIN: Final = frozenset({str, int, bool, type(None)})
"""What JSON can always say."""


def _sayable(value: Json) -> Json:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: part if type(part) in PLAIN else _sayable(part) for name, part in value.items()}
    return [_sayable(part) for part in value] if isinstance(value, list) else value


def record_lines(session: SessionId, events: Iterable[Stored]) -> Iterator[str]:
    """What `as_record` makes of each event, as JSON in nothing but printable ASCII."""
    for stored in events:
        line = _record_line(session, stored).decode()
        is_plain = line.isascii() and "\x7f" not in line
        yield line if is_plain else _WIDE.sub(lambda found: json.dumps(found[0])[1:-1], line)


def _record_line(session: SessionId, stored: Stored) -> bytes:
    """The fields as they are dumped, without the type at their end: it goes to the front.

    The first event names its session, as every record does: there the two are one field.
    """
    content, end = _dump()(stored.event), f',"type":"{stored.event.type}"}}'.encode()
    if isinstance(stored.event, SessionStarted) or not content.endswith(end):
        return json.dumps(as_record(session, stored), separators=(",", ":")).encode()
    head = {"type": stored.event.type, "session": session, "seq": stored.seq, "at": stored.at}
    begin = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((begin[:-1], b",", content[1 : -len(end)], b"}"))


_WIDE: Final = re.compile("[^ -~]+")


@cache
def _dump() -> Callable[[Event], bytes]:
    """Other than for the log, what JSON cannot say is null."""
    return TypeAdapter(Annotated[Event, Field(discriminator="type")]).serializer.to_json
