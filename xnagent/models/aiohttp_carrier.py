"""An httpx transport on aiohttp, which is the extra `fast`; imported only where it is used."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import httpx


class AiohttpCarrier(httpx.AsyncBaseTransport):
    """Carries requests over one aiohttp session; its errors are httpx's."""

    def __init__(self, verify: ssl.SSLContext, proxy: str | None) -> None:
        """Belongs to the running asyncio loop."""
        self._proxy = proxy
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=verify),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it; the response's stream reads on."""
        limits = request.extensions["timeout"]
        with _translated(has_answer=False):
            answer = await self._session.request(
                request.method,
                str(request.url),
                headers=request.headers,
                data=request.content,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(sock_connect=limits["connect"], sock_read=limits["read"]),
                proxy=self._proxy,
            )
        return httpx.Response(answer.status, headers=list(answer.raw_headers), stream=_Stream(answer))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


class _Stream(httpx.AsyncByteStream):
    """The body of an answer as it comes."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated(has_answer=True):
            while chunk := await self._answer.content.readany():
                yield chunk

    async def aclose(self) -> None:
        """Give the connection back if the body was read to its end, else close it."""
        self._answer.release()


@contextmanager
def _translated(*, has_answer: bool) -> Iterator[None]:
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise httpx.ConnectTimeout(str(error)) from error
    except (aiohttp.ServerTimeoutError, TimeoutError) as error:
        raise httpx.ReadTimeout(str(error)) from error
    except aiohttp.ClientConnectorError as error:
        raise httpx.ConnectError(str(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise (httpx.ReadError if has_answer else httpx.ConnectError)(str(error)) from error
