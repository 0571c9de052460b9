#!/usr/bin/env python
"""A provider that costs next to nothing: every request gets the same streamed answer after a fixed delay.

Takes the delay in ms and, if they shall be others, the arguments of the call that it makes. Prints its port, serves
until its standard input ends, then prints how many requests it answered and when the first one was there.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import cast

LENGTH = b"content-length:"


def answer(arguments: str = '{"n":1}') -> bytes:
    """One chat completion as server-sent events: a short text and one call of the tool `nothing`."""
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "nothing", "arguments": arguments}}
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 900}}
    chunks = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Next."}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": usage},
    ]
    events = [f"data: {json.dumps({'id': 'x', 'model': 'm', **chunk})}\n\n" for chunk in chunks]
    body = ("".join(events) + "data: [DONE]\n\n").encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection(asyncio.Protocol):
    """Counts the bytes of a request and answers later."""

    requests = 0
    first_at: float | None = None
    delay_seconds = 0.05
    content = answer()

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.answer: Callable[[bytes], None] = print

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember how to answer."""
        self.answer = cast("asyncio.WriteTransport", transport).write

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end]).lower()
        at = head.index(LENGTH) + len(LENGTH)
        size = int(head[at:].partition(b"\r\n")[0])
        if len(self.buffer) < end + 4 + size:
            return
        self.buffer.clear()
        Connection.requests += 1
        Connection.first_at = Connection.first_at or time.monotonic()
        asyncio.get_running_loop().call_later(self.delay_seconds, self.answer, self.content)


def tell(text: str) -> None:
    """One line for who started it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def serve() -> None:
    """Until standard input ends."""
    loop = asyncio.get_running_loop()
    Connection.delay_seconds = float(sys.argv[1]) / 1000
    Connection.content = answer(*sys.argv[2:])
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    tell(str(server.sockets[0].getsockname()[1]))
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()
    tell(json.dumps({"requests": Connection.requests, "first_at": Connection.first_at}))


if __name__ == "__main__":
    asyncio.run(serve())
