"""The official SDK's client behind `link.Dialler`: both generations of the protocol, over stdio and HTTP."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, cast

from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    AudioContent,
    BlobResourceContents,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    ResourceLink,
    ServerNotification,
    TextContent,
    ToolListChangedNotification,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from xnagent import __version__
from xnagent.core.mcp import MOST_TOOLS, Offer
from xnagent.core.text import Json
from xnagent.errors import Caught
from xnagent.ports import Running, Services, Workspace
from xnagent.tools.mcp import http, stdio
from xnagent.tools.mcp.link import Answer, Endpoint, Part, Peer, PeerError
from xnagent.tools.mcp.stdio import Streams

MOST_PAGES: Final = 50
Why: TypeAlias = Callable[[], Awaitable[str]]
Content: TypeAlias = "TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource"
_RESULT: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(CallToolResult | InputRequiredResult)
_LOGGERS: Final = ("mcp", "client", "httpx2", "httpcore2")
"""They would write whole tracebacks, and headers, of what is told as a fault here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkPeer:
    """A server behind the SDK's session."""

    session: ClientSession
    protocol: str
    wire: stdio.Wire
    """Of a service; of a server with an address nothing is known here."""
    why: Why
    """What else is known when it went away."""

    @property
    def is_open(self) -> bool:
        """Whether a service's output has not ended."""
        return not self.wire.has_ended

    async def offers(self) -> tuple[Offer, ...]:
        """Its tools, from all pages."""
        found: list[Offer] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            async with _faults(self.why):
                page = await self.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            found += [
                Offer(tool=tool.name, description=tool.description or tool.title or "", parameters=tool.input_schema)
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None or len(found) > MOST_TOOLS:
                break
        return tuple(found)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Call one of them. What only a person could answer is not answered."""
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments)))
        async with _faults(self.why):
            result = await self.session.send_request(request, _RESULT)
        if isinstance(result, InputRequiredResult):
            raise PeerError("MCP_INPUT", "it asks for something that only a person could answer, and nobody is there")
        structured = cast("Json", result.structured_content)
        return Answer(
            parts=tuple(_part(block) for block in result.content), structured=structured, is_error=result.is_error
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkDialler:
    """Opens connections with the SDK's client. It offers servers neither sampling, nor elicitation, nor roots."""

    services: Services

    @asynccontextmanager
    async def open(
        self, endpoint: Endpoint, *, place: Workspace | None, protocol: str, on_change: Callable[[], None]
    ) -> AsyncIterator[Peer]:
        """A connection that is ready for calls."""
        _quiet()

        async def hear(message: ServerNotification | Exception) -> None:
            if isinstance(message, ToolListChangedNotification):
                on_change()

        wire = stdio.Wire()
        async with self._streams(endpoint, wire, place=place) as (transport, why):
            client = Client(
                transport,
                mode=_mode(protocol),
                cache=None,
                message_handler=hear,
                client_info=Implementation(name="xnagent", version=__version__),
            )
            async with _faults(why):
                await client.__aenter__()
            try:
                yield SdkPeer(session=client.session, protocol=client.protocol_version, wire=wire, why=why)
            finally:
                await client.__aexit__(None, None, None)

    @asynccontextmanager
    async def _streams(
        self, endpoint: Endpoint, wire: stdio.Wire, *, place: Workspace | None
    ) -> AsyncIterator[tuple[AbstractAsyncContextManager[Streams], Why]]:
        """How the client reaches the server, and what to ask why it does not."""
        if endpoint.service is None:
            seconds = max(endpoint.start_seconds, endpoint.call_seconds)
            yield http.streams(endpoint.url, headers=endpoint.headers, seconds=seconds), _unknown
            return
        if place is None:
            raise PeerError("MCP_DOWN", "there is no workspace to run it in", is_over=True)
        async with self.services.start(place, endpoint.service) as running:
            yield stdio.streams(running, wire), partial(_why, running, wire)


async def _why(running: Running, wire: stdio.Wire) -> str:
    said = await running.told()
    return "; ".join(part for part in (wire.fault or wire.noise, f"it said: {said}" if said else "") if part)


async def _unknown() -> str:
    return ""


def _mode(protocol: str) -> str:
    """What is known is not found out again: old servers can be slow to refuse the question."""
    if protocol in MODERN_PROTOCOL_VERSIONS:
        return protocol
    return "legacy" if protocol in HANDSHAKE_PROTOCOL_VERSIONS else "auto"


@asynccontextmanager
async def _faults(why: Why = _unknown) -> AsyncIterator[None]:
    """The SDK's errors as faults of the server."""
    caught = Caught(Exception)
    with caught:
        yield
    if caught.error is not None:
        raise _fault(caught.error, await why()) from caught.error


def _fault(error: Exception, why: str) -> PeerError:
    match error:
        case PeerError():
            return error
        case MCPError(code=code) if code == CONNECTION_CLOSED:
            return PeerError("MCP_DOWN", f"its connection ended{f' ({why})' if why else ''}", is_over=True)
        case MCPError():
            return PeerError("MCP_REFUSED", f"it answered with error {error.code}: {error.message}")
        case ValidationError():
            what = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(map(str, what["loc"]))
            return PeerError("MCP_PROTOCOL", f"its answer does not fit the protocol ({place}: {what['msg']})")
        case RuntimeError():
            return PeerError("MCP_PROTOCOL", str(error))
        case _:
            return PeerError("MCP_DOWN", str(error) or type(error).__name__, is_over=True)


def _part(block: Content) -> Part:
    match block:
        case TextContent():
            return Part(kind="text", text=block.text)
        case ImageContent() | AudioContent():
            return Part(kind="binary", text=block.type, media_type=block.mime_type, data=_decoded(block.data))
        case ResourceLink():
            return Part(kind="link", text=f"{block.name}: {block.uri}", media_type=block.mime_type or "")
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            media_type = resource.mime_type or ""
            return Part(kind="binary", text=resource.uri, media_type=media_type, data=_decoded(resource.blob))
        case EmbeddedResource(resource=resource):
            return Part(kind="text", text=f"[resource {resource.uri}]\n{getattr(resource, 'text', '')}")


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _quiet() -> None:
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
