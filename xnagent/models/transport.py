"""HTTP and server-sent events: the only module that knows httpx.

One attempt is one `exchange`. It ends in bounded time whatever the other side does, and every way to fail is a
ModelError whose message holds neither the key nor a header.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Final
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx

from xnagent.core.values import dataclass
from xnagent.errors import ModelError, UsageError
from xnagent.models.connections import Connections
from xnagent.models.decoding import Decoder, is_whole
from xnagent.models.faults import classify, is_html, redact, short
from xnagent.models.gate import Turn
from xnagent.models.sse import EventParser

MAX_BODY_BYTES: Final = 1 << 20
"""How much of an error is read."""
DRAIN_SECONDS: Final = 0.5
"""How long the end of a finished answer is awaited, so that its connection can be used again."""
MAX_EVENT_BYTES: Final = 16 << 20
"""How much may come without completing an event, and how much of an answer that is no stream is read."""
KEY: Final = "{key}"
"""Stands for the key in a wire's headers; only the transport knows it."""

_VERSION: Final = re.compile(r"/v\d+(?=/)")
_BOM: Final = b"\xef\xbb\xbf"
_FIELDS: Final = (b"data", b"event", b"id", b"retry", b":")
"""How a line of server-sent events begins."""
_LONGEST_FIELD: Final = max(map(len, _FIELDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long an attempt may take."""

    connect_seconds: float = 15.0
    idle_seconds: float = 120.0
    """Without a byte, before the headers as well as after them."""
    progress_seconds: float = 300.0
    """Without a piece of the answer, keep-alives or not."""
    total_seconds: float = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a wire's requests go, and how they show the key."""

    path: str
    """Below the base URL; a version that the base URL ends with is not repeated."""
    headers: Mapping[str, str]
    """Its headers, with `KEY` where the key stands; such a header is left out if there is no key."""


class HttpTransport:
    """An endpoint. Opens connections when they are first needed."""

    def __init__(self, base_url: str, key: str | None = None, *, timeouts: Timeouts | None = None) -> None:
        """Raises UsageError for an address or a key that cannot be used."""
        self._url = _parse_url(base_url)
        self._key = _checked_key(key)
        self._timeouts = timeouts or Timeouts()
        self._limits = httpx.Timeout(
            self._timeouts.idle_seconds, connect=self._timeouts.connect_seconds, pool=None
        ).as_dict()
        self._connections: Connections | None = None
        self._places: dict[str, tuple[httpx.URL, httpx.Headers]] = {}
        """By path."""

    @property
    def host(self) -> str:
        """The endpoint's host, for people."""
        return self._url.host

    async def exchange(self, to: Target, content: bytes, *, decoder: Decoder, told: Turn | None = None) -> float | None:
        """Post the content, feed the answer to the decoder; seconds until the first piece of the answer.

        Returns when the decoder has what it needs or the stream ended; whether it was whole, the decoder knows.
        """
        attempt = _Attempt(decoder=decoder, started=anyio.current_time(), timeouts=self._timeouts, told=told)
        try:
            await self._bounded(self._request(to, content), attempt)
        except ModelError as error:
            raise self._redacted(error) from None
        except httpx.HTTPError as error:
            self._translate(error, attempt)
        return attempt.first_piece_seconds

    async def aclose(self) -> None:
        """Close the connections."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.aclose()

    async def _bounded(self, request: httpx.Request, attempt: _Attempt) -> None:
        limits = self._timeouts
        attempt.extend(limits.progress_seconds)
        with attempt.scope:
            await self._stream(request, attempt)
        if attempt.error is not None:
            raise attempt.error
        if attempt.decoder.is_complete or not attempt.scope.cancelled_caught:
            return
        if attempt.scope.deadline >= attempt.started + limits.total_seconds:
            raise ModelError(f"timeout: no whole answer within {limits.total_seconds:g} s (total)", fault="timeout")
        raise ModelError(
            f"timeout: no piece of an answer for {limits.progress_seconds:g} s (no progress)", fault="timeout"
        )

    async def _stream(self, request: httpx.Request, attempt: _Attempt) -> None:
        connections = self._opened()
        response, connection = await connections.send(request)
        try:
            attempt.begin(response)
            await self._read(response, attempt)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
                await connections.give_back(connection)

    async def _read(self, response: httpx.Response, attempt: _Attempt) -> None:
        if response.status_code != HTTPStatus.OK:
            body = await _read_some(response.aiter_bytes(), most_bytes=MAX_BODY_BYTES)
            raise classify(response.status_code, response.headers, body=body, now=datetime.now(UTC))
        chunks = _chunks_of(response)
        start = await _beginning(chunks)
        known = _fields(start)
        if known and not known.startswith(_FIELDS):
            body = await _read_some(chunks, known, most_bytes=MAX_EVENT_BYTES)
            _take_whole(body, decoder=attempt.decoder)
        else:
            await _read_events(chunks, start, attempt=attempt)

    def _opened(self) -> Connections:
        if self._connections is None:
            proxy = _proxy_for(self._url)
            self._connections = Connections(_verification(self._url, proxy), proxy)
        return self._connections

    def _request(self, to: Target, content: bytes) -> httpx.Request:
        if to.path not in self._places:
            self._places[to.path] = self._url.copy_with(path=_joined(self._url.path, to.path)), self._headers_for(to)
        url, headers = self._places[to.path]
        headers = headers.copy()
        headers["Content-Length"] = str(len(content))
        stream = httpx.ByteStream(content)
        return httpx.Request("POST", url, headers=headers, stream=stream, extensions={"timeout": self._limits})

    def _headers_for(self, to: Target) -> httpx.Headers:
        """Host first, and all that httpx would add, so that it is added once."""
        # Identity: a compressing proxy would hold events back until it has a block.
        return httpx.Headers(
            {
                "Host": self._url.netloc.decode("ascii"),
                "Content-Type": "application/json",
                "Accept": "text/event-stream",
                "Accept-Encoding": "identity",
                "Cache-Control": "no-store",
                "User-Agent": "xnagent",
                **{
                    name: text.replace(KEY, self._key)
                    for name, text in to.headers.items()
                    if self._key or KEY not in text
                },
            }
        )

    def _redacted(self, error: ModelError) -> ModelError:
        message = redact(str(error), _secrets(self._key, self._url))
        return ModelError(
            message, fault=error.fault, retry_after_seconds=error.retry_after_seconds, status=error.status
        )

    def _translate(self, error: httpx.HTTPError, attempt: _Attempt) -> None:
        if attempt.decoder.is_complete and attempt.has_headers:
            return
        raise self._redacted(_fault_of(error, host=self._url.host, attempt=attempt)) from None


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """What is known of an exchange while it goes on."""

    decoder: Decoder
    started: float
    timeouts: Timeouts
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Ends the exchange when nothing of the answer came for too long, or all of it takes too long."""
    has_headers: bool = False
    first_piece_seconds: float | None = None
    error: ModelError | None = None
    told: Turn | None = None

    def begin(self, response: httpx.Response) -> None:
        """The headers came."""
        self.has_headers = True
        if self.told is not None:
            self.told.headers(response.status_code, response.headers)

    def feed(self, *events: str) -> None:
        """Hand on the data of each; a piece of the answer moves the limit for progress."""
        has_piece = False
        try:
            for data in events if self.error is None else ():
                has_piece |= self.decoder.feed(data)
        except ModelError as error:
            self.stop(error)
        if has_piece:
            self._note_progress()

    def _note_progress(self) -> None:
        if self.first_piece_seconds is None and self.decoder.has_begun:
            self.first_piece_seconds = anyio.current_time() - self.started
            if self.told is not None:
                self.told.first_piece()
        self.extend(DRAIN_SECONDS if self.decoder.is_done else self.timeouts.progress_seconds)

    def extend(self, seconds: float) -> None:
        """It may go on for so long, if that is not longer than the whole may take."""
        self.scope.deadline = min(anyio.current_time() + seconds, self.started + self.timeouts.total_seconds)

    def stop(self, error: ModelError) -> None:
        """End the exchange with an error.

        Cancelled, not left: an abandoned chain of async generators would be closed by the garbage collector.
        """
        self.error = self.error or error
        self.scope.cancel()


def _chunks_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it comes; through httpx's decoders, which cost more than the rest, only if it is compressed."""
    stream = response.stream
    if isinstance(stream, httpx.AsyncByteStream) and "content-encoding" not in response.headers:
        return aiter(stream)
    return response.aiter_bytes()


async def _beginning(chunks: AsyncIterator[bytes]) -> bytes:
    """As much as it takes to tell a stream from something whole: what a header says of it is often wrong."""
    start = bytearray()
    async for chunk in chunks:
        start += chunk
        known = _fields(bytes(start))
        if known.startswith(_FIELDS) or len(known) >= _LONGEST_FIELD:
            break
    return bytes(start)


def _fields(start: bytes) -> bytes:
    return start.lstrip().removeprefix(_BOM).lstrip()


async def _read_events(chunks: AsyncIterator[bytes], start: bytes, *, attempt: _Attempt) -> None:
    """Hand on each event; at a polite end also one that nothing closed, if it is whole."""
    # A byte order mark would hide the first field's name.
    parser = EventParser()
    attempt.feed(*parser.feed(_fields(start)))
    async for chunk in chunks:
        attempt.feed(*parser.feed(chunk))
        if parser.open_bytes > MAX_EVENT_BYTES:
            attempt.stop(ModelError(f"an event has over {MAX_EVENT_BYTES:,} bytes", fault="protocol"))
    last = parser.finish()
    if last is not None and is_whole(last):
        attempt.feed(last)


async def _read_some(chunks: AsyncIterator[bytes], start: bytes = b"", *, most_bytes: int) -> str:
    content = bytearray(start)
    with anyio.CancelScope() as scope:
        async for chunk in chunks:
            content += chunk
            if len(content) >= most_bytes:
                scope.cancel()
    return content[:most_bytes].decode("utf-8-sig", "replace")


def _take_whole(body: str, *, decoder: Decoder) -> None:
    if is_html(body) or body.lstrip().startswith("<"):
        raise ModelError("the endpoint answered HTML, not JSON; check --base-url", fault="protocol", status=200)
    if not decoder.feed(body) or not decoder.is_complete:
        raise ModelError(
            f"the endpoint answered JSON that is no completion: {short(body)}; check --base-url",
            fault="protocol",
            status=200,
        )


def _fault_of(error: httpx.HTTPError, *, host: str, attempt: _Attempt) -> ModelError:
    limits = attempt.timeouts
    match error:
        case httpx.ConnectTimeout():
            return ModelError(f"timeout: no connection to {host} in {limits.connect_seconds:g} s", fault="timeout")
        case httpx.TimeoutException():
            where = "in the middle of the answer" if attempt.has_headers else "before the answer"
            return ModelError(
                f"timeout: no byte from {host} for {limits.idle_seconds:g} s (idle), {where}", fault="timeout"
            )
        case httpx.DecodingError():
            return ModelError(f"the answer of {host} is compressed in a way that cannot be read", fault="protocol")
        case _ if attempt.has_headers:
            return ModelError(f"the connection to {host} broke in the middle of the answer", fault="incomplete")
        case _ if _is_unknown_host(error):
            return ModelError(f"no such host: {host}; check --base-url and the network", fault="connection")
        case _:
            return ModelError(
                f"no connection to {host}: {short(str(error)) or type(error).__name__}", fault="connection"
            )


def _is_unknown_host(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, socket.gaierror):
            return True
        error = error.__cause__ or error.__context__
    return False


def _parse_url(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url.strip())
    except (httpx.InvalidURL, ValueError) as error:
        raise UsageError(
            f"BASE_URL_INVALID: the base URL cannot be read ({error}); it looks like https://host/v1"
        ) from None
    if url.scheme not in {"http", "https"} or not url.host or "%" in url.host or " " in url.host:
        raise UsageError("BASE_URL_INVALID: the base URL needs a scheme and a host, such as https://host/v1")
    return url


def _joined(base: str, path: str) -> str:
    base, version = base.rstrip("/"), _VERSION.match(path)
    return base + (path[version.end() :] if version and base.endswith(version.group()) else path)


def _checked_key(key: str | None) -> str:
    text = (key or "").strip()
    if not (text.isascii() and text.isprintable()):
        raise UsageError(
            "API_KEY_INVALID: the key holds characters that cannot be in a header; check the variable it is in"
        )
    return text


def _secrets(key: str, url: httpx.URL) -> Iterable[str]:
    return [key, url.password, *url.params.values()]


def _verification(url: httpx.URL, proxy: str | None) -> ssl.SSLContext:
    """How certificates are checked; where there is no TLS, a context that trusts nobody, because it loads no file."""
    is_plain = url.scheme == "http" and proxy is None
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else _trusted()


@cache
def _trusted() -> ssl.SSLContext:
    """The authorities that this process trusts: read once, since a copy for each session takes 800 kB and 30 ms."""
    return httpx.create_ssl_context()


def _proxy_for(url: httpx.URL) -> str | None:
    """What the environment says; none for this machine itself."""
    if _is_loopback(url.host) or proxy_bypass(url.host):
        return None
    known = getproxies()
    address = known.get(url.scheme) or known.get("all")
    return address if not address or "://" in address else f"http://{address}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
