"""Whether a session's file may have news, by what the file system says of it."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path


def file_mark(path: Path) -> Hashable | None:
    """Sizes and times of the file and its write-ahead log; None: there is no such file."""
    try:
        main = path.stat()
    except OSError:
        return None
    try:
        log = path.with_name(path.name + "-wal").stat()
    except OSError:
        log = main
    return main.st_ino, main.st_size, main.st_mtime_ns, log.st_size, log.st_mtime_ns
