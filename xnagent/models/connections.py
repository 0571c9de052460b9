"""Connections to one endpoint, each a pool of one.

A pool of many looks through all its connections for every request: with 200 agents in one process that took most of
the time (`benchmarks/many.py`). So each exchange has one of its own; what is free is used again, the newest first.
"""

from __future__ import annotations

import ssl
from typing import Final

import anyio
import httpx

from xnagent.errors import UsageError
from xnagent.models.faults import short

MOST_FREE: Final = 40
"""How many connections that nobody uses are kept."""
STALE_SECONDS: Final = 1.0
"""A used connection that ends sooner than this, without a byte, was being closed when the request went out."""


class Connections:
    """Connections to one endpoint."""

    def __init__(self, verify: ssl.SSLContext, proxy: str | None) -> None:
        """Raises UsageError for a proxy that cannot be used."""
        self._verify = verify
        self._free: list[httpx.AsyncHTTPTransport] = []
        try:
            self._proxy = None if proxy is None else httpx.Proxy(proxy)
            self._first: httpx.AsyncHTTPTransport | None = self._new()
        except (ValueError, ImportError) as error:
            raise UsageError(
                f"PROXY_INVALID: the proxy settings in the environment cannot be used: {short(str(error))}"
            ) from None

    def _new(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=self._verify, proxy=self._proxy, limits=httpx.Limits(max_connections=1))

    async def send(self, request: httpx.Request) -> tuple[httpx.Response, httpx.AsyncHTTPTransport]:
        """The answer's beginning, and the connection it comes over, which is to be given back; raises httpx.HTTPError.

        llama.cpp's server, and others, close a connection that they said they keep. A request that meets such an end is
        sent once more, over a new connection: no answer had begun, and none was refused.
        """
        began = anyio.current_time()
        if self._free:
            try:
                return await self._send(request, self._free.pop())
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if anyio.current_time() - began > STALE_SECONDS:
                    raise
        return await self._send(request, self._unused())

    async def _send(
        self, request: httpx.Request, connection: httpx.AsyncHTTPTransport
    ) -> tuple[httpx.Response, httpx.AsyncHTTPTransport]:
        try:
            return await connection.handle_async_request(request), connection
        except BaseException:
            with anyio.CancelScope(shield=True):
                await connection.aclose()
            raise

    def _unused(self) -> httpx.AsyncHTTPTransport:
        first, self._first = self._first, None
        return first or self._new()

    async def give_back(self, connection: httpx.AsyncHTTPTransport) -> None:
        """The exchange is over."""
        if len(self._free) < MOST_FREE:
            self._free.append(connection)
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        """Close what is free."""
        if self._first is not None:
            await self._first.aclose()
        while self._free:
            await self._free.pop().aclose()
