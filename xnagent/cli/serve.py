"""`xnagent serve`: all sessions in the store as pages that change while the sessions do."""

from __future__ import annotations

import importlib
import secrets
from argparse import Namespace
from functools import partial
from typing import Final, Protocol, cast

import anyio
import anyio.abc

from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.cli.signals import SIGNAL_NAMES, heeded_signals
from xnagent.core.record import SIGNAL_EXIT_CODE
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
    return anyio.run(partial(_serve, _running(), plan, console=console))


def _running() -> _Running:
    try:
        return cast("_Running", importlib.import_module(RUNNING))
    except ImportError as error:
        raise UsageError(
            f"SERVE_EXTRA_MISSING: the server cannot be loaded ({error}); install it with: pip install 'xnagent[serve]'"
        ) from error


async def _serve(running: _Running, plan: Plan, *, console: Console) -> int:
    stop, codes = anyio.Event(), [0]

    async def heed(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*heeded_signals()) as signals:
            task_status.started()
            async for number in signals:
                codes.append(SIGNAL_EXIT_CODE[SIGNAL_NAMES[number]])
                stop.set()

    def ready(address: str, *, host: str, port: int, is_loopback: bool) -> None:
        if not is_loopback:
            console.warn(OPEN_WARNING.format(host=host))
        console.say(f"the sessions in {plan.host.sessions}; Ctrl-C ends it, and no session with it")
        if console.output == "text":
            console.answer(address)
        else:
            console.record({"type": "serving", "url": address, "host": host, "port": port, "token": plan.token})

    async with anyio.create_task_group() as group:
        await group.start(heed)
        await running.run(plan, ready=ready, stop=stop)
        group.cancel_scope.cancel()
    return codes[-1]
