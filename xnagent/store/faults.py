"""What SQLite and the file system say, as errors that say what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from xnagent.errors import StoreDamagedError, StoreError, StoreWriteError, UsageError

DAMAGE: Final = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR})
"""`SQLITE_ERROR` here means a table or column that is not there: the statements are fixed."""

WRITE_FAULTS: Final = (sqlite3.Error, OSError, ArithmeticError, ValueError, TypeError, MemoryError)
"""What may go wrong while a transaction is written; anything else would be a fault of the interpreter."""


def damaged(path: Path, why: str) -> StoreDamagedError:
    """The error for a file that is no session file any more; the file is never touched."""
    return StoreDamagedError(
        f"STORE_DAMAGED: {path}: {why}. The file was left as it is; restore it from a copy, or move it away and "
        f"start a new session."
    )


def not_found(path: Path) -> UsageError:
    """The error for a session that is not there."""
    return UsageError(f"SESSION_NOT_FOUND: there is no session file {path}. `xnagent sessions` lists what is there.")


def write_fault(path: Path, error: BaseException) -> StoreError:
    """The error for something that did not reach the file."""
    if _code(error) in DAMAGE:
        return damaged(path, _said(error))
    return StoreWriteError(
        f"STORE_WRITE_FAILED: {path}: {_said(error)}. Nothing of this was stored, everything before it is intact. "
        f"Free space or make the folder writable, then `xnagent resume {path.stem}`."
    )


def create_fault(path: Path, error: BaseException) -> StoreError:
    """The error for a session file that could not be made."""
    return StoreWriteError(
        f"STORE_CREATE_FAILED: {path}: {_said(error)}. No session was started; "
        f"choose a folder that can be written to with --home."
    )


def read_fault(path: Path, error: BaseException) -> StoreError:
    """The error for something that could not be read."""
    if _code(error) in DAMAGE:
        return damaged(path, _said(error))
    return StoreError(f"STORE_READ_FAILED: {path}: {_said(error)}. Check that the file can be read, then try again.")


def _code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", -1)) & 0xFF if hasattr(error, "sqlite_errorcode") else -1


def _said(error: BaseException) -> str:
    name = getattr(error, "sqlite_errorname", None)
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{text} ({name})" if name else text
