"""Keeps what this process knows, such as keys, from other processes of the same user."""

from __future__ import annotations

import ctypes
import resource
import sys
from contextlib import suppress
from typing import Final

SET_DUMPABLE: Final = 4


def shut_memory() -> None:
    """No core dump, and no look into memory or environment through `/proc`, where the system can say so."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0)
