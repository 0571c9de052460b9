"""One editor at the other end of stdin and stdout, until it goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import anyio
from acp.agent.connection import AgentSideConnection

from xnagent.acp.agent import EditorAgent
from xnagent.acp.wire import LineWire
from xnagent.api.options import Chosen

ANSWER_SECONDS: Final = 5.0
"""For the last answers, once everything was stopped."""


async def serve(chosen: Chosen, descriptor: int, *, write: Callable[[bytes], None], stop: anyio.Event) -> None:
    """Answer until the input ends or a stop is asked for; then what runs is stopped in order."""
    agent = EditorAgent(chosen)
    wire = LineWire(descriptor, write)
    connection = AgentSideConnection(cast("Any", agent), wire, listening=False)

    async def listen() -> None:
        await connection.listen()
        stop.set()

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await stop.wait()
        with anyio.CancelScope(shield=True):
            await agent.leave()
            with anyio.move_on_after(ANSWER_SECONDS):
                await wire.until_answered()
            await connection.close()
        group.cancel_scope.cancel()
