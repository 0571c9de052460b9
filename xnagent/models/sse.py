"""Server-sent events out of bytes as they come: the data of each event, by the standard; UTF-8 whatever a header says.

A byte is copied a fixed number of times, however the stream is cut into chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class EventParser:
    """One stream. What it does not know of yet is the end of a line that a later chunk brings."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """Pieces of a line whose end has not come; a `\\r` at the end of the last may be half of a line end."""
        self._data: list[bytes] = []
        self.open_bytes = 0
        """How much came since the last event was complete; a little less if that was inside a chunk."""

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of the events that the chunk completes. To be read to its end."""
        self.open_bytes += len(chunk)
        self._line.append(chunk)
        if not self._has_end():
            return
        text = b"".join(self._line)
        keeps_half = text.endswith(b"\r")
        lines = _LINE_END.split(text[:-1] if keeps_half else text)
        self._line = [lines.pop() + (b"\r" if keeps_half else b"")]
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                yield self._complete()

    def _has_end(self) -> bool:
        """Whether the newest piece brings the end of a line, or shows that the one before did."""
        chunk = self._line[-1]
        return b"\n" in chunk or b"\r" in chunk or any(piece.endswith(b"\r") for piece in self._line[-2:-1])

    def finish(self) -> str | None:
        """The data of an event that nothing closed before the stream ended; None if there is none."""
        rest = b"".join(self._line).removesuffix(b"\r")
        if rest:
            self._take(rest)
        return self._complete() if self._data else None

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))

    def _complete(self) -> str:
        data = b"\n".join(self._data).decode("utf-8", "replace")
        self._data.clear()
        self.open_bytes = len(self._line[0])
        return data
