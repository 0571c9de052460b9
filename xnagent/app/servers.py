"""From settings to the MCP servers of a session: who is connected, and what they offer, asked once and frozen."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol, cast

import anyio
import anyio.to_thread

from xnagent.config import Settings
from xnagent.config.entry import model_chain
from xnagent.config.mcp import McpServerTable
from xnagent.core.mcp import Listing, frozen
from xnagent.core.mcp_events import McpToolsFrozen
from xnagent.errors import UsageError
from xnagent.ports import Log, Service, Services, Workspace, Workspaces
from xnagent.tools.mcp.link import Dialler, Endpoint
from xnagent.tools.mcp.peers import Peers
from xnagent.workspaces.box.sealing import Box
from xnagent.workspaces.services import ProcessServices

SDK: Final = "xnagent.tools.mcp.sdk"
"""Loaded only where servers are configured: what it needs is an extra."""
CHECKOUT: Final = "mcp"
"""Where services run while they are asked what they offer."""
MISSING: Final = (
    "MCP_MISSING: mcp.servers needs the package mcp; install it with: pip install 'xnagent[mcp]', or take the servers "
    "out of the settings"
)


class _SdkModule(Protocol):
    SdkDialler: Callable[..., Dialler]


def check_servers(settings: Settings) -> None:
    """Raise UsageError if servers are configured and what speaks to them is not installed."""
    if settings.mcp.servers and importlib.util.find_spec("mcp") is None:
        raise UsageError(MISSING)


def dialler_of(services: Services) -> Dialler:
    """Who speaks the protocol. Raises UsageError if it is not installed."""
    try:
        module = cast("_SdkModule", importlib.import_module(SDK))
    except ImportError as error:
        raise UsageError(f"{MISSING} ({error})") from error
    return module.SdkDialler(services=services)


def endpoint_of(name: str, table: McpServerTable, *, environ: Mapping[str, str]) -> Endpoint:
    """How a server is reached; the values of the variables that its table names are read here."""
    headers = {header: environ.get(variable, "").strip() for header, variable in table.headers_env.items()}
    if table.bearer_env is not None:
        headers["Authorization"] = f"Bearer {environ.get(table.bearer_env, '').strip()}"
    wanted = [table.bearer_env, *table.headers_env.values(), *table.env]
    service = None
    if table.command is not None:
        service = Service(name=f"mcp-{name}", line=(table.command, *table.args), passed=table.env)
    return Endpoint(
        server=name,
        start_seconds=table.start_seconds,
        call_seconds=table.call_seconds,
        service=service,
        url=table.url or "",
        headers=headers,
        missing=next((one for one in wanted if one and not environ.get(one, "").strip()), ""),
    )


@asynccontextmanager
async def mcp_peers(
    environ: Mapping[str, str], log: Log, *, settings: Settings, workspaces: Workspaces, box: Box | None
) -> AsyncIterator[Peers | None]:
    """The session's servers; None where none is configured. At its end none of them runs any more.

    Raises UsageError if one that is required does not answer when the session first asks.
    """
    if not settings.mcp.servers:
        yield None
        return
    services = ProcessServices(environ, box=box)
    endpoints = {
        name: endpoint_of(name, table, environ=environ) for name, table in sorted(settings.mcp.servers.items())
    }
    try:
        async with anyio.create_task_group() as group:
            peers = Peers(endpoints=endpoints, dialler=dialler_of(services), group=group, log=log)
            if log.state.mcp is None:
                await log.append(await _frozen(peers, settings, workspaces=workspaces, log=log))
            yield peers
            await peers.aclose()
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(services.close)


async def _frozen(peers: Peers, settings: Settings, *, workspaces: Workspaces, log: Log) -> McpToolsFrozen:
    place: Workspace | None = None
    if any(endpoint.service is not None for endpoint in peers.endpoints.values()):
        place = await workspaces.checkout(log.state.board.session.get("integration_head", ""), CHECKOUT)
    try:
        listings = await peers.listings(place)
    finally:
        if place is not None:
            with anyio.CancelScope(shield=True):
                await workspaces.discard(CHECKOUT)
    servers = settings.mcp.servers
    _check_required(listings, servers)
    rules = settings.permissions.to_rules()
    return frozen(
        listings,
        wanted={name: table.tools for name, table in servers.items() if table.tools is not None},
        window_tokens=min(entry.window_tokens for entry in model_chain(settings, "worker")),
        gated={rule.tool for rule in (*rules.allow, *rules.narrow)},
    )


def _check_required(listings: Sequence[Listing], servers: Mapping[str, McpServerTable]) -> None:
    for listing in sorted(listings, key=lambda one: one.server):
        if listing.fault and servers[listing.server].required:
            raise UsageError(
                f"MCP_REQUIRED: server {listing.server} did not answer: {listing.fault}; start it, or set "
                f"mcp.servers.{listing.server}.required to false to go on without it"
            )
