"""The HTTP that servers with an address are spoken to by: no redirects to elsewhere, limits of size and time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, cast

import httpx2
from mcp.client.streamable_http import streamable_http_client

from xnagent.tools.mcp.link import PeerError
from xnagent.tools.mcp.stdio import LINE_BYTES, Streams

CONNECT_SECONDS: Final = 15.0


class _Limited(httpx2.AsyncByteStream):
    """A body that is read up to a size."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body
        self._left = LINE_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            self._left -= len(chunk)
            if self._left < 0:
                raise PeerError("MCP_PROTOCOL", f"it sent a message of more than {LINE_BYTES:,} bytes", is_over=True)
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


async def _limit(response: httpx2.Response) -> None:
    """Streams of events have a limit for each event; everything else has one as a whole."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        response.stream = _Limited(cast("httpx2.AsyncByteStream", response.stream))


@asynccontextmanager
async def streams(url: str, *, headers: Mapping[str, str], seconds: float) -> AsyncIterator[Streams]:
    """The streams that a session of the SDK talks over; the SDK follows redirects within the address's origin only."""
    client = httpx2.AsyncClient(
        headers=dict(headers),
        timeout=httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds)),
        event_hooks={"response": [_limit]},
        follow_redirects=False,
    )
    transport = cast(
        "AbstractAsyncContextManager[Streams]",
        streamable_http_client(url, http_client=client, max_sse_event_size=LINE_BYTES),
    )
    async with client, transport as pair:
        yield pair
