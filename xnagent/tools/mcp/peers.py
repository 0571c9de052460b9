"""All servers of a session: what they offer is asked once and frozen; each run has connections of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup

from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.mcp import PREFIX, Listing, difference
from xnagent.core.mcp_events import McpServerChanged, McpToolsFrozen
from xnagent.core.permissions import Rule, Rules
from xnagent.ports import Log, Tool, Workspace
from xnagent.tools.mcp.connection import Connection
from xnagent.tools.mcp.deferred import INVOKE, deferred_tools
from xnagent.tools.mcp.link import Dialler, Endpoint
from xnagent.tools.mcp.tool import Exchange, McpCallTool


@dataclass(slots=True, kw_only=True)
class Peers:
    """The servers, and who is connected to them."""

    endpoints: Mapping[str, Endpoint]
    dialler: Dialler
    group: TaskGroup
    log: Log
    _open: dict[tuple[AgentId, str], Connection] = field(default_factory=dict)
    """Services by agent; servers with an address by nobody."""
    _changed: set[str] = field(default_factory=set)
    """Those of whose change the log was told."""

    async def listings(self, place: Workspace | None) -> tuple[Listing, ...]:
        """What each of them offers now, asked side by side; services run in that workspace for it."""
        found: list[Listing] = []

        async def ask(name: str) -> None:
            connection = self.connection(name, agent=PLANNER, place=place)
            if connection is not None:
                found.append(await connection.listing())
                connection.losses = 0

        async with anyio.create_task_group() as group:
            for name in self.endpoints:
                group.start_soon(ask, name)
        await self.release(PLANNER)
        return tuple(found)

    def connection(self, server: str, *, agent: AgentId, place: Workspace | None) -> Connection | None:
        """The agent's connection to the server, not begun yet if it is its first; None: it is not configured."""
        endpoint = self.endpoints.get(server)
        if endpoint is None:
            return None
        owner = AgentId("") if endpoint.service is None else agent
        if (owner, server) not in self._open:
            self._open[owner, server] = Connection(
                endpoint=endpoint,
                dialler=self.dialler,
                group=self.group,
                place=place,
                on_listed=self._compare,
                on_change=partial(self._tell, server, "it says that its tools are others now"),
                protocol=self._protocol(server),
            )
        return self._open[owner, server]

    async def release(self, agent: AgentId) -> None:
        """End the services that only this agent used."""
        mine = [key for key in self._open if key[0] == agent]
        closing = [self._open.pop(key) for key in mine]
        async with anyio.create_task_group() as group:
            for connection in closing:
                group.start_soon(connection.aclose)

    async def aclose(self) -> None:
        """End all of them."""
        for agent in {agent for agent, _ in self._open}:
            await self.release(agent)

    def _protocol(self, server: str) -> str:
        known = self.log.state.mcp
        found = [one.protocol for one in known.servers if one.server == server] if known else []
        return found[0] if found else ""

    def _compare(self, listing: Listing) -> None:
        known = self.log.state.mcp
        detail = difference(known, listing) if known else ""
        if detail:
            self._tell(listing.server, detail)

    def _tell(self, server: str, detail: str) -> None:
        """Once: what was frozen stays."""
        if self.log.state.mcp is None or server in self._changed:
            return
        self._changed.add(server)
        self.group.start_soon(self._record, McpServerChanged(server=server, detail=detail))

    async def _record(self, event: McpServerChanged) -> None:
        if self.log.ahead.settled is None:
            await self.log.append(event)


class NoPeers:
    """Stands for servers that a session was begun with and that its settings do not name any more."""

    def connection(self, server: str, *, agent: AgentId, place: Workspace | None) -> Connection | None:
        """There is none."""
        return None


def tools_of(frozen: McpToolsFrozen | None, peers: Exchange, *, rules: Rules) -> Sequence[Tool]:
    """The tools that Workers get, as far as the rules leave them."""
    if frozen is None:
        return ()
    kept = [tool for tool in frozen.listed if rules.taken_away(tool.name) is None]
    inline = [McpCallTool(tool=tool, exchange=peers) for tool in kept if tool.name not in frozen.deferred]
    return [*inline, *deferred_tools([one for one in kept if one.name in frozen.deferred], exchange=peers)]


def taken_away(frozen: McpToolsFrozen | None, *, rules: Rules) -> Mapping[str, Rule]:
    """The tools that deny rules forbid, each with its rule."""
    found = {tool.name: rules.taken_away(tool.name) for tool in (frozen.listed if frozen else ())}
    return {name: rule for name, rule in found.items() if rule is not None}


def acting(tools: Iterable[Tool]) -> frozenset[str]:
    """Of these, the tools that servers carry out, which may act on the run's tree."""
    names = {tool.spec.name for tool in tools}
    return frozenset(name for name in names if name.startswith(PREFIX) or name == INVOKE.name)
