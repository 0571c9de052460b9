"""The end of a session, and what may still come in its way."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from xnagent.agents.closing import Closing
from xnagent.agents.verifier import Verifier
from xnagent.app.host import SystemClock
from xnagent.core.commits import Applied
from xnagent.core.decide import StepPlanner, decide
from xnagent.core.events import FinishRequested, ResultApplied, SessionInterrupted, SessionStarted, UserMessageAdded
from xnagent.core.ids import SessionId
from xnagent.store.sqlite import SessionStore
from xnagent.workspaces.shell import ProcessShell

WROTE = UserMessageAdded(message="m1", text="wait", letter="1-a")
FINISHED = FinishRequested(outcome="completed", summary="done")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class SlowApply:
    """Workspaces in whose `apply` something else happens in the session."""

    store: SessionStore
    meanwhile: tuple

    async def apply(self, *, base: str, head: str, wanted: bool) -> Applied:
        await self.store.append(*self.meanwhile)
        return Applied(is_applied=wanted, branch=None, changed_files=(), patch=b"")


async def concluded(folder: Path, *, before: tuple, meanwhile: tuple):
    session = SessionId("s-1")
    clock = SystemClock()
    store = await SessionStore.create(folder / "s-1.db", session=session, clock=clock)
    workspaces = SlowApply(store, meanwhile)
    closing = Closing(
        log=store,
        clock=clock,
        workspaces=workspaces,
        verifier=Verifier(log=store, shell=ProcessShell({}), workspaces=workspaces, timeout_seconds=1),
        may_apply=True,
        began=clock.monotonic(),
    )
    try:
        await store.append(SessionStarted(session=session, objective="x", base="c0"), *before)
        await closing.conclude()
        return store.state
    finally:
        await store.aclose()


async def test_a_message_while_the_result_is_applied_takes_the_end_back(tmp_path: Path):
    state = await concluded(tmp_path, before=(FINISHED,), meanwhile=(WROTE,))
    assert state.settled is None
    assert isinstance(state.applied, ResultApplied)
    assert decide(state, frozenset(), parallel=1) == (StepPlanner(),)


@pytest.mark.parametrize(
    ("before", "meanwhile", "outcome"),
    [
        ((FINISHED,), (), "completed"),
        ((FINISHED,), (SessionInterrupted(signal="SIGTERM"),), "completed"),
        ((SessionInterrupted(signal="SIGINT"),), (WROTE,), "interrupted"),
        ((FINISHED, SessionInterrupted(signal="SIGINT")), (), "interrupted"),
    ],
)
async def test_everything_else_settles(tmp_path: Path, before: tuple, meanwhile: tuple, outcome: str):
    state = await concluded(tmp_path, before=before, meanwhile=meanwhile)
    assert state.settled.outcome == outcome


async def test_a_session_cancelled_by_letter_says_why(tmp_path: Path):
    letter = SessionInterrupted(signal="SIGINT", reason="wrong branch", letter="1-a")
    state = await concluded(tmp_path, before=(letter,), meanwhile=())
    assert (state.settled.error_class, state.settled.exit_code) == ("cancelled", 130)
    assert state.settled.error == "cancelled from outside: wrong branch; `xnagent resume s-1` goes on"
