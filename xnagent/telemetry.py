"""Logs for people who look for a fault: to stderr or a file, never to stdout."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from xnagent.core.masking import Mask
from xnagent.errors import UsageError

QUIET_LIBRARIES: Final = ("httpcore", "httpx", "hpack", "asyncio")
"""At DEBUG they would write headers, and so keys."""


class MaskedFormatter(logging.Formatter):
    """One line for each record, with what was raised behind it, and without secrets."""

    def __init__(self, mask: Mask, *, is_json: bool) -> None:
        super().__init__()
        self._mask = mask
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        """`time [level] text`, or an object with `event`, `level`, `logger`, `timestamp`, `exception`."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
        level, text = record.levelname.lower(), record.getMessage()
        raised = self.formatException(record.exc_info) if record.exc_info else ""
        if not self._is_json:
            return self._mask.text("\n".join(filter(None, (f"{at} [{level}] {text}", raised))))
        fields = {"event": text, "level": level, "logger": record.name, "timestamp": at}
        return self._mask.text(json.dumps({**fields, "exception": raised} if raised else fields))


def set_up_logging(*, verbosity: int, file: Path | None = None, mask: Mask | None = None) -> None:
    """Send the standard library's logs to stderr, or as JSON lines to a file that is appended to.

    `verbosity`: -1 errors only, 0 warnings, 1 everything. Raises UsageError if the file cannot be written.
    """
    level = {-1: logging.ERROR, 0: logging.WARNING}.get(verbosity, logging.DEBUG)
    handler = _handler(file)
    handler.setFormatter(MaskedFormatter(mask or Mask(), is_json=file is not None))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _handler(file: Path | None) -> logging.Handler:
    if file is None:
        return logging.StreamHandler(sys.stderr)
    try:
        return logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"LOG_FILE: {file}: {error.strerror}; choose another with --log-file") from error
