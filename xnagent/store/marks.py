"""Whether a session's file may have news, by what the file system says of it."""

from __future__ import annotations

import time
from collections.abc import Hashable
from pathlib import Path
from typing import Final

SAME_TIME_NANOSECONDS: Final = 20_000_000
"""Two changes that are closer may have the same time: clocks of file systems tick slowly."""


def file_mark(path: Path) -> Hashable | None:
    """Sizes and times of the file and its write-ahead log; None: there is no such file.

    Of a file that changed a moment ago it differs each time, so that a second change in the same tick is not missed.
    """
    try:
        main = path.stat()
    except OSError:
        return None
    try:
        log = path.with_name(path.name + "-wal").stat()
    except OSError:
        log = main
    now = time.time_ns()
    is_fresh = now - max(main.st_mtime_ns, log.st_mtime_ns) < SAME_TIME_NANOSECONDS
    return main.st_ino, main.st_size, main.st_mtime_ns, log.st_size, log.st_mtime_ns, now if is_fresh else 0
