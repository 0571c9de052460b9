"""Questions in SQL about one session: read-only, over views in memory, bounded in time, memory and rows."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from xnagent.core.masking import Mask
from xnagent.core.text import Json
from xnagent.errors import UsageError
from xnagent.inspect.blocks import Block, Heading, Table
from xnagent.inspect.plain import line, visible
from xnagent.inspect.reading import Reading
from xnagent.inspect.views import VIEWS, Cell, cells_of

DEFAULT_ROWS: Final = 1_000
CELL_WIDTH: Final = 100
LONGEST_VALUE_BYTES: Final = 32 * 1024 * 1024
LONGEST_STATEMENT_BYTES: Final = 100_000
OPERATIONS_BETWEEN_LOOKS: Final = 2_000
READING: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
REFUSED_FUNCTIONS: Final = frozenset(
    {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "zeroblob", "randomblob"}
)
"""Those that touch files or code, and those that make much of nothing."""
WORD: Final = re.compile(r"\w+")
UNKNOWN_NAME: Final = re.compile(r"no such (table|column): (?:main\.)?(.+)")
HINT: Final = f"views: {', '.join(VIEWS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rows of an answer."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_whole: bool
    """Whether these are all of them."""

    @property
    def objects(self) -> list[Json]:
        """Each row as an object."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(slots=True)
class _Guard:
    """Watches over one statement."""

    is_over: Callable[[], bool]
    refused: str = ""
    """The first thing that it must not do."""
    ran_out: bool = False

    def permit(self, action: int, *about: str | None) -> int:
        """Whether the statement may do that; SQLite asks while it reads the statement."""
        name = (about[1] or "").lower()
        is_harmless = action == sqlite3.SQLITE_FUNCTION and name not in REFUSED_FUNCTIONS
        if action in READING or is_harmless:
            return sqlite3.SQLITE_OK
        self.refused = self.refused or (f"{name}()" if action == sqlite3.SQLITE_FUNCTION else "this")
        return sqlite3.SQLITE_DENY

    def look(self) -> int:
        """Whether to stop; SQLite asks every so many operations."""
        self.ran_out = self.ran_out or self.is_over()
        return int(self.ran_out)


def ask(reading: Reading, statement: str, *, limit: int, is_over: Callable[[], bool]) -> Answer:
    """The first `limit` rows of the answer. `is_over` says when the time is up.

    Raises UsageError for what is no single reading statement, does not fit the views, or takes too long.
    """
    connection = sqlite3.connect(":memory:")
    try:
        _fill(connection, reading, words=frozenset(WORD.findall(statement.lower())))
        return _answer(connection, statement, limit=limit, guard=_Guard(is_over))
    finally:
        connection.close()


def _fill(connection: sqlite3.Connection, reading: Reading, *, words: frozenset[str]) -> None:
    """All views are there; those that the statement does not name have no rows."""
    for name, view in VIEWS.items():
        columns = ", ".join(f'"{column}"' for column in view.columns)
        connection.execute(f'CREATE TABLE "{name}" ({columns})')
        if name in words:
            places = ", ".join("?" * len(view.columns))
            insertion = " ".join(("INSERT INTO", name, "VALUES", f"({places})"))
            connection.executemany(insertion, cells_of(view, reading))
    connection.commit()


def _answer(connection: sqlite3.Connection, statement: str, *, limit: int, guard: _Guard) -> Answer:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, LONGEST_STATEMENT_BYTES)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.set_authorizer(guard.permit)
    connection.set_progress_handler(guard.look, OPERATIONS_BETWEEN_LOOKS)
    try:
        cursor = connection.execute(statement)
        rows = cursor.fetchmany(limit + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise _wrong(error, guard=guard) from error
    except ValueError as error:
        raise UsageError(f"SQL_WRONG: {error}") from error
    if cursor.description is None:
        raise UsageError(f"SQL_WRONG: there is no SELECT in it; {HINT}")
    names = _distinct([column[0] for column in cursor.description])
    shown = tuple(tuple(map(_sayable, row)) for row in rows[:limit])
    return Answer(columns=names, rows=shown, is_whole=len(rows) <= limit)


def answer_blocks(answer: Answer, *, mask: Mask) -> Sequence[Block]:
    """The answer as a table."""
    rows = [["" if cell is None else line(mask.text(str(cell)), CELL_WIDTH) for cell in row] for row in answer.rows]
    number = f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
    title = number if answer.is_whole else f"the first {number}"
    return [Table(title=title, headings=[Heading(title=visible(name)) for name in answer.columns], rows=rows)]


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, the second of the same name with `_2` behind it."""
    told: list[str] = []
    for name in names:
        number = 1
        while (unique := name if number == 1 else f"{name}_{number}") in told:
            number += 1
        told.append(unique)
    return tuple(told)


def _sayable(value: Cell | bytes) -> Cell:
    """As JSON can say it: bytes as hexadecimal digits, infinity as nothing."""
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _wrong(error: sqlite3.Error | sqlite3.Warning, *, guard: _Guard) -> UsageError | KeyboardInterrupt:
    told = str(error)
    if guard.refused:
        return UsageError(f"SQL_READ_ONLY: {guard.refused} is more than reading views; write one SELECT; {HINT}")
    if told == "interrupted":
        message = (
            "SQL_TOO_LONG: the time is up; ask for less, with WHERE or without a join of everything with everything"
        )
        return UsageError(message) if guard.ran_out else KeyboardInterrupt()
    if "one statement" in told:
        return UsageError("SQL_ONE_STATEMENT: one statement at a time; take what stands behind the first ; away")
    return UsageError(f"SQL_WRONG: {told}{_instead(told)}")


def _instead(told: str) -> str:
    """What was likely meant, and what there is."""
    found = UNKNOWN_NAME.search(told)
    if found is None:
        return f"; {HINT}"
    kind, name = found[1], found[2].rpartition(".")[2].strip('"')
    columns = {column for view in VIEWS.values() for column in view.columns}
    near = get_close_matches(name, sorted(VIEWS if kind == "table" else columns), n=1)
    meant = f'; did you mean "{near[0]}"?' if near else ""
    more = f"; {HINT}" if kind == "table" else "; docs/inspect.md has the columns of each view"
    return f"{meant}{more}"
