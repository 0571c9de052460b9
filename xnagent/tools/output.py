"""What a command printed, made fit to be read: clean text, the last state of progress lines, head and tail."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass

ANSI: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
OVERSTRUCK: Final = re.compile(r"[^\n\x08]\x08")
CONTROLS: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
HEAD_SHARE: Final = 0.4
MAX_LINE: Final = 2_000
HEAD_BYTES: Final = 256 * 1024
TAIL_BYTES: Final = 512 * 1024
MIN_BINARY_BYTES: Final = 64
MAX_BAD_SHARE: Final = 0.2
FIRST_BYTE: Final = re.compile(rb"[^\x80-\xbf]")
LONGEST_CHARACTER: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """Output as the model reads it."""

    text: str
    is_whole: bool
    """Nothing that a reader may want was left out."""
    is_binary: bool = False


def printed(path: Path, *, limit: int, omitted_bytes: int = 0, how_to_get: str = "") -> Printed:
    """The spool of a command within `limit` characters; memory does not depend on its size."""
    head, tail, size = _ends(path)
    total = size + omitted_bytes
    if tail:
        head, tail = _without_begun(head), _without_rest(tail)
    sample = head + tail
    if is_binary(sample):
        where = f" {_sentence(how_to_get)}" if how_to_get else ""
        return Printed(
            text=f"[binary output or another encoding, {total:,} bytes, not shown; pipe it through `xxd | head`, `file"
            f" -` or `iconv`.{where}]",
            is_whole=False,
            is_binary=True,
        )
    gap = total - len(sample)
    before, after = readable(head), readable(tail)
    text = before if not tail else before + after
    cut = clip_lines(text, limit, hidden_bytes=gap, head_chars=len(before) if gap else 0, how_to_get=how_to_get)
    return Printed(text=_with_notices(cut, sample), is_whole=cut == text and not gap)


def _ends(path: Path) -> tuple[bytes, bytes, int]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= HEAD_BYTES + TAIL_BYTES:
                return file.read(size), b"", size
            head = file.read(HEAD_BYTES)
            file.seek(size - TAIL_BYTES)
            return head, file.read(TAIL_BYTES), size
    except FileNotFoundError:
        return b"", b"", 0


def _without_begun(head: bytes) -> bytes:
    """Without a character at the end of which bytes are missing."""
    for size in range(1, min(LONGEST_CHARACTER, len(head)) + 1):
        if FIRST_BYTE.match(head, len(head) - size):
            return head if _is_utf8(head[-size:]) else head[:-size]
    return head


def _without_rest(tail: bytes) -> bytes:
    """Without the last bytes of a character that began earlier."""
    first = FIRST_BYTE.search(tail, 0, LONGEST_CHARACTER)
    return tail[first.start() :] if first else tail


def is_binary(data: bytes) -> bool:
    """Whether so much of it is no UTF-8 text that showing it helps nobody."""
    if len(data) < MIN_BINARY_BYTES:
        return False
    text = data.decode("utf-8", "replace")
    plain = ANSI.sub("", text)
    bad = plain.count("\N{REPLACEMENT CHARACTER}") + plain.count("\0") + len(CONTROLS.findall(plain))
    return bad > MAX_BAD_SHARE * max(1, len(plain))


def readable(data: bytes) -> str:
    """Text without escape sequences and control characters; of a line that was overwritten, the last state."""
    text = data.decode("utf-8", "replace")
    if "\x1b" in text or "\x9b" in text:
        text = ANSI.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    if "\b" in text:
        text = OVERSTRUCK.sub("", text)
    return CONTROLS.sub("", text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def _last_state(line: str) -> str:
    states = [state for state in line.split("\r") if state]
    return states[-1] if states else ""


def _with_notices(text: str, sample: bytes) -> str:
    notices = []
    if "\N{REPLACEMENT CHARACTER}" in text and not _is_utf8(sample):
        notices.append("[the output was not valid UTF-8; bad bytes are shown as \N{REPLACEMENT CHARACTER}]")
    if b"\0" in sample:
        notices.append("[NUL bytes are shown as \N{REPLACEMENT CHARACTER}]")
    if not notices:
        return text
    return "\n".join([text.rstrip("\n"), *notices])


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def clip_lines(text: str, limit: int, *, hidden_bytes: int = 0, head_chars: int = 0, how_to_get: str = "") -> str:
    """Long lines cut, then head (40 %) and tail (60 %) cut at line ends, within `limit` characters in all.

    `hidden_bytes` were left out of the text already, after its first `head_chars` characters.
    """
    if not hidden_bytes and len(text) <= limit and _fits(text):
        return text
    shortened = "\n".join(clip_line(line) for line in text.split("\n"))
    if not hidden_bytes and len(shortened) <= limit:
        return shortened
    front = text[:head_chars] if hidden_bytes else text
    back = text[head_chars:] if hidden_bytes else text
    room = max(0, limit - len(_marker(10**9, hidden_bytes + 10**12, how_to_get=how_to_get)))
    head = _head(front, int(room * HEAD_SHARE))
    tail = _tail(back, room - len(head))
    left_out = text.count("\n") - head.count("\n") - tail.count("\n")
    return (
        head + _marker(left_out, _size(text) - _size(head) - _size(tail) + hidden_bytes, how_to_get=how_to_get) + tail
    )


def _fits(text: str) -> bool:
    return len(text) <= MAX_LINE or all(len(line) <= MAX_LINE for line in text.split("\n"))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def clip_line(line: str, limit: int = MAX_LINE) -> str:
    """One line with head and tail within `limit` characters, saying how many are missing."""
    if len(line) <= limit:
        return line
    marker = f" [… {len(line) - limit:,} more characters …] "
    room = max(0, limit - len(marker))
    head = room * 3 // 4
    tail = room - head
    marker = f" [… {len(line) - head - tail:,} more characters …] "
    return (line[:head] + marker + (line[-tail:] if tail else ""))[:limit]


def _marker(lines: int, size: int, *, how_to_get: str) -> str:
    more = f"; {how_to_get}" if how_to_get else ""
    return f"\n[… {max(lines, 0):,} lines / {max(size, 0):,} bytes omitted{more} …]\n"


def _head(text: str, room: int) -> str:
    lines: list[str] = []
    used = 0
    for line in _lines_forward(text):
        cut = clip_line(line)
        if used + len(cut) + 1 > room:
            return "\n".join(lines) if lines else clip_line(line, room)
        lines.append(cut)
        used += len(cut) + 1
    return "\n".join(lines)


def _lines_forward(text: str) -> list[str]:
    return text[: HEAD_BYTES * 4].split("\n")


def _tail(text: str, room: int) -> str:
    lines: list[str] = []
    used = 0
    for line in reversed(text.split("\n")):
        cut = clip_line(line)
        if used + len(cut) + 1 > room:
            break
        lines.append(cut)
        used += len(cut) + 1
    if not any(lines):
        return clip_line(text.rstrip("\n").rpartition("\n")[2], room)
    return "\n".join(reversed(lines))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
