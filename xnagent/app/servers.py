"""From settings to the MCP servers of a session: who is connected, and what they offer, asked once and frozen."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol, cast

import anyio
import anyio.to_thread

from xnagent.app.boxing import box_for
from xnagent.app.host import Host
from xnagent.config import Settings
from xnagent.config.entry import model_chain
from xnagent.config.mcp import McpServerTable
from xnagent.core.ids import SessionId
from xnagent.core.mcp import Listing, frozen
from xnagent.core.mcp_events import McpToolsFrozen
from xnagent.errors import UsageError
from xnagent.ports import Log, Service, Services, Workspace, Workspaces
from xnagent.tools.mcp.connection import Connection
from xnagent.tools.mcp.link import Dialler, Endpoint
from xnagent.tools.mcp.peers import Peers
from xnagent.workspaces.box.sealing import Box
from xnagent.workspaces.box.visible import programs
from xnagent.workspaces.folders import Tree
from xnagent.workspaces.git import Git
from xnagent.workspaces.services import ProcessServices

SDK: Final = "xnagent.tools.mcp.sdk"
"""Loaded only where servers are configured: what it needs is an extra."""
DOCTOR: Final = SessionId("doctor")
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


def service_box(host: Host, settings: Settings, *, session: SessionId, repository: Path) -> Box | None:
    """The session's box, with what its services need to be read in it; None where they run without. Blocks."""
    shown: list[Path] = []
    for table in settings.mcp.servers.values():
        shown += [Path(name).expanduser() for name in table.reads]
        if table.command is not None and Path(table.command).is_absolute():
            shown += programs({"PATH": str(Path(table.command).parent)})
    return box_for(host, settings.sandbox, session=session, repository=repository, shown=tuple(shown))


@asynccontextmanager
async def mcp_peers(
    host: Host, log: Log, *, settings: Settings, workspaces: Workspaces, repository: Path
) -> AsyncIterator[Peers | None]:
    """The session's servers; None where none is configured. At its end none of them runs any more.

    Raises UsageError if one that is required does not answer when the session first asks.
    """
    if not settings.mcp.servers:
        yield None
        return
    session, environ = log.state.session, host.environ
    box = await anyio.to_thread.run_sync(lambda: service_box(host, settings, session=session, repository=repository))
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


async def listed_now(host: Host, settings: Settings) -> tuple[Listing, ...]:
    """What each server offers to a session in an empty repository, by name; nothing of it is kept.

    Raises UsageError where no session could begin.
    """
    with tempfile.TemporaryDirectory(prefix="xnagent-doctor-", ignore_cleanup_errors=True) as folder:
        tree = await anyio.to_thread.run_sync(_tree_in, folder)
        await Git(environ=host.environ).run("init", "--quiet", "--template=", str(tree.root))
        box = await anyio.to_thread.run_sync(
            lambda: service_box(host, settings, session=DOCTOR, repository=tree.root / "nothing")
        )
        services = ProcessServices(host.environ, box=box)
        try:
            return await _listed_in(tree, settings, environ=host.environ, services=services)
        finally:
            services.close()


def _tree_in(name: str) -> Tree:
    folder = Path(name).resolve()
    return Tree(root=folder / "tree", scratch=folder / "scratch")


async def _listed_in(
    tree: Tree, settings: Settings, *, environ: Mapping[str, str], services: Services
) -> tuple[Listing, ...]:
    dialler, found = dialler_of(services), list[Listing]()

    async def ask(endpoint: Endpoint) -> None:
        connection = Connection(endpoint=endpoint, dialler=dialler, group=outer, place=tree)
        found.append(await connection.listing())
        await connection.aclose()

    async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
        for name, table in settings.mcp.servers.items():
            inner.start_soon(ask, endpoint_of(name, table, environ=environ))
    return tuple(sorted(found, key=lambda one: one.server))


def _check_required(listings: Sequence[Listing], servers: Mapping[str, McpServerTable]) -> None:
    for listing in sorted(listings, key=lambda one: one.server):
        if listing.fault and servers[listing.server].required:
            raise UsageError(
                f"MCP_REQUIRED: server {listing.server} did not answer: {listing.fault}; start it, or set "
                f"mcp.servers.{listing.server}.required to false to go on without it"
            )
