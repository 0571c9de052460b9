"""A clock that stands still unless told, a place for a session, and events that fit each other."""

import sqlite3
import time
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import anyio
import psycopg
import pytest

from tests.database import Server
from xnagent.core.events import Event, SessionStarted
from xnagent.core.ids import PLANNER, CallId, SessionId
from xnagent.core.items import AssistantText, ToolCall
from xnagent.core.spine_events import ReplyReceived, RequestStarted, ToolFinished, ToolStarted
from xnagent.core.tokens import Usage
from xnagent.store.files import FileSessions
from xnagent.store.lock import lock_path
from xnagent.store.place import Place, Sessions
from xnagent.store.postgres.places import sessions_in


class StillClock:
    def __init__(self) -> None:
        self.time = "2026-11-30T14:15:02.123Z"

    def now(self) -> str:
        return self.time

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def session() -> SessionId:
    return SessionId("s-1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "sessions" / "s-1.db"


@pytest.fixture
def began(session: SessionId) -> SessionStarted:
    return SessionStarted(session=session, objective="Port it\nall of it", repository="/repo")


def tool_round(number: int, *, cost_usd: float | None = 0.25) -> tuple[Event, ...]:
    """One step of the Planner: request, reply with a call, the call, its result."""
    call = CallId(f"c{number}")
    usage = Usage(input_tokens=10, cached_tokens=5, output_tokens=3)
    return (
        RequestStarted(
            agent=PLANNER,
            request=number,
            manifest="m",
            items=1,
            estimate_tokens=9,
            predicted_cached_tokens=None,
            sha256="ab",
            size_bytes=99,
        ),
        ReplyReceived(
            agent=PLANNER,
            request=number,
            items=(AssistantText(text="so"), ToolCall(call_id=call, name="bash", arguments="{}")),
            usage=usage,
            cost_usd=cost_usd,
            finish="tool_calls",
            duration_seconds=0.5,
        ),
        ToolStarted(agent=PLANNER, call_id=call, tool="bash", effect="opaque"),
        ToolFinished(agent=PLANNER, call_id=call, tool="bash", text="done"),
    )


@pytest.fixture
def rounds():
    return tool_round


@dataclass(frozen=True)
class Spot:
    """A place for one session in one of the stores, and how a test meddles with it from outside."""

    store: str
    sessions: Sessions
    place: Place
    word: str
    """How `process.py` is told of it."""
    url: str = ""

    @property
    def name(self) -> str:
        return self.place.name

    def table(self, name: str) -> list[tuple[object, ...]]:
        """The rows of a table, without the column that only a shared table has, in the order of its key."""
        key = {"session": "id", "tool_calls": "started_seq", "requests": "request", "events": "seq"}.get(name, "sha")
        if self.store == "files":
            with closing(sqlite3.connect(f"file:{self.place}?mode=ro", uri=True)) as connection:
                return connection.execute(f"SELECT * FROM {name} ORDER BY {key}").fetchall()
        of_this = "id" if name == "session" else "session"
        rows = self.ask(f"SELECT * FROM {name} WHERE {of_this} = %s ORDER BY {key}", self.name)
        return [row if name == "session" else row[1:] for row in rows]

    def ask(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """What the database answers; of a statement that asks for nothing, nothing."""
        with psycopg.connect(self.url, autocommit=True, options="-c search_path=xnagent") as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def let_the_right_lapse(self) -> None:
        """As if the holder had been stalled for so long that nobody believes in it any more."""
        if self.store == "files":
            lock_path(Path(str(self.place))).unlink()
        else:
            self.ask("UPDATE leases SET expires = clock_timestamp() - interval '1 s' WHERE session = %s", self.name)


@pytest.fixture(scope="session")
def database(database_server: Server) -> str:
    """A database that these tests share; each has a session of its own."""
    return database_server.database()


@pytest.fixture(scope="session")
def shared_sessions(database: str) -> Sessions:
    return sessions_in(database)


@pytest.fixture(params=["files", "postgres"])
def spot(request: pytest.FixtureRequest, tmp_path: Path) -> Spot:
    """A place in each of the stores."""
    name = f"s-{uuid.uuid4().hex[:12]}"
    if request.param == "files":
        files = FileSessions(tmp_path / "home")
        place = files.place(name)
        return Spot(store="files", sessions=files, place=place, word=str(place))
    url = request.getfixturevalue("database")
    kept = request.getfixturevalue("shared_sessions")
    return Spot(store="postgres", sessions=kept, place=kept.place(name), word=f"{url}#{name}", url=url)
