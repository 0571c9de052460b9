"""A clock that stands still unless told, a place for a session, and events that fit each other."""

import time
from pathlib import Path

import anyio
import pytest

from xnagent.core.events import Event, SessionStarted
from xnagent.core.ids import PLANNER, CallId, SessionId
from xnagent.core.items import AssistantText, ToolCall
from xnagent.core.spine_events import ReplyReceived, RequestStarted, ToolFinished, ToolStarted
from xnagent.core.tokens import Usage


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
