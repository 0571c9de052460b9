"""How sessions begin, go on and leave the user's folder alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.bench import SESSION, Bench, bash, call, finish, git, on, scripted, server_settings, start, submit, task
from xnagent.app.host import Host, SystemClock
from xnagent.app.running import SessionSpec, Stop, is_over, resume_session, run_session
from xnagent.config import Settings
from xnagent.core.spine_events import ManifestRecorded
from xnagent.errors import StoreBusyError, StoreError, UsageError
from xnagent.store.sqlite import SessionStore
from xnagent.testing.server import ScriptedServer

ONE_RUN = scripted(
    start(task("one")),
    finish("r1 settled"),
    workers={"one": [bash("echo 'x = 2' > a.py; echo new > new.txt"), submit()]},
)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_session_runs_on_both_backends(bench: Bench, anyio_backend: str):
    with ScriptedServer(ONE_RUN) as server:
        ended = await bench.run(server)
        server.check()
    assert ended.code == 0
    assert ended.record["workspace"]["changed_files"] == ["a.py", "new.txt"]
    assert ended.record["duration_seconds"] > 0


async def test_a_plain_folder_is_worked_on_without_becoming_a_repository(tmp_path: Path):
    bench = Bench(tmp_path)
    (bench.repository / ".git").rename(tmp_path / "away")
    with ScriptedServer(ONE_RUN) as server:
        ended = await bench.run(server)
    assert (ended.code, ended.record["workspace"]["applied"], ended.record["workspace"]["branch"]) == (0, True, None)
    assert bench.read("a.py") == "x = 2\n"
    assert not (bench.repository / ".git").exists()


async def test_without_apply_the_result_is_on_a_branch_only(bench: Bench):
    with ScriptedServer(ONE_RUN) as server:
        ended = await bench.run(server, apply=False)
    assert (ended.code, ended.record["workspace"]["applied"]) == (0, False)
    assert bench.read("a.py") == "x = 1\n"
    assert git("show", "xnagent/s-bench:a.py", folder=bench.repository) == "x = 2\n"


async def test_uncommitted_work_of_the_user_is_seen_and_kept(bench: Bench):
    (bench.repository / "b.py").write_text("y = 99\n")
    (bench.repository / "untracked.txt").write_text("mine\n")
    script = scripted(
        start(task("one")),
        finish("r1 settled"),
        workers={"one": [bash("cat b.py untracked.txt; echo 'x = 2' > a.py"), submit("y = 99", "mine")]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert ended.record["workspace"]["changed_files"] == ["a.py"]
    assert (bench.read("b.py"), bench.read("untracked.txt"), bench.read("a.py")) == ("y = 99\n", "mine\n", "x = 2\n")
    assert git("stash", "list", folder=bench.repository) == ""


async def test_a_change_of_the_user_meanwhile_is_not_overwritten(bench: Bench):
    script = scripted(
        start(task("one")),
        finish("r1 settled"),
        workers={"one": [bash(f"echo 'x = 5' > {bench.repository}/a.py; echo 'x = 2' > a.py"), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert (ended.code, ended.record["workspace"]["applied"]) == (0, False)
    assert bench.read("a.py") == "x = 5\n"
    assert ended.record["workspace"]["branch"] == "xnagent/s-bench"
    assert ended.record["workspace"]["detail"]


@pytest.mark.parametrize(
    ("model", "environ", "message"),
    [
        ({}, {}, "MODEL_MISSING"),
        ({"name": "nobody-knows-it"}, {}, "MODEL_UNKNOWN"),
        (
            {"name": "m", "base_url": "http://127.0.0.1:1/v1", "api_key_env": "MY_KEY"},
            {"MY_KEY": "  "},
            "KEY_MISSING: MY_KEY",
        ),
    ],
)
async def test_B057_what_cannot_begin_leaves_nothing_behind(bench: Bench, model: dict, environ: dict, message: str):
    settings = Settings.model_validate({"planner": {"model": model}})
    spec = SessionSpec(objective="x", repository=bench.repository, settings=settings, session=SESSION)
    host = replace(bench.host, environ={**bench.host.environ, **environ})
    with pytest.raises(UsageError, match=message):
        await run_session(host, spec, stop=Stop())
    assert not bench.host.home.exists()


async def test_a_folder_that_is_not_there_is_a_usage_error(bench: Bench):
    settings = server_settings("http://127.0.0.1:1/v1")
    spec = SessionSpec(objective="x", repository=bench.folder / "none", settings=settings, session=SESSION)
    with pytest.raises(UsageError):
        await run_session(bench.host, spec, stop=Stop())
    assert not bench.path.exists()


async def test_a_session_that_is_over_is_not_opened_again_without_a_message(bench: Bench):
    with ScriptedServer(ONE_RUN) as server:
        ended = await bench.run(server)
        sent = len(server.bodies)
        again = await bench.resume(server)
        assert len(server.bodies) == sent
    assert is_over(ended.state)
    assert len(again.events) == len(ended.events)


async def test_a_message_opens_a_session_again_and_its_plan_stands(bench: Bench):
    script = scripted(
        start(task("one", checks=["grep -q 2 a.py"])),
        finish("r1 settled", outcome="blocked", question="2 or 3?"),
        on("the user wrote m1", "Three.", calls=[call("plan", tasks=[task("one", checks=["grep -q 3 a.py"])])]),
        on("/tasks/one/checks/0", calls=[call("delegate", task="one")]),
        finish("r2 settled: completed"),
        workers={
            "one#1": [bash("echo 'x = 2' > a.py"), submit()],
            "one#2": [bash("echo 'x = 3' > a.py", "r1, ended as completed"), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        assert (ended.outcome, ended.code, ended.record["question"]) == ("blocked", 5, "2 or 3?")
        ended = await bench.resume(server, "Three.")
        server.check()
    assert (ended.code, ended.record["question"]) == (0, None)
    assert bench.read("a.py") == "x = 3\n"


async def test_a_session_that_another_process_runs_is_left_alone(bench: Bench):
    with ScriptedServer(ONE_RUN) as server:
        await bench.run(server)
        held = await SessionStore.open(bench.path, clock=SystemClock())
        try:
            with pytest.raises(StoreBusyError):
                await bench.resume(server, "More.")
        finally:
            await held.aclose()


async def test_a_session_that_is_not_there_cannot_be_resumed(bench: Bench):
    with pytest.raises((UsageError, StoreError)):
        await resume_session(
            bench.host, SESSION, settings=server_settings("http://127.0.0.1:1/v1"), message=None, stop=Stop()
        )
    assert not bench.path.exists()


async def test_another_model_on_resumption_begins_no_broken_prefix(bench: Bench):
    script = scripted(
        on("<state>", calls=[call("glob", pattern="*")]),
        finish("step limit reached"),
    )
    with ScriptedServer(script, strict=False) as server:
        ended = await bench.run(server, limits__steps=1)
        ended = await bench.resume(server, planner__model__name="other")
    assert (ended.code, ended.record["spine"]["breaks"]) == (0, 0)
    assert [event.model for event in ended.of(ManifestRecorded)] == ["m", "other"]


async def test_a_worker_model_of_its_own_for_one_run(bench: Bench):
    first = on("<state>", calls=[call("plan", tasks=[task("one")]), call("delegate", task="one", model="special")])
    script = scripted(first, finish("r1 settled"), workers={"one": [submit()]})
    models = {"special": {"base_url": "http://127.0.0.1:9/v1"}}
    with ScriptedServer(script) as server:
        ended = await bench.run(server, models=models)
        server.check()
    sent = [exchange.request.data["model"] for exchange in server.exchanges if exchange.request.role == "worker"]
    assert (ended.code, sent) == (0, ["special"])


async def test_the_trees_of_runs_are_gone_after_the_end(bench: Bench):
    with ScriptedServer(ONE_RUN) as server:
        await bench.run(server)
    assert not list(bench.work("runs").glob("*"))
    assert not list(bench.work("checks").glob("*"))


def test_the_clock_of_the_machine():
    clock = SystemClock()
    assert clock.now().endswith("Z")
    assert len(clock.now()) == len("2030-01-01T00:00:00.000Z")
    assert clock.monotonic() <= clock.monotonic()
    assert Host(home=Path("/h"), environ={}).work_folder(SESSION) == Path("/h/work/s-bench")
