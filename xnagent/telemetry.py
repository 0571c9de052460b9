"""Logs for people who look for a fault: structlog, to stderr or a file, never to stdout."""

from __future__ import annotations

import importlib
import logging
import sys
from functools import cached_property, partial
from pathlib import Path
from typing import Final, cast

from xnagent.core.masking import Mask
from xnagent.errors import UsageError

QUIET_LIBRARIES: Final = ("httpcore", "httpx", "hpack", "asyncio")
"""At DEBUG they would write headers, and so keys."""


class MaskedFormatter(logging.Formatter):
    """What structlog makes of each record, with what was raised behind it, and without secrets."""

    def __init__(self, mask: Mask, *, is_json: bool) -> None:
        super().__init__()
        self._mask = mask
        self._is_json = is_json

    @cached_property
    def renderer(self) -> logging.Formatter:
        """Made for the first record: most commands write none, and structlog takes a tenth of a second to load."""
        structlog = importlib.import_module("structlog")
        plain = partial(structlog.dev.ConsoleRenderer, colors=False, exception_formatter=structlog.dev.plain_traceback)
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        kept = structlog.stdlib.ProcessorFormatter.remove_processors_meta
        found = structlog.stdlib.ProcessorFormatter(
            processors=[kept, *(renderers if self._is_json else [plain()])],
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
        )
        return cast("logging.Formatter", found)

    def format(self, record: logging.LogRecord) -> str:
        """`time [level] text [logger]`, or an object with `event`, `level`, `logger`, `timestamp`, `exception`."""
        return self._mask.text(self.renderer.format(record))


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
