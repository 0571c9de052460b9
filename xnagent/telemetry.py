"""Logs for people who look for a fault: structlog, to stderr or a file, never to stdout."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Final

import structlog

from xnagent.core.masking import Mask
from xnagent.errors import UsageError

QUIET_LIBRARIES: Final = ("httpcore", "httpx", "hpack", "asyncio")
"""At DEBUG they would write headers, and so keys."""


class MaskedFormatter(structlog.stdlib.ProcessorFormatter):
    """Takes secrets out of each finished line, tracebacks included."""

    mask = Mask()

    def format(self, record: logging.LogRecord) -> str:
        """The line as it is written."""
        return self.mask.text(super().format(record))


def set_up_logging(*, verbosity: int, file: Path | None = None, mask: Mask | None = None) -> None:
    """Send structlog's and the standard library's logs to stderr, or as JSON lines to a file that is appended to.

    `verbosity`: -1 errors only, 0 warnings, 1 everything. Raises UsageError if the file cannot be written.
    """
    level = {-1: logging.ERROR, 0: logging.WARNING}.get(verbosity, logging.DEBUG)
    handler = _handler(file)
    formatter = MaskedFormatter(
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.dev.ConsoleRenderer(colors=False) if file is None else structlog.processors.JSONRenderer(),
        ],
        foreign_pre_chain=_shared(),
    )
    formatter.mask = mask or Mask()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _shared() -> list[structlog.typing.Processor]:
    return [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]


def _handler(file: Path | None) -> logging.Handler:
    if file is None:
        return logging.StreamHandler(sys.stderr)
    try:
        return logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"LOG_FILE: {file}: {error.strerror}; choose another with --log-file") from error
