"""`xnagent sessions`: what is in the store, newest first."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.core.text import Json
from xnagent.inspect.plain import line, money, table
from xnagent.store.sessions import SessionRow, status_of

COLUMNS = ("session", "status", "updated", "cost", "objective")


def execute(arguments: Namespace, console: Console) -> int:
    """List them."""
    rows = host_of(arguments).sessions.rows()
    if console.output == "text":
        _tell(rows, console)
    elif console.output == "json":
        listed: list[Json] = [_record(row) for row in rows]
        console.record({"type": "sessions", "sessions": listed})
    else:
        for row in rows:
            console.record(_record(row))
    return 0


def _record(row: SessionRow) -> dict[str, Json]:
    return {
        "type": "session",
        **asdict(row),
        "path": None if row.path is None else str(row.path),
        "status": status_of(row),
    }


def _tell(rows: list[SessionRow], console: Console) -> None:
    if not rows:
        console.say("no sessions yet")
        return
    cells = [
        (row.session, status_of(row), row.updated, money(row.cost_usd), line(row.objective or row.problem or ""))
        for row in rows
    ]
    console.answer(table(COLUMNS, cells))
