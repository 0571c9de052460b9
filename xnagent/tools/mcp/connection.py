"""One connection to one server: begun when it is needed, once more when it was lost, and then given up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from xnagent.core.mcp import Listing
from xnagent.errors import Caught
from xnagent.ports import Workspace
from xnagent.tools.mcp.link import Answer, Dialler, Endpoint, Peer, PeerError, fault_of

MOST_LOSSES: Final = 2
"""In a row: a server that was lost so often is not started again."""
LEAVING_SECONDS: Final = 5.0


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One process, or one session over HTTP."""

    settled: anyio.Event = field(default_factory=anyio.Event)
    """It answers, or will not."""
    leave: anyio.Event = field(default_factory=anyio.Event)
    over: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    peer: Peer | None = None
    listing: Listing | None = None
    fault: PeerError | None = None


@dataclass(slots=True, kw_only=True)
class Connection:
    """A server as one run, or all of a session, reaches it."""

    endpoint: Endpoint
    dialler: Dialler
    group: TaskGroup
    """What the connection lives in."""
    place: Workspace | None = None
    on_listed: Callable[[Listing], None] = lambda _listing: None
    """Told of every list of tools that the server gave."""
    on_change: Callable[[], None] = lambda: None
    """Told when the server says that its tools are others."""
    protocol: str = ""
    """What it speaks, once that is known."""
    losses: int = 0
    _attempt: _Attempt | None = None
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    async def listing(self) -> Listing:
        """Its tools, or why there are none."""
        try:
            attempt = await self._ready()
        except PeerError as error:
            return Listing(server=self.endpoint.server, fault=error.fact)
        return attempt.listing or Listing(server=self.endpoint.server)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Call a tool. Raises PeerError; where the connection was lost by it, the next call begins a new one."""
        attempt = await self._ready()
        if attempt.peer is None:
            raise attempt.fault or PeerError("MCP_DOWN", "it does not answer", is_over=True)
        try:
            answer = await self._asked(attempt.peer, tool, arguments=arguments)
        except PeerError as error:
            if not error.is_over:
                raise
            await self._lose(attempt)
            self.losses += 1
            # Who held the connection may know more of its end than the call that waited for an answer.
            raise (attempt.fault if error.code == "MCP_DOWN" and attempt.fault else error) from None
        self.losses = 0
        return answer

    async def _asked(self, peer: Peer, tool: str, *, arguments: Mapping[str, Any]) -> Answer:
        seconds = self.endpoint.call_seconds
        with anyio.move_on_after(seconds):
            return await peer.call(tool, arguments)
        raise PeerError("MCP_TIMEOUT", f"it did not answer within {seconds:g} s", is_over=True)

    async def aclose(self) -> None:
        """End it, with its process."""
        if self._attempt is not None:
            await self._lose(self._attempt)

    @property
    def is_given_up(self) -> bool:
        """Whether it was lost so often in a row that a service is not begun again; an address may be tried."""
        return self.losses >= MOST_LOSSES

    async def _ready(self) -> _Attempt:
        async with self._turn:
            if self.is_given_up and self.endpoint.service is not None:
                raise PeerError("MCP_DOWN", f"it was lost {self.losses} times in a row and is not started again")
            if self._attempt is not None and _is_lost(self._attempt):
                await self._lose(self._attempt)
                self._attempt = None
            return self._attempt or await self._begun()

    async def _begun(self) -> _Attempt:
        """A new attempt that answers. Raises PeerError if it does not, in time."""
        if self.endpoint.missing:
            raise PeerError("MCP_DOWN", f"the variable {self.endpoint.missing} is not set")
        self._attempt = attempt = _Attempt()
        self.group.start_soon(self._keep, attempt)
        seconds = self.endpoint.start_seconds
        with anyio.move_on_after(seconds):
            await attempt.settled.wait()
        if attempt.peer is not None and attempt.fault is None:
            return attempt
        late = PeerError("MCP_DOWN", f"it did not answer within {seconds:g} s", is_over=True)
        fault = attempt.fault or late
        await self._lose(attempt)
        self.losses += 1
        raise fault

    async def _keep(self, attempt: _Attempt) -> None:
        """Hold it open, in one task from begin to end."""
        caught = Caught(Exception)
        with caught, attempt.scope:
            opened = self.dialler.open(
                self.endpoint, place=self.place, protocol=self.protocol, on_change=self.on_change
            )
            async with opened as peer:
                listing = Listing(server=self.endpoint.server, protocol=peer.protocol, offers=await peer.offers())
                attempt.listing, attempt.peer, self.protocol = listing, peer, peer.protocol
                self.on_listed(listing)
                attempt.settled.set()
                await attempt.leave.wait()
        attempt.fault = fault_of(caught.error)
        attempt.settled.set()
        attempt.over.set()

    async def _lose(self, attempt: _Attempt) -> None:
        """Ask it to end, and make it."""
        attempt.leave.set()
        if not attempt.settled.is_set():
            attempt.scope.cancel()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(LEAVING_SECONDS):
                await attempt.over.wait()
            if not attempt.over.is_set():
                attempt.scope.cancel()
                await attempt.over.wait()


def _is_lost(attempt: _Attempt) -> bool:
    """Whether it cannot take another call: it was left, or the server went away between two."""
    is_gone = attempt.over.is_set() or attempt.leave.is_set()
    return is_gone or (attempt.peer is not None and not attempt.peer.is_open)
