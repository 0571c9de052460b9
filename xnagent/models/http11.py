"""An HTTP/1.1 answer out of bytes as they come: status line, headers, and where its body ends (RFC 9112). Pure.

Strict: a wrong reading would take a piece of one answer for the next, so what has no single meaning is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

MAX_OPEN_BYTES: Final = 100 << 10
"""How much may come without completing a head, the size of a chunk, or the trailers."""
FIRST_FINAL_STATUS: Final = 200
BODILESS: Final = frozenset({204, 304})

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/(1\.[01]) ([1-9][0-9]{2})(?: [^\r\n\0]*)?")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_FOLD: Final = re.compile(rb"\r?\n[ \t]+")
_LINE_END: Final = re.compile(rb"\r?\n")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_FIRST_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_NEXT_SIZE: Final = re.compile(rb"\r\n" + _FIRST_SIZE.pattern)
_TRAILERS: Final = re.compile(rb"()(?:[^\r\n\0]+\r\n)*\r\n")

Field = tuple[bytes, bytes]


class AnswerError(Exception):
    """The other side sent what is no HTTP/1.1 answer, or not all of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What stands before the body."""

    status: int
    headers: tuple[Field, ...]
    framing: Literal["length", "chunked", "close"]
    """What tells where the body ends."""
    length: int
    keeps_open: bool
    """Whether another request may follow on the connection."""


class AnswerReader:
    """Reads one answer; informational ones before it are passed over."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.is_whole = False
        """Whether the body has come to its end."""
        self._open = bytearray()
        """What came and is not read yet."""
        self._left = 0
        """How much is missing of the body, or of the chunk that has begun."""
        self._expected = _FIRST_SIZE
        """Between the chunks."""

    @property
    def can_follow(self) -> bool:
        """Whether the connection is as it was before the request: nothing is missing and nothing is left over."""
        return self.is_whole and self.head is not None and self.head.keeps_open and not self._open

    def feed(self, data: bytes) -> bytes:
        """Take what came; the bytes of the body in it. Raises AnswerError."""
        self._open += data
        while self.head is None:
            found = _HEAD_END.search(self._open)
            if found is None:
                self._wait_for_more()
                return b""
            head = parse_head(bytes(self._open[: found.start()]))
            del self._open[: found.end()]
            if head.status >= FIRST_FINAL_STATUS:
                self.head, self._left = head, head.length
        return self._body(self.head)

    def close(self) -> None:
        """Nothing more comes. Raises AnswerError if that is no end of an answer."""
        if self.head is None:
            raise AnswerError("Server disconnected without sending a response.")
        if self.head.framing != "close" and not self.is_whole:
            raise AnswerError("peer closed connection without sending complete message body")
        self.is_whole = True

    def _body(self, head: Head) -> bytes:
        match head.framing:
            case "length":
                piece = self._take(self._left)
                self.is_whole = self._left == 0
                return piece
            case "close":
                return self._take(len(self._open))
            case "chunked":
                return self._chunks()

    def _chunks(self) -> bytes:
        pieces: list[bytes] = []
        while not self.is_whole:
            pieces.append(self._take(self._left))
            if self._left:
                break
            found = self._expected.match(self._open)
            if found is None:
                # What came before something illegal is handed on first.
                self._check_size(is_first=not any(pieces))
                break
            size = bytes(found[1])
            del self._open[: found.end()]
            self._begin(size)
        return b"".join(pieces)

    def _begin(self, size: bytes) -> None:
        """A chunk; the trailers after the last one, which is empty; or the end after those."""
        self.is_whole = self._expected is _TRAILERS
        self._left = int(size or b"0", 16)
        self._expected = _NEXT_SIZE if self._left else _TRAILERS

    def _check_size(self, *, is_first: bool) -> None:
        """What is expected between chunks may still come, if there is not a whole line of something else already."""
        begins = b"\r\n" if self._expected is _NEXT_SIZE else b""
        is_line = self._expected is not _TRAILERS and b"\n" in self._open[2:]
        if is_first and (is_line or not begins.startswith(bytes(self._open[: len(begins)]))):
            raise AnswerError("illegal chunk header")
        self._wait_for_more()

    def _wait_for_more(self) -> None:
        if len(self._open) > MAX_OPEN_BYTES:
            raise AnswerError(f"more than {MAX_OPEN_BYTES:,} bytes without an end")

    def _take(self, most: int) -> bytes:
        piece = bytes(self._open[:most])
        del self._open[: len(piece)]
        self._left -= len(piece)
        return piece


def parse_head(text: bytes) -> Head:
    """The head without the empty line at its end. Raises AnswerError."""
    first, *lines = _LINE_END.split(_FOLD.sub(b" ", text.removesuffix(b"\r")))
    line = _STATUS_LINE.fullmatch(first)
    if line is None:
        raise AnswerError(f"illegal status line: {first[:100]!r}")
    status, headers = int(line[2]), tuple(map(_parse_field, lines))
    codings = _values(headers, b"transfer-encoding")
    lengths = set(_values(headers, b"content-length"))
    if codings not in ([], [b"chunked"]) or len(lengths) > 1:
        raise AnswerError(f"unclear where the body ends: transfer-encoding {codings!r}, content-length {lengths!r}")
    is_empty = status < FIRST_FINAL_STATUS or status in BODILESS
    framing: Literal["length", "chunked", "close"] = "length" if lengths or is_empty else "close"
    framing = "chunked" if codings and not is_empty else framing
    return Head(
        status=status,
        headers=headers,
        framing=framing,
        length=0 if is_empty or framing != "length" else _parse_length(*lengths),
        keeps_open=line[1] == b"1.1"
        and framing != "close"
        and not (codings and lengths)
        and b"close" not in _values(headers, b"connection"),
    )


def _parse_field(line: bytes) -> Field:
    field = _FIELD.fullmatch(line)
    if field is None:
        raise AnswerError(f"illegal header line: {line[:100]!r}")
    return field[1], field[2]


def _values(headers: Sequence[Field], name: bytes) -> list[bytes]:
    """The elements of all lists under a name."""
    found = (part.strip().lower() for key, value in headers if key.lower() == name for part in value.split(b","))
    return [part for part in found if part]


def _parse_length(text: bytes) -> int:
    if _LENGTH.fullmatch(text) is None:
        raise AnswerError(f"illegal content-length: {text[:100]!r}")
    return int(text)
