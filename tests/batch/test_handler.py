"""What a worker does with a job, whatever another one left or still does (B048, B061)."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest

from tests.batch.scenes import HANG, OK, script
from tests.cli.harness import Shell, make_shell
from xnagent.app.host import Host
from xnagent.batch.assignment import Assignment, parse_assignment, parse_report
from xnagent.batch.engine import EngineError, JobCancelledError, JobOrder, JobPostponedError, LeaseLostError
from xnagent.batch.handler import BUSY_ATTEMPTS, SessionHandler
from xnagent.batch.repositories import Repositories
from xnagent.batch.stopping import BatchStop
from xnagent.config import Settings
from xnagent.core.ids import SessionId
from xnagent.store.files import FileSessions
from xnagent.store.lock import acquire
from xnagent.store.sessions import session_path
from xnagent.testing.server import ScriptedServer

SESSION = SessionId("s-job")
SECONDS = 40


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return make_shell(tmp_path)


@dataclass
class Context:
    """A job in hand, whose heartbeats fail as a test says."""

    order: JobOrder
    attempt: int = 1
    beat_seconds: float = 0.05
    failing: list[Exception] = field(default_factory=list)
    progress: list[int | None] = field(default_factory=list)

    async def heartbeat(self, progress: int | None = None) -> None:
        self.progress.append(progress)
        if self.failing:
            raise self.failing[0]


def order(shell: Shell, url: str, objective: str = "apple") -> JobOrder:
    settings = Settings.model_validate({"planner": {"model": {"name": "scripted", "base_url": url}}, "apply": False})
    assignment = Assignment(
        session=SESSION, objective=objective, repository=str(shell.repository), commit=None, settings=settings
    )
    assert parse_assignment(assignment.dump()) == assignment
    return JobOrder(job="a", payload=assignment.dump())


def handler(shell: Shell) -> SessionHandler:
    host = Host(home=shell.home, environ=dict(os.environ))
    return SessionHandler(host=host, stop=BatchStop(), repositories=Repositories(host))


async def test_a_job_is_done_and_then_only_reported(shell: Shell):
    with ScriptedServer(OK) as server:
        context = Context(order(shell, server.base_url))
        first = parse_report(await handler(shell).handle(context))
        second = parse_report(await handler(shell).handle(context))
    assert first == second
    assert first.record["outcome"] == "completed"
    assert first.use.tokens > 0
    assert len(server.exchanges) == context.progress[-1] == 1


async def test_B048_a_session_that_somebody_holds_is_tried_again_and_in_the_end_told(shell: Shell):
    path = session_path(shell.home, SESSION)
    path.parent.mkdir(parents=True)
    held = acquire(path, since="now")
    (shell.home / "work" / SESSION).mkdir(parents=True)
    try:
        with ScriptedServer(OK) as server:
            context = Context(order(shell, server.base_url))
            with pytest.raises(JobPostponedError, match="SESSION_BUSY"):
                await handler(shell).handle(context)
            context.attempt = BUSY_ATTEMPTS
            report = parse_report(await handler(shell).handle(context))
    finally:
        held.release()
    assert report.record is None
    assert "SESSION_BUSY" in report.problem
    assert (shell.home / "work" / SESSION).is_dir()
    assert server.exchanges == []


class LeftSessions(FileSessions):
    """As of a database, where the last holder was killed at another machine."""

    def left_seconds(self, _session: str) -> float:
        return 7.0


async def test_B048_a_job_whose_commands_may_still_run_elsewhere_is_postponed_until_they_cannot(shell: Shell):
    with ScriptedServer(OK) as server:
        context = Context(order(shell, server.base_url), attempt=BUSY_ATTEMPTS)
        stopped = handler(shell)
        stopped.stop.request("SIGTERM")
        assert parse_report(await stopped.handle(context)).record is None
        later = handler(shell)
        left = replace(later, host=replace(later.host, store=LeftSessions(shell.home)))
        with pytest.raises(JobPostponedError) as caught:
            await left.handle(context)
        assert caught.value.after_seconds == 7
        assert server.exchanges == []
        done = parse_report(await handler(shell).handle(context))
    assert done.record["outcome"] == "completed"


async def test_two_workers_that_begin_the_same_session_at_once_do_not_touch_each_others_folder(shell: Shell):
    """A worker that was frozen before its first event wakes beside the one that took its job."""
    told: list[str] = []

    async def one(context: Context) -> None:
        try:
            report = parse_report(await handler(shell).handle(context))
            told.append(
                report.record["outcome"] if report.record["exit_code"] == 0 else report.record["error"]["message"]
            )
        except JobPostponedError:
            told.append("postponed")

    with ScriptedServer(OK, strict=False) as server:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(one, Context(order(shell, server.base_url)))
    assert told.count("completed") == 1
    assert all("SESSION_" in text or text in {"completed", "postponed"} for text in told)


@pytest.mark.parametrize("error", [LeaseLostError("gone"), EngineError("no queue"), JobCancelledError("enough")])
async def test_a_session_ends_when_its_worker_may_not_go_on(shell: Shell, error: Exception):
    with ScriptedServer(script(apple=HANG), strict=False) as server:
        context = Context(order(shell, server.base_url))
        ended: list[object] = []

        async def work() -> None:
            try:
                ended.append(parse_report(await handler(shell).handle(context)))
            except (LeaseLostError, EngineError) as raised:
                ended.append(type(raised))

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                while not server.exchanges:
                    await anyio.lowlevel.checkpoint()
                context.failing.append(error)
    (end,) = ended
    if isinstance(error, JobCancelledError):
        assert (end.record, end.problem) == (None, None)
    else:
        assert end is type(error)


async def test_what_was_killed_before_its_first_event_begins_anew(shell: Shell):
    path = session_path(shell.home, SESSION)
    path.parent.mkdir(parents=True)
    work = shell.home / "work" / SESSION
    (work / "integration.git").mkdir(parents=True)
    (work / "integration.git" / "HEAD").write_text("torn")
    with ScriptedServer(OK) as server:
        report = parse_report(await handler(shell).handle(Context(order(shell, server.base_url))))
    assert report.record["outcome"] == "completed"
    assert (work / "integration.git" / "HEAD").read_text() != "torn"
