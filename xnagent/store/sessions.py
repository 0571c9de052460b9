"""Where sessions are kept, what they are called, and which there are."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from xnagent.core.ids import SessionId
from xnagent.core.values import dataclass
from xnagent.errors import StoreError, UsageError
from xnagent.ports import Clock
from xnagent.store.lock import is_held
from xnagent.store.reading import reading

SESSION_ID: Final = re.compile(r"s-[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
SUFFIX_BYTES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session as a list shows it; a damaged one has a `problem` and little else."""

    session: SessionId
    path: Path | None
    """Its file; None: it is in a database."""
    is_live: bool
    """A process holds it."""
    status: str
    """`new`, `open`, `interrupted`, `settled`, or `damaged`."""
    objective: str = ""
    """Its first line."""
    outcome: str | None = None
    exit_code: int | None = None
    created: str
    updated: str
    last_seq: int = 0
    cost_usd: float | None = None
    repository: str = ""
    problem: str | None = None
    """Why it cannot be read, and what to do."""


def status_of(row: SessionRow) -> str:
    """How the session stands: an open one that no process runs was interrupted (B048)."""
    if row.status == "settled":
        return row.outcome or row.status
    if row.status in {"new", "open", "interrupted"}:
        return "running" if row.is_live else "interrupted"
    return row.status


def new_session_id(clock: Clock) -> SessionId:
    """A name for a new session: the time in UTC and something random, `s-20261130-141502-3f9a1c`."""
    now = datetime.fromisoformat(clock.now()).astimezone(UTC)
    return SessionId(f"s-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(SUFFIX_BYTES)}")


def sessions_folder(home: Path) -> Path:
    """The folder of the sessions' files."""
    return home / "sessions"


def check_name(session: str) -> str:
    """The name, if it can be a session's. Raises UsageError for what can't, such as a path."""
    if SESSION_ID.fullmatch(session) is None:
        raise UsageError(
            f"SESSION_NAME: {session!r} is no session id; one looks like s-20261130-141502-3f9a1c. "
            f"`xnagent sessions` lists them."
        )
    return session


def session_path(home: Path, session: str) -> Path:
    """The session's file. Raises UsageError for what can be no session's name, such as a path."""
    return sessions_folder(home) / f"{check_name(session)}.db"


def list_sessions(folder: Path) -> list[SessionRow]:
    """All sessions in the folder, newest first; one that cannot be read is in the list with its problem."""
    rows = [_row(path) for path in folder.glob("*.db")] if folder.is_dir() else []
    return sorted(rows, key=lambda row: (row.created, row.session), reverse=True)


def _row(path: Path) -> SessionRow:
    try:
        return _read_row(path)
    except (StoreError, UsageError) as error:
        return _damaged_row(path, str(error))


def _read_row(path: Path) -> SessionRow:
    changed = _changed(path)
    with reading(path) as connection:
        cursor = connection.execute("SELECT * FROM session")
        names = [column[0] for column in cursor.description]
        values = cursor.fetchone()
    if values is None:
        return _damaged_row(path, f"STORE_DAMAGED: {path}: its session is missing. The file was left as it is.")
    fields: dict[str, Any] = dict(zip(names, values, strict=True))
    return SessionRow(
        session=SessionId(fields["id"]),
        path=path,
        is_live=is_held(path),
        status=fields["status"],
        objective=fields["objective"] or "",
        outcome=fields["outcome"],
        exit_code=fields["exit_code"],
        created=fields["created"] or changed,
        updated=fields["updated"] or changed,
        last_seq=fields["last_seq"],
        cost_usd=fields["cost_usd"],
        repository=fields["repository"] or "",
    )


def _damaged_row(path: Path, problem: str) -> SessionRow:
    changed = _changed(path)
    return SessionRow(
        session=SessionId(path.stem),
        path=path,
        is_live=is_held(path),
        status="damaged",
        created=changed,
        updated=changed,
        problem=problem,
    )


def _changed(path: Path) -> str:
    try:
        seconds = path.lstat().st_mtime
    except OSError:
        seconds = 0.0
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
