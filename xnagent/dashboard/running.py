"""Puts the server together."""

from __future__ import annotations

import anyio

from xnagent.dashboard.actions import Actions
from xnagent.dashboard.directory import Directory
from xnagent.dashboard.gate import Gate
from xnagent.dashboard.hub import Hub
from xnagent.dashboard.pages import Offers
from xnagent.dashboard.plan import Plan, Ready
from xnagent.dashboard.pulse import Pulse
from xnagent.dashboard.roll import Roll
from xnagent.dashboard.server import listen, serve
from xnagent.dashboard.site import Site, application


async def run(plan: Plan, *, ready: Ready, stop: anyio.Event) -> None:
    """Serve until told to stop. Raises UsageError for a place where it can't."""
    sessions = plan.host.sessions
    directory = Directory(sessions=sessions, roll=Roll(mask=plan.mask), pulse=Pulse(sessions=sessions))
    hub = Hub(sessions=sessions, mask=plan.mask, directory=directory, pulse=Pulse(sessions=sessions))
    site = Site(hub=hub, offers=Offers(can_act=plan.can_act, words=plan.words), actions=Actions(host=plan.host))
    listening = listen(plan.listen, plan.port)
    gate = Gate(token=plan.token, names=listening.names)
    app = application(site, gate=gate, cookie=f"xnagent-{listening.port}")
    async with anyio.create_task_group() as group:
        await group.start(hub.run)
        ready(
            listening.address(plan.token), host=listening.host, port=listening.port, is_loopback=listening.is_loopback
        )
        await serve(app, listening, stop=stop)
        group.cancel_scope.cancel()
