"""The signals that ask a process to stop."""

from __future__ import annotations

import signal
from typing import Final, Literal

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
