"""`xnagent doctor`: what works here, and whether a run could start."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio

from xnagent.app.boxing import NOTHING, choose, limits_told
from xnagent.app.host import Host
from xnagent.app.servers import check_servers, listed_now
from xnagent.app.stores import sessions_at
from xnagent.cli.console import Console
from xnagent.cli.hosting import acting_host_of, home_of
from xnagent.cli.options import folder_of, models_of, settings_of
from xnagent.config import Settings
from xnagent.config.entry import is_loopback
from xnagent.core.hooks import Hook
from xnagent.core.shell_words import DYNAMIC, read_script
from xnagent.core.text import Json
from xnagent.errors import UsageError, XnagentError
from xnagent.inspect.plain import line, table
from xnagent.workspaces.box.ladder import try_all
from xnagent.workspaces.hook_processes import SHELL

GIT_LEAST: Final = (2, 38)
CONNECT_SECONDS: Final = 3.0
COMMAND_SECONDS: Final = 10.0
PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
NOT_READY: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    what: str
    is_fine: bool
    detail: str
    is_needed: bool = True
    """Whether a run cannot start without it."""


def execute(arguments: Namespace, console: Console) -> int:
    """Look at everything, also after the first fault."""
    host = home_of(arguments)
    settings, configuration = _configuration(arguments, host)
    looks: list[Callable[[], Finding]] = [
        lambda: configuration,
        lambda: sandbox(settings, host.environ),
        lambda: limits(settings, host.environ),
        lambda: git(host.environ),
        lambda: ripgrep(host.environ),
        lambda: home(host.home),
        lambda: store(settings, host.home),
        lambda: model(settings, host),
        lambda: endpoint(settings, host),
    ]
    findings = [*(look() for look in looks), *servers(settings, host), *hooks(arguments, host)]
    is_ready = all(finding.is_fine for finding in findings if finding.is_needed)
    _tell(findings, console, is_ready=is_ready)
    return 0 if is_ready else NOT_READY


def _configuration(arguments: Namespace, host: Host) -> tuple[Settings, Finding]:
    try:
        settings = settings_of(arguments, host, repository=folder_of(arguments))
    except UsageError as error:
        return Settings(), Finding(what="settings", is_fine=False, detail=str(error))
    return settings, Finding(what="settings", is_fine=True, detail="every key is known")


def sandbox(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Where commands will run, and which kinds of box work here."""
    tried = "; ".join(f"{one.kind}: {one.fault or 'works'}" for one in try_all(environ))
    try:
        chosen = choose(settings.sandbox, environ)
    except UsageError as error:
        return Finding(what="sandbox", is_fine=False, detail=str(error))
    return Finding(
        what="sandbox", is_fine=chosen.kind not in {None, "sockets"}, detail=f"{chosen.told} ({tried})", is_needed=False
    )


def limits(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """What would hold commands to their limits."""
    try:
        told = limits_told(settings.sandbox, choose(settings.sandbox, environ).kind)
    except UsageError:
        return Finding(what="limits", is_fine=False, detail="no sandbox, so no limits", is_needed=False)
    return Finding(what="limits", is_fine=f" by {NOTHING}" not in told, detail=told, is_needed=False)


def git(environ: Mapping[str, str]) -> Finding:
    """Whether git is there and new enough for merges without a worktree."""
    found = shutil.which("git", path=environ.get("PATH", os.defpath))
    if found is None:
        return Finding(what="git", is_fine=False, detail="not found on PATH; install git")
    said = anyio.run(_output_of, [found, "--version"], dict(environ))
    version = re.search(r"(\d+)\.(\d+)", said)
    is_fine = version is not None and (int(version[1]), int(version[2])) >= GIT_LEAST
    least = ".".join(map(str, GIT_LEAST))
    return Finding(what="git", is_fine=is_fine, detail=said if is_fine else f"{said}; at least {least} is needed")


async def _output_of(command: list[str], environ: dict[str, str]) -> str:
    with anyio.move_on_after(COMMAND_SECONDS):
        done = await anyio.run_process(command, check=False, env=environ)
        return line(done.stdout.decode("utf-8", "replace"))
    return "no answer"


def ripgrep(environ: Mapping[str, str]) -> Finding:
    """Whether searching is quick."""
    found = shutil.which("rg", path=environ.get("PATH", os.defpath))
    return Finding(
        what="ripgrep", is_fine=found is not None, detail=found or "not found; grep is slower", is_needed=False
    )


def home(folder: Path) -> Finding:
    """Whether sessions can be stored."""
    try:
        nearest = next(part for part in (folder, *folder.parents) if part.exists())
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        return Finding(what="home", is_fine=False, detail=f"{folder}: {error.strerror}; choose another with --home DIR")
    return Finding(what="home", is_fine=True, detail=str(folder))


def store(settings: Settings, place: Path) -> Finding:
    """Whether the database that sessions are kept in answers, if they are kept in one."""
    try:
        sessions = sessions_at(settings.store, home=place)
        if sessions is not None:
            sessions.check()
    except XnagentError as error:
        return Finding(what="store", is_fine=False, detail=str(error))
    return Finding(what="store", is_fine=True, detail="files in home" if sessions is None else str(sessions))


def model(settings: Settings, host: Host) -> Finding:
    """Whether both roles have a model and its key."""
    try:
        chains = models_of(settings, host)
    except XnagentError as error:
        return Finding(what="model", is_fine=False, detail=str(error))
    told = [
        f"{role} {entry.name} ({f'key in {entry.api_key_env}' if entry.api_key_env else 'no key needed'})"
        for role, chain in chains.items()
        for entry in chain
    ]
    return Finding(what="model", is_fine=True, detail=", ".join(told))


def endpoint(settings: Settings, host: Host) -> Finding:
    """Whether something listens where the models are; nothing is sent."""
    try:
        chains = models_of(settings, host).values()
        addresses = dict.fromkeys(entry.base_url for chain in chains for entry in chain)
    except XnagentError:
        return Finding(what="endpoint", is_fine=False, detail="no model, so no endpoint")
    faults = [fault for address in addresses if (fault := _connect(address, host.environ)) is not None]
    return Finding(what="endpoint", is_fine=not faults, detail="; ".join(faults) or ", ".join(addresses))


def servers(settings: Settings, host: Host) -> list[Finding]:
    """Which MCP servers answer, and with how many tools; services are started for it, in the box."""
    tables = settings.mcp.servers
    if not tables:
        return []
    try:
        check_servers(settings)
        listings = anyio.run(listed_now, host, settings)
    except XnagentError as error:
        is_needed = any(table.required for table in tables.values())
        return [Finding(what="mcp", is_fine=False, detail=str(error), is_needed=is_needed)]
    told = {one.server: one.fault or f"{len(one.offers)} tools, protocol {one.protocol}" for one in listings}
    return [
        Finding(
            what=f"mcp {one.server}",
            is_fine=not one.fault,
            detail=told[one.server],
            is_needed=tables[one.server].required,
        )
        for one in listings
    ]


def hooks(arguments: Namespace, host: Host) -> list[Finding]:
    """The user's hooks, and whether there is what they start; none of them is run."""
    try:
        configured = acting_host_of(arguments).hooks
    except XnagentError:
        return []
    return [_hook(hook, host.environ) for hook in configured]


def _hook(hook: Hook, environ: Mapping[str, str]) -> Finding:
    commands = read_script(hook.command).commands
    program = commands[0].words[0].text if commands and commands[0].words else ""
    asking = [SHELL, "-c", 'command -v -- "$1"', SHELL, _in_full(program, environ)]
    # A program that a variable names is known only when it starts.
    found = DYNAMIC in program or anyio.run(_output_of, asking, dict(environ))
    of_what = f" of {hook.match}" if hook.match else ""
    rest = f"at most {hook.seconds:g} s{', must pass' if hook.must_pass else ''}"
    told = f"{line(hook.command, 100)} ({rest})" if found else f"{line(hook.command, 100)}: {program} is not found"
    return Finding(what=f"hook {hook.on}{of_what}", is_fine=bool(found), detail=told, is_needed=hook.must_pass)


def _in_full(program: str, environ: Mapping[str, str]) -> str:
    """The program without `~`, which only an unquoted word has replaced."""
    return environ.get("HOME", "") + program[1:] if program.startswith("~/") else program


def _connect(address: str, environ: Mapping[str, str]) -> str | None:
    parts = urlsplit(_proxy(address, environ) or address)
    try:
        with socket.create_connection(
            (parts.hostname or "", parts.port or PORTS.get(parts.scheme, 443)), timeout=CONNECT_SECONDS
        ):
            return None
    except (OSError, ValueError) as error:
        return f"{address}: {getattr(error, 'strerror', None) or error}"


def _proxy(address: str, environ: Mapping[str, str]) -> str | None:
    scheme, host = urlsplit(address).scheme, urlsplit(address).hostname or ""
    direct = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(",")
    if is_loopback(address) or host in map(str.strip, direct):
        return None
    return environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")


def _tell(findings: list[Finding], console: Console, *, is_ready: bool) -> None:
    if console.output != "text":
        listed: list[Json] = [
            {"what": one.what, "is_fine": one.is_fine, "is_needed": one.is_needed, "detail": one.detail}
            for one in findings
        ]
        console.record({"type": "doctor", "is_ready": is_ready, "findings": listed})
        return
    marks = {(True, True): "ok", (True, False): "ok", (False, True): "FAILS", (False, False): "note"}
    rows = [(marks[one.is_fine, one.is_needed], one.what, one.detail) for one in findings]
    verdict = "a run could start" if is_ready else "a run could not start"
    console.answer(f"{table(('', 'what', 'detail'), rows)}\n{verdict}")
