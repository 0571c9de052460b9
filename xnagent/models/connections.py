"""What carries a request: httpx's own transport, or aiohttp behind httpx's interface where it is installed.

Measured with 200 agents in one process (`benchmarks/many.py`): httpx's shared pool looks through all its connections
for every request, so each exchange gets a pool of one; aiohttp needs half of the time of that (extra `fast`). Both are
opened when the first request is made, not before.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
from importlib.util import find_spec
from typing import Final, Protocol, cast

import anyio.lowlevel
import httpx

from xnagent.errors import UsageError
from xnagent.models.faults import short

MOST_FREE: Final = 40
"""How many connections that nobody uses are kept."""


class Connections(Protocol):
    """Connections to one endpoint."""

    def take(self) -> httpx.AsyncBaseTransport:
        """What carries one exchange."""

    async def give_back(self, carrier: httpx.AsyncBaseTransport) -> None:
        """The exchange is over."""

    async def aclose(self) -> None:
        """Close what is free."""


def open_connections(verify: ssl.SSLContext, proxy: str | None) -> Connections:
    """The best that works here, for the event loop that runs. Raises UsageError for a proxy that cannot be used."""
    try:
        checked = None if proxy is None else httpx.Proxy(proxy)
        if find_spec("aiohttp") is None or not _is_asyncio() or (checked is not None and checked.url.scheme != "http"):
            return _Single(verify, checked)
    except (ValueError, ImportError) as error:
        raise UsageError(
            f"PROXY_INVALID: the proxy settings in the environment cannot be used: {short(str(error))}"
        ) from None
    module = importlib.import_module("xnagent.models.aiohttp_carrier")
    return _Shared(cast("httpx.AsyncBaseTransport", module.AiohttpCarrier(verify, proxy)))


def _is_asyncio() -> bool:
    return isinstance(anyio.lowlevel.current_token().native_token, asyncio.AbstractEventLoop)


class _Single:
    """A pool of one connection for each exchange under way; what is free is used again, the newest first."""

    def __init__(self, verify: ssl.SSLContext, proxy: httpx.Proxy | None) -> None:
        self._verify = verify
        self._proxy = proxy
        self._free: list[httpx.AsyncBaseTransport] = [self._new()]

    def _new(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=self._verify, proxy=self._proxy, limits=httpx.Limits(max_connections=1))

    def take(self) -> httpx.AsyncBaseTransport:
        """One that nobody uses."""
        return self._free.pop() if self._free else self._new()

    async def give_back(self, carrier: httpx.AsyncBaseTransport) -> None:
        """Keep it for another exchange."""
        if len(self._free) < MOST_FREE:
            self._free.append(carrier)
        else:
            await carrier.aclose()

    async def aclose(self) -> None:
        """Close what is free."""
        while self._free:
            await self._free.pop().aclose()


class _Shared:
    """One carrier for all, which finds a connection at once however many there are."""

    def __init__(self, carrier: httpx.AsyncBaseTransport) -> None:
        self._carrier = carrier

    def take(self) -> httpx.AsyncBaseTransport:
        """The one for all."""
        return self._carrier

    async def give_back(self, carrier: httpx.AsyncBaseTransport) -> None:
        """Nothing: connections go back by themselves."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._carrier.aclose()
