"""The signals that ask a process to stop."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import anyio
import anyio.abc

from xnagent.core.record import SIGNAL_EXIT_CODE

SIGNAL_NAMES: Final[dict[int, Literal["SIGINT", "SIGTERM"]]] = {
    signal.SIGINT: "SIGINT",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "SIGTERM",
}
"""What a signal counts as: a terminal that is closed (SIGHUP) terminates."""


def heeded_signals() -> list[signal.Signals]:
    """The signals that ask to stop, but for SIGHUP where `nohup` had it ignored."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.Signals(number) for number in SIGNAL_NAMES if number != signal.SIGHUP or not ignores_hangup]


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
