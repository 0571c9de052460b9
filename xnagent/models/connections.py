"""Connections to one endpoint, each a pool of one.

A pool of many looks through all its connections for every request: with 200 agents in one process that took most of
the time (`benchmarks/many.py`). So each exchange has one of its own; what is free is used again, the newest first.
"""

from __future__ import annotations

import ssl
from typing import Final

import httpx

from xnagent.errors import UsageError
from xnagent.models.faults import short

MOST_FREE: Final = 40
"""How many connections that nobody uses are kept."""


class Connections:
    """Connections to one endpoint."""

    def __init__(self, verify: ssl.SSLContext, proxy: str | None) -> None:
        """Raises UsageError for a proxy that cannot be used."""
        self._verify = verify
        try:
            self._proxy = None if proxy is None else httpx.Proxy(proxy)
            self._free = [self._new()]
        except (ValueError, ImportError) as error:
            raise UsageError(
                f"PROXY_INVALID: the proxy settings in the environment cannot be used: {short(str(error))}"
            ) from None

    def _new(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=self._verify, proxy=self._proxy, limits=httpx.Limits(max_connections=1))

    def take(self) -> httpx.AsyncHTTPTransport:
        """One that nobody uses."""
        return self._free.pop() if self._free else self._new()

    async def give_back(self, connection: httpx.AsyncHTTPTransport) -> None:
        """The exchange is over."""
        if len(self._free) < MOST_FREE:
            self._free.append(connection)
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        """Close what is free."""
        while self._free:
            await self._free.pop().aclose()
