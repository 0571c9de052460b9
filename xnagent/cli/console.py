"""The process's streams. stdout carries only what was asked for; whatever else writes there ends up on stderr."""

from __future__ import annotations

import errno
import io
import json
import os
import select
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Final, Literal

from xnagent.core.masking import Mask
from xnagent.core.text import Json, clean
from xnagent.inspect.plain import visible

Output = Literal["text", "json", "jsonl"]
STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
ASSUMED_COLUMNS: Final = 80
READER_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EIO, errno.EBADF})
"""A pipe that nobody reads any more, a terminal that was closed."""


class Console:
    """Writes whole lines, in UTF-8 whatever the locale says; a reader that went away is no error (B058)."""

    def __init__(self, descriptor: int, *, output: Output = "text", verbosity: int = 0) -> None:
        """`descriptor` is the real stdout; `verbosity` is -1 for quiet, 1 for debug."""
        self.output: Output = output
        self.verbosity = verbosity
        self.has_final = False
        """The final record was written: there is only one."""
        self.lost: OSError | None = None
        """Why stdout did not take everything, if its reader is still there: a full disk."""
        self.mask = Mask()
        """Takes secrets out of whatever is written."""
        self._descriptor = descriptor
        self._is_gone: set[int] = set()

    @property
    def is_terminal(self) -> bool:
        """Whether a person watches stderr."""
        return _is_terminal(STDERR)

    @property
    def columns(self) -> int | None:
        """How wide the terminal is that stdout goes to; None: it goes elsewhere, or to one that can only take lines."""
        if not _is_terminal(self._descriptor) or os.environ.get("TERM", "") in {"", "dumb"}:
            return None
        try:
            width = os.get_terminal_size(self._descriptor).columns
        except OSError:
            return None
        return width or ASSUMED_COLUMNS

    def answer(self, text: str) -> None:
        """Text to stdout; what a terminal would obey is made visible where stdout is one."""
        text = clean(text)
        shown = visible(text, keep="\n\t") if _is_terminal(self._descriptor) else text
        self.raw(shown.encode() + (b"" if shown.endswith("\n") else b"\n"))

    def raw(self, content: bytes) -> None:
        """Bytes to stdout as they are."""
        self._write(self._descriptor, content)

    def record(self, record: Mapping[str, Json]) -> None:
        """One object on one line of stdout."""
        self.has_final = self.has_final or record.get("type") == "final"
        self.raw(clean(json.dumps(record, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n")

    def say(self, text: str) -> None:
        """A line to stderr, unless it should be quiet."""
        if self.verbosity >= 0:
            self.warn(text)

    def warn(self, text: str) -> None:
        """A line to stderr in any case."""
        self._write(STDERR, visible(clean(text), keep="\n").encode() + b"\n")

    def draw(self, text: str) -> None:
        """Replace the live line on a terminal; empty: take it away."""
        self._write(STDERR, b"\r\x1b[K" + visible(clean(text)).encode())

    def _write(self, descriptor: int, content: bytes) -> None:
        if descriptor in self._is_gone:
            return
        try:
            write_all(descriptor, self.mask.data(content))
        except OSError as error:
            self._is_gone.add(descriptor)
            if descriptor == self._descriptor and error.errno not in READER_GONE:
                self.lost = error


def write_all(descriptor: int, content: bytes) -> None:
    """Write everything, also to a pipe that somebody made non-blocking."""
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def flushed(code: int) -> int:
    """The code, after what `print` wrote is out; 1 if it did not fit. A reader that went away is no error."""
    try:
        for stream in filter(None, (sys.stdout,)):
            stream.flush()
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, STDOUT)
        os.close(null)
        return code if error.errno in READER_GONE else code or 1
    return code


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


@contextmanager
def claimed_stdout() -> Iterator[int]:
    """The real stdout as a descriptor of its own; meanwhile descriptor 1 and `print` lead to stderr.

    A child that inherits descriptor 1 and a library that prints can't get between the records.
    """
    _fill_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
            stream.flush()
    private = os.dup(STDOUT)
    try:
        os.dup2(STDERR, STDOUT)
        with redirect_stdout(sys.stderr):
            yield private
    finally:
        os.dup2(private, STDOUT)
        os.close(private)


def _fill_closed() -> None:
    """Open what the caller closed, so that no file of ours gets the number of a standard stream."""
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
