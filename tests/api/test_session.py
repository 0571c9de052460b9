"""`xnagent.open`: run, read, stop, go on, from Python."""

import anyio
import pytest

import xnagent
from tests.api.kit import KEY, Kit, played
from tests.e2e.bench import bash, finish, on, plan, scripted, start, submit, task, write
from xnagent.core.events import SessionInterrupted, UserMessageAdded
from xnagent.core.ids import SessionId
from xnagent.core.record import final_record
from xnagent.store.codec import as_record
from xnagent.testing.script import Script
from xnagent.testing.server import ScriptedServer

SHORT = scripted(finish("<state>", summary="Nothing to do."))


def slow(kit: Kit) -> Script:
    """A Worker that works until the flag is there; a second run, after a resume, hands in."""
    command = f"touch {kit.folder}/begun; for n in $(seq 600); do [ -e {kit.folder}/go ] && break; sleep 0.05; done"
    return scripted(
        start(task("a")),
        on("m1", text="I wait on.", times=2),
        finish("settled"),
        workers={"a": [bash(command), submit("CANCELLED"), submit()]},
    )


async def stopped(kit: Kit, session: xnagent.Session) -> None:
    """It ended in order and can be resumed."""
    ended = kit.ended(session.id)
    assert (ended.outcome, session.final.outcome) == ("interrupted", "interrupted")
    assert session.final.exit_code == 130


async def test_a_run_yields_the_events_of_the_log_and_ends_with_the_final_record(kit: Kit):
    script = scripted(start(task("a")), finish("settled"), workers={"a": [write("new.py", "z = 1\n"), submit()]})
    with ScriptedServer(script) as server:
        async with xnagent.open(**kit.options(server, checks=["test -e new.py"])) as session:
            with pytest.raises(xnagent.UsageError, match="SESSION_OPEN"):
                _ = session.final
            events = [event async for event in session.run("Make it so.")]
        server.check()
    ended = kit.ended(session.id)
    assert [event.record() for event in events] == [as_record(SessionId(session.id), one) for one in ended.events]
    final = session.final
    assert final.record == final_record(ended.state)
    assert (final.outcome, final.exit_code, final.verified, final.error) == ("completed", 0, True, None)
    assert (final.tasks.completed, final.runs.total, final.steps.worker) == (1, 1, 2)
    assert final.usage.by_role["worker"].requests == 2
    assert final.workspace.changed_files == ("new.py",)
    assert (kit.repository / "new.py").exists()


async def test_leaving_the_loop_early_stops_in_order_and_another_block_goes_on(kit: Kit):
    with ScriptedServer(slow(kit)) as server:
        async with xnagent.open(**kit.options(server)) as session:
            async for event in session.run("Make it so."):
                if event.type == "run_launched":
                    break
            with anyio.fail_after(20):
                await session.cancel("only waits: it was asked to stop before")
            await stopped(kit, session)
        (kit.folder / "go").touch()
        again = {name: value for name, value in kit.options(server).items() if name in {"home", "environ"}}
        async with xnagent.open(session.id, **again) as second:
            assert second.final.outcome == "interrupted"
            kinds = [event.type async for event in second.resume()]
    assert kinds[0] == "session_resumed"
    assert second.final.outcome == "completed"


async def failing(kit: Kit, server: ScriptedServer) -> None:
    async with xnagent.open(**kit.options(server)) as session:
        async for event in session.run("Make it so."):
            if event.type == "run_launched":
                _ = 1 / 0


async def test_an_error_in_the_block_comes_out_as_it_is_after_the_session_was_stopped(kit: Kit):
    with ScriptedServer(slow(kit)) as server, pytest.raises(ZeroDivisionError):
        await failing(kit, server)
    (path,) = (kit.home / "sessions").glob("*.db")
    assert kit.ended(path.stem).outcome == "interrupted"


async def test_a_cancel_scope_around_it_ends_everything_in_order(kit: Kit):
    with ScriptedServer(slow(kit)) as server:
        with anyio.CancelScope() as scope:
            async with xnagent.open(**kit.options(server)) as session:
                async for event in session.run("Make it so."):
                    if event.type == "tool_started":
                        scope.cancel()
            pytest.fail("it was not cancelled")
        assert scope.cancelled_caught
        await stopped(kit, session)
        (kit.folder / "go").touch()
        async with xnagent.open(session.id, **kit.options(server)) as second:
            async for _ in second.resume():
                pass
    assert second.final.outcome == "completed"


async def test_a_running_session_is_told_something_and_cancelled_with_a_reason(kit: Kit):
    with ScriptedServer(slow(kit)) as server:
        async with xnagent.open(**kit.options(server)) as session:
            told = None
            async for event in session.run("Make it so."):
                if event.type == "tool_started" and told is None:
                    with pytest.raises(xnagent.UsageError, match="SESSION_RUNS"):
                        await anext(session.resume())
                    told = await session.tell("Use tabs.")
                    await session.cancel("enough")
    ended = kit.ended(session.id)
    assert told == "m1"
    assert [event.text for event in ended.of(UserMessageAdded)] == ["Use tabs."]
    assert [event.reason for event in ended.of(SessionInterrupted)] == ["enough"]
    await stopped(kit, session)


async def test_a_question_is_answered_by_a_message(kit: Kit):
    script = scripted(
        finish("<state>", outcome="blocked", summary="Which one?", question="Tabs or spaces?"), finish("m1")
    )
    with ScriptedServer(script) as server:
        async with xnagent.open(**kit.options(server)) as session:
            async for _ in session.run("Indent."):
                pass
            assert (session.final.exit_code, session.final.question) == (5, "Tabs or spaces?")
            assert await session.tell("Tabs.") is None
            kinds = [event.type async for event in session.resume()]
        server.check()
    assert "user_message_added" in kinds
    assert session.final.outcome == "completed"


async def test_what_ends_with_an_outcome_is_no_exception(kit: Kit):
    with ScriptedServer(scripted(on("<state>", calls=[plan(task("a"))]))) as server:
        async with xnagent.open(**kit.options(server, max_steps=1)) as session:
            async for _ in session.run("Make it so."):
                pass
    assert (session.final.outcome, session.final.exit_code) == ("limit", 6)
    assert session.final.error is not None
    assert session.final.error.kind == "limit_steps"


async def test_events_hold_no_secret_of_the_process(kit: Kit):
    script = scripted(
        start(task("a")),
        finish("settled"),
        workers={"a": [bash(f"echo {KEY[:12]}''{KEY[12:]}"), submit()]},
    )
    with ScriptedServer(script) as server:
        async with xnagent.open(**kit.options(server)) as session:
            events = [event async for event in session.run(f"Say it, but not {KEY}.")]
    assert KEY not in repr(events)
    assert repr(events).count("[secret:MODEL_KEY]") > 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"modell": "m"}, 'CONFIG_UNKNOWN_KEY: xnagent.open: unknown key "modell"; did you mean "model"'),
        ({"settings": {"limits.us": 1}}, 'settings\\["limits.us"\\]: unknown key'),
        ({"parallel": 0}, "parallel="),
        ({"directory": "/nowhere/at/all"}, "NO_FOLDER"),
        ({"home": ""}, "HOME_EMPTY"),
        ({"deny": ["Tol(x)"]}, "there is no tool"),
    ],
)
async def test_options_that_cannot_be_are_refused_at_the_door(kit: Kit, options: dict[str, object], told: str):
    with ScriptedServer(SHORT) as server, pytest.raises(xnagent.UsageError, match=told) as caught:
        async with xnagent.open(**kit.options(server, **options)):
            pytest.fail("it opened")
    assert caught.value.exit_code == 2
    assert not kit.home.exists()


async def test_misuse_is_told_and_harms_nothing(kit: Kit):
    with ScriptedServer(SHORT) as server:
        with pytest.raises(xnagent.UsageError, match=r"SESSION_NAME|no session"):
            async with xnagent.open("s-nobody", **kit.options(server)):
                pytest.fail("it opened")
        async with xnagent.open(**kit.options(server)) as session:
            with pytest.raises(xnagent.UsageError, match="OBJECTIVE_EMPTY"):
                session.run(" \n")
            with pytest.raises(xnagent.UsageError, match="MESSAGE_EMPTY"):
                session.resume(message="")
            await session.cancel()
            events = session.run("Nothing.")
            first = await anext(events)
            rest = [event async for event in events]
            with pytest.raises(xnagent.UsageError, match="SESSION_BEGUN"):
                await anext(session.run("Again."))
            with pytest.raises(StopAsyncIteration):
                await anext(events)
            assert [event async for event in session.resume()] == []
        server.check()
    assert (first.seq, rest[-1].type) == (1, "session_settled")


async def test_a_run_that_cannot_begin_leaves_nothing_and_can_be_tried_again(kit: Kit):
    with ScriptedServer(SHORT) as server:
        options = kit.options(server, checks=[f"echo {KEY}"])
        with pytest.raises(xnagent.UsageError, match="CHECK_HOLDS_SECRET"):
            await played(options)
        async with xnagent.open(**kit.options(server)) as session:
            events = session.run("Nothing.")
            await anext(events)
            await events.aclose()
            await events.aclose()
            assert session.final.outcome in {"interrupted", "completed"}


async def test_the_users_hooks_run_here_too(kit: Kit):
    hooks = kit.folder / "hooks.toml"
    hooks.write_text(f'[[hooks]]\non = "session_start"\ncommand = "cat > {kit.folder}/told.json"\n')
    with ScriptedServer(SHORT) as server:
        async with xnagent.open(**kit.options(server, config=[hooks])) as session:
            assert [event.type async for event in session.run("Make it so.")].count("hook_ran") == 1
    assert session.id in (kit.folder / "told.json").read_text()
