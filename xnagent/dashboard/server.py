"""The server: a socket, uvicorn on it, and an end that waits for nobody."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anyio
import uvicorn
from starlette.types import ASGIApp

from xnagent.errors import UsageError

BACKLOG: Final = 128
ENDING_SECONDS: Final = 2.0
LOOPBACK_NAMES: Final = frozenset({"localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A socket that listens."""

    socket: socket.socket
    host: str
    """As it stands in an address."""
    port: int
    is_loopback: bool

    @property
    def names(self) -> frozenset[str]:
        """How it may be called."""
        own = {self.host.lower()} if self.is_loopback else {self.host.lower(), socket.gethostname().lower()}
        return LOOPBACK_NAMES | own

    def address(self, token: str) -> str:
        """What to open."""
        return f"http://{self.host}:{self.port}/?token={token}"


def listen(host: str, port: int) -> Listening:
    """Take the port; 0: any that is free. Raises UsageError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        opened = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"SERVE_HOST: {host}: {error.strerror}; use the name or address of this machine") from error
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(place)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise UsageError(
            f"SERVE_PORT: {host}:{port} can't be used: {error.strerror}; choose another one with --port N, or 0 for any"
        ) from error
    opened.settimeout(0)
    shown = f"[{host}]" if family == socket.AF_INET6 and ":" in host else host
    return Listening(
        socket=opened,
        host=shown,
        port=opened.getsockname()[1],
        is_loopback=ipaddress.ip_address(opened.getsockname()[0]).is_loopback,
    )


class _Server(uvicorn.Server):
    """Leaves signals to who started it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not."""
        yield


def _is_fault(record: logging.LogRecord) -> bool:
    """Whether it tells an error of ours: not how the server comes and goes, nor that an open page was let go."""
    error = record.exc_info[1] if record.exc_info else None
    return error is not None and not isinstance(error, asyncio.CancelledError)


async def serve(app: ASGIApp, listening: Listening, *, stop: anyio.Event) -> None:
    """Serve until told to stop, then end at once although pages are open: they come back if another one starts."""
    logging.getLogger("uvicorn.error").addFilter(_is_fault)
    config = uvicorn.Config(
        app,
        access_log=False,
        date_header=False,
        http="h11",
        lifespan="off",
        log_config=None,
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        ws="none",
    )
    server = _Server(config)
    async with anyio.create_task_group() as group:
        ended = anyio.Event()

        async def work() -> None:
            await server.serve(sockets=[listening.socket])
            ended.set()

        group.start_soon(work)
        await stop.wait()
        server.should_exit = server.force_exit = True
        with anyio.move_on_after(ENDING_SECONDS):
            await ended.wait()
        group.cancel_scope.cancel()
