"""Commands that stand there until a signal asks them to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from xnagent.cli.signals import SIGNAL_NAMES, heeded_signals
from xnagent.core.record import SIGNAL_EXIT_CODE


async def until_signalled(work: Callable[[anyio.Event], Awaitable[None]]) -> int:
    """Do the work, whose event is set when a signal asks to stop. Returns the signal's exit code; 0: none came."""
    stop, codes = anyio.Event(), [0]

    async def heed(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*heeded_signals()) as signals:
            task_status.started()
            async for number in signals:
                codes.append(SIGNAL_EXIT_CODE[SIGNAL_NAMES[number]])
                stop.set()

    async with anyio.create_task_group() as group:
        await group.start(heed)
        await work(stop)
        group.cancel_scope.cancel()
    return codes[-1]
