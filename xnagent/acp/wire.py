"""JSON-RPC messages as lines of stdin and stdout; a line that is none is answered with an error."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
import anyio.to_thread

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
LONGEST_BYTES: Final = 64 * 1024 * 1024
PIECE_BYTES: Final = 65_536


class LineWire:
    """What the SDK reads messages from and writes them to: a descriptor that is waited for, and a blocking writer."""

    def __init__(self, descriptor: int, write: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._read = bytearray()
        self._write = write
        self._turn = anyio.Lock()
        self._asked: set[str] = set()
        self._answered = anyio.Event()

    async def send(self, message: Mapping[str, Any]) -> None:
        """One line. A client that is gone reads nothing any more, which its end of input tells, too."""
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        async with self._turn:
            await anyio.to_thread.run_sync(self._write, line)
        if "method" not in message:
            self._asked.discard(repr(message.get("id")))
            self._answered.set()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end of the input."""
        while line := await self._line():
            if not line.strip():
                continue
            message = _decoded(line)
            if isinstance(message, dict) and isinstance(message.get("method", ""), str):
                if "method" in message and "id" in message:
                    self._asked.add(repr(message["id"]))
                return message
            code, told = (PARSE_ERROR, "not JSON") if message is None else (INVALID_REQUEST, "not a JSON-RPC message")
            error = {"code": code, "message": told, "data": {"line": line[:200].decode("utf-8", "replace").strip()}}
            await self.send({"jsonrpc": "2.0", "id": None, "error": error})
        return None

    async def until_answered(self) -> None:
        """Wait until every request that came has its answer."""
        while self._asked:
            self._answered = anyio.Event()
            await self._answered.wait()

    async def _line(self) -> bytes:
        """Up to and with the next line feed, or the rest; empty at the end of the input."""
        searched = 0
        while (end := self._read.find(b"\n", searched)) < 0 and len(self._read) < LONGEST_BYTES:
            searched = len(self._read)
            with suppress(PermissionError):  # a file, which is always ready
                await anyio.wait_readable(self._descriptor)
            piece = os.read(self._descriptor, PIECE_BYTES)
            if not piece:
                break
            self._read += piece
        size = end + 1 if end >= 0 else len(self._read)
        line = bytes(self._read[:size])
        del self._read[:size]
        return line

    async def close(self) -> None:
        """Nothing is left to be done: every line is written whole."""


def _decoded(line: bytes) -> object | None:
    """The JSON value; None if it is none."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return False if value is None else value
