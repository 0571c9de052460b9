"""JSON-RPC over the input and output of a service: one message a line, and whatever else a server may print."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from xnagent.ports import Running

LINE_BYTES: Final = 8 * 1024 * 1024
"""No message is longer."""
RUBBISH_BYTES: Final = 1024 * 1024
"""So much of other output is passed over; a server that prints more is given up."""
SHOWN_CHARACTERS: Final = 120

Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]
Inbound: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]


@dataclass(slots=True, kw_only=True)
class Wire:
    """What came from a server's output so far."""

    rest: bytearray = field(default_factory=bytearray)
    """Of a line that has not ended."""
    rubbish_bytes: int = 0
    first_rubbish: str = ""
    fault: str = ""
    """Why nothing more is read."""
    has_ended: bool = False

    def messages(self, data: bytes) -> Iterator[SessionMessage]:
        """The messages that the data completes."""
        *lines, tail = data.split(b"\n")
        for line in lines:
            whole = bytes(self.rest) + line
            self.rest.clear()
            if len(whole) <= LINE_BYTES and (message := self._message(whole)) is not None:
                yield message
            self._judge(len(whole))
        self.rest += tail
        self._judge(len(self.rest))

    def _judge(self, length: int) -> None:
        if length > LINE_BYTES:
            self.fault = f"it sent a message of more than {LINE_BYTES:,} bytes"
            self.rest.clear()
        elif self.rubbish_bytes > RUBBISH_BYTES:
            self.fault = f"it prints what is no message of the protocol, such as {self.first_rubbish!r}"

    def _message(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self.rubbish_bytes += len(line) + 1
            self.first_rubbish = self.first_rubbish or line[:SHOWN_CHARACTERS].decode("utf-8", "replace")
            return None

    @property
    def noise(self) -> str:
        """What else it printed, for whoever wonders why it does not answer."""
        return f"it prints what is no message of the protocol: {self.first_rubbish!r}" if self.first_rubbish else ""


@asynccontextmanager
async def streams(running: Running, wire: Wire) -> AsyncIterator[Streams]:
    """The streams that a session of the SDK talks over."""
    inbound_send, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbound, outbound_receive = anyio.create_memory_object_stream[SessionMessage](0)
    with inbound_send, inbound, outbound, outbound_receive:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(_read, running, wire, inbound=inbound_send))
            group.start_soon(partial(_write, running, outbound_receive, inbound=inbound_send))
            yield inbound, outbound
            group.cancel_scope.cancel()


_GONE: Final = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


async def _read(running: Running, wire: Wire, *, inbound: Inbound) -> None:
    """When the output ends, or is of no use, the session sees that its stream ends."""
    with inbound, suppress(*_GONE):
        while not wire.fault:
            for message in wire.messages(await running.receive()):
                await inbound.send(message)
    wire.has_ended = True


async def _write(running: Running, outbound: MemoryObjectReceiveStream[SessionMessage], *, inbound: Inbound) -> None:
    with outbound:
        try:
            async for message in outbound:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await running.send(f"{text}\n".encode())
        except _GONE:
            inbound.close()
