"""`xnagent serve`: all sessions in the store as pages that change while the sessions do."""

from __future__ import annotations

import importlib
import secrets
from argparse import Namespace
from typing import Final, Protocol, cast

import anyio
import anyio.abc

from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.cli.standing import until_signalled
from xnagent.dashboard.plan import Plan, Ready
from xnagent.errors import UsageError

RUNNING: Final = "xnagent.dashboard.running"
"""Loaded only when it is used: its server is an extra."""
HOST: Final = "127.0.0.1"
PORT: Final = 8421
TOKEN_BYTES: Final = 24
OPEN_WARNING: Final = (
    "warning: {host} is not this machine alone: whoever reaches it and has the token sees and steers all sessions, and "
    "the token crosses the network unencrypted"
)


class _Running(Protocol):
    async def run(self, plan: Plan, *, ready: Ready, stop: anyio.Event) -> None: ...


def execute(arguments: Namespace, console: Console) -> int:
    """Serve until a signal comes. Returns its exit code."""
    home = getattr(arguments, "home", None)
    plan = Plan(
        host=host_of(arguments),
        mask=console.mask,
        listen=getattr(arguments, "host", HOST),
        port=getattr(arguments, "port", PORT),
        token=secrets.token_urlsafe(TOKEN_BYTES),
        can_act=not getattr(arguments, "read_only", False),
        words=[] if home is None else ["--home", str(home)],
    )
    plan.host.sessions.check()
    running = _running()

    async def serve(stop: anyio.Event) -> None:
        await running.run(plan, ready=_ready(plan, console), stop=stop)

    return anyio.run(until_signalled, serve)


def _running() -> _Running:
    try:
        return cast("_Running", importlib.import_module(RUNNING))
    except ImportError as error:
        raise UsageError(
            f"SERVE_EXTRA_MISSING: the server cannot be loaded ({error}); install it with: pip install 'xnagent[serve]'"
        ) from error


def _ready(plan: Plan, console: Console) -> Ready:
    """What says where the pages are."""

    def ready(address: str, *, host: str, port: int, is_loopback: bool) -> None:
        if not is_loopback:
            console.warn(OPEN_WARNING.format(host=host))
        console.say(f"the sessions in {plan.host.sessions}; Ctrl-C ends it, and no session with it")
        if console.output == "text":
            console.answer(address)
        else:
            console.record({"type": "serving", "url": address, "host": host, "port": port, "token": plan.token})

    return ready
