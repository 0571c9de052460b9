"""The user's hooks over whole sessions: what they are told, what they can refuse, and that they change nothing else."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import anyio
import pytest

from tests.e2e.bench import Bench, Ended, bash, call, finish, on, scripted, start, submit, task, until, write
from tests.e2e.command import begin, run_line, session_of
from tests.e2e.test_stopping import is_alive
from xnagent.app.hooks import look
from xnagent.app.running import Stop
from xnagent.config.hooks import in_toml
from xnagent.core.events import LimitReached, PatchMerged, RunLaunched
from xnagent.core.hook_events import HookPoint, HookRan
from xnagent.core.hooks import Hook, Occasion, chosen
from xnagent.core.ids import PLANNER, AgentId, CallId, SessionId
from xnagent.core.permissions import parse_rule
from xnagent.core.spine_events import RequestStarted, ToolStarted
from xnagent.core.state import SessionState
from xnagent.ports import Call
from xnagent.testing.server import ScriptedServer

R1 = AgentId("r1")
SERVER = Path(__file__).resolve().parent.parent / "mcp_server.py"
ALWAYS = {"hook", "version", "session", "repository"}
ABOUT_CALL = {"agent", "run", "base", "task", "tool", "call", "arguments", "workspace"}
ABOUT_MERGE = {"head", "commit", "changed_files", "patch", "patch_is_whole", "patch_bytes", "patch_ticket"}
TOLD = {
    "session_start": {"objective", "is_resumed"},
    "session_end": {"objective", "is_resumed", "final"},
    "before_run": {"run", "base", "task"},
    "after_run": {"run", "base", "task", "status", "reason", "summary", "changed_files"},
    "before_tool": ABOUT_CALL,
    "after_tool": {*ABOUT_CALL, "result"},
    "before_merge": {"run", "base", "task", *ABOUT_MERGE},
    "after_merge": {"run", "base", "task", *ABOUT_MERGE},
}
"""docs/hooks.md: what may be relied on."""
POINTS = get_args(HookPoint)


def simple(*rules):
    return scripted(start(task("one")), finish("r1 settled: "), workers={"one": [*rules, submit()]})


def hooked(bench: Bench, *hooks: Hook, **environ: str) -> None:
    bench.host = replace(bench.host, hooks=hooks, environ={**bench.host.environ, **environ})


def told(bench: Bench) -> list[dict]:
    return [json.loads(line) for line in (bench.folder / "told").read_text().splitlines()]


def requests(ended: Ended) -> list[str]:
    """The Planner's first and all of the Worker's: what the Planner reads later also tells how far the run was then."""
    sent = ended.of(RequestStarted)
    first = next(event.sha256 for event in sent if event.agent == PLANNER)
    return [first, *(event.sha256 for event in sent if event.agent == R1)]


def teller(bench: Bench) -> str:
    return f"cat >> '{bench.folder}/told'"


async def test_every_hook_is_told_once_in_order_and_no_request_changes(bench: Bench, tmp_path: Path):
    script = simple(write("c.py", "y = 2\n"), on(calls=[call("read", path="c.py")]))
    with ScriptedServer(script) as server:
        plain = await bench.run(server)
    other = Bench(tmp_path / "other")
    hooked(other, *(Hook(on=on, command=teller(other)) for on in POINTS))
    with ScriptedServer(script) as server:
        ended = await other.run(server)
    assert requests(ended) == requests(plain)
    assert not plain.of(HookRan)
    documents = told(other)
    assert [one["hook"] for one in documents] == [
        "session_start",
        "before_run",
        *(["before_tool", "after_tool"] * 2),
        "before_merge",
        "after_merge",
        "after_run",
        "session_end",
    ]
    assert [one.on for one in ended.of(HookRan)] == [one["hook"] for one in documents]
    assert {one.verdict for one in ended.of(HookRan)} == {"passed"}
    assert {(one["session"], one["version"], one["repository"]) for one in documents} == {
        (other.session, 1, str(other.repository))
    }
    assert {one["hook"]: set(one) - ALWAYS for one in documents} == TOLD
    run, asked, result, merge = documents[1], documents[2], documents[5], documents[6]
    assert (run["run"], run["task"]["id"], run["base"]) == ("r1", "one", None)
    assert (asked["tool"], asked["arguments"]) == ("write", {"path": "c.py", "content": "y = 2\n"})
    assert (asked["agent"], asked["run"]) == ("r1", "r1")
    assert (result["result"]["code"], result["result"]["paths_read"]) == ("ok", ["c.py"])
    assert "y = 2" in result["result"]["text"]
    assert (merge["changed_files"], merge["patch_is_whole"]) == (["c.py"], True)
    assert "+y = 2" in merge["patch"]
    assert documents[-2]["status"] == "completed"
    assert documents[-1]["final"]["outcome"] == "completed"


async def test_a_hook_that_ends_with_2_denies_the_call_it_matches_and_the_model_reads_why(bench: Bench):
    deny = 'echo "use make, not $(sed \'s/.*\\"command\\":\\"\\([a-z]*\\).*/\\1/\')" >&2; exit 2'
    hooked(bench, Hook(on="before_tool", command=deny, rule=parse_rule("Bash(touch *)")))
    with ScriptedServer(simple(bash("touch made"), bash("true && touch made"), bash("echo fine"))) as server:
        ended = await bench.run(server, permissions__max_denials=9)
    first, second, third, _ = ended.results(R1)
    assert [one.code for one in (first, second, third)] == ["DENIED", "DENIED", "ok"]
    assert first.text.startswith("DENIED: a hook of the user (before_tool: ")
    assert "refused it: use make, not touch\nThe call had no effect." in first.text
    assert [one.tool for one in ended.of(ToolStarted)] == ["bash"], "a denied call never began"
    assert (ended.state.denials, len(ended.of(HookRan))) == (2, 2), "hooks are not run for what they do not match"
    assert not ended.state.hooks, "a call that has its result needs no memory of its hooks"


@pytest.mark.parametrize(
    ("command", "seconds", "must_pass", "why"),
    [
        ("echo broken >&2; exit 7", 60.0, False, None),
        ("echo broken >&2; exit 7", 60.0, True, "ended with exit code 7, and must pass: broken"),
        ("kill -KILL $$", 60.0, True, "did not end by itself, and must pass: it was ended by SIGKILL"),
        ("no-such-program", 60.0, True, "ended with exit code 127, and must pass: "),
        ("yes & sleep 60", 0.3, True, "did not end by itself, and must pass: it did not end within 0.3 s"),
    ],
)
async def test_a_hook_that_fails_is_a_warning_unless_it_must_pass(
    bench: Bench, command: str, seconds: float, must_pass: bool, why: str | None
):
    hooked(bench, Hook(on="before_tool", command=command, seconds=seconds, must_pass=must_pass))
    with ScriptedServer(simple(bash("echo fine"))) as server:
        ended = await bench.run(server)
    (ran,) = ended.of(HookRan)
    assert ran.verdict == ("denied" if must_pass else "failed")
    text = ended.results(R1)[0].text
    assert (why in text) if why else ("fine" in text)


async def test_a_refused_run_is_not_begun_and_the_planner_reads_why(bench: Bench):
    hooked(
        bench,
        Hook(on="before_run", command="echo 'not on Fridays' >&2; exit 2"),
        Hook(on="after_run", command=teller(bench)),
    )
    with ScriptedServer(scripted(start(task("one")), finish("r1 settled: failed"))) as server:
        ended = await bench.run(server)
    assert not ended.of(RunLaunched)
    assert ended.run("r1").reason.startswith("not begun: a hook of the user (before_run: ")
    assert any("not on Fridays" in text for text in ended.told())
    assert not (bench.folder / "told").exists(), "what has not begun has no end"


async def test_a_refused_merge_fails_the_run_and_leaves_the_head(bench: Bench):
    hooked(
        bench,
        Hook(on="before_merge", command="grep -q password && echo 'no passwords' >&2 && exit 2; exit 0"),
        Hook(on="after_merge", command=teller(bench)),
    )
    script = scripted(
        start(task("one"), task("two")),
        finish("r1 settled: ", "r2 settled: "),
        finish("r2 settled: "),
        finish("r1 settled: "),
        workers={"one": [write("c.py", "password = 1\n"), submit()], "two": [write("d.py", "z = 1\n"), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, parallel=1)
    assert ended.run("r1").reason.startswith("merge refused: a hook of the user (before_merge: ")
    assert "no passwords" in ended.run("r1").reason
    assert [one.run for one in ended.of(PatchMerged)] == ["r2"]
    assert [one["run"] for one in told(bench)] == ["r2"]


async def test_a_refused_session_ends_before_it_costs_anything_and_can_be_resumed(bench: Bench):
    command = f"[ -e '{bench.folder}/open' ] || {{ echo closed >&2; exit 2; }}"
    hooked(bench, Hook(on="session_start", command=command), Hook(on="session_end", command=teller(bench)))
    script = scripted(finish("<state>"))
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        assert (ended.outcome, ended.code) == ("limit", 6)
        assert ended.record["error"]["class"] == "limit_hook"
        assert "closed" in ended.record["error"]["message"]
        assert [one.limit for one in ended.of(LimitReached)] == ["hook"]
        assert not ended.of(RequestStarted)
        (bench.folder / "open").touch()
        ended = await bench.resume(server)
    assert ended.outcome == "completed"
    assert [one["final"]["outcome"] for one in told(bench)] == ["limit", "completed"]


async def test_a_hook_of_a_session_that_is_stopped_is_ended_with_all_that_it_started(bench: Bench):
    flag = bench.folder / "waits"
    hooked(bench, Hook(on="before_tool", command=f"sleep 60 & echo $! > '{flag}'; wait"))
    stop = Stop()
    with ScriptedServer(simple(bash("echo fine"))) as server:
        async with anyio.create_task_group() as group:

            async def interrupt() -> None:
                await until(lambda: flag.exists() and flag.read_text().strip() != "")
                stop.request("SIGINT")

            group.start_soon(interrupt)
            ended = await bench.run(server, stop=stop)
    assert ended.outcome == "interrupted"
    assert not is_alive(flag)
    assert not ended.of(HookRan)


async def test_after_a_crash_the_hook_that_had_not_ended_is_run_again_and_no_other(bench: Bench):
    """The second of two hooks of a call kills xnagent the first time."""
    place = bench.folder
    again = f"echo second >> '{place}/order'; [ -e '{place}/again' ] || {{ touch '{place}/again'; kill -KILL $PPID; }}"
    hooks = Hook(on="before_tool", command=f"echo first >> '{place}/order'"), Hook(on="before_tool", command=again)
    folder = place / ".config" / "xnagent"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f"hooks = {in_toml(hooks)}\n")
    with ScriptedServer(simple(bash(f"echo once >> '{place}/ran'"))) as server:
        process = begin(bench, run_line(bench, server))
        await anyio.to_thread.run_sync(process.communicate)
        assert process.returncode == -9
        bench.session = SessionId(session_of(bench))
        hooked(bench, *hooks)
        ended = await bench.resume(server)
    assert ended.outcome == "completed"
    assert (place / "order").read_text().split() == ["first", "second", "second"]
    assert (place / "ran").read_text().split() == ["once"]
    assert [one.verdict for one in ended.of(HookRan)] == ["passed", "passed"]


async def test_hooks_get_no_secrets_in_their_object_nor_unnamed_ones_in_their_environment(bench: Bench):
    secret = "sk-4f9d8a7c6b5e4d3c2b1a"
    hooked(
        bench,
        Hook(on="after_tool", command=f"cat >> '{bench.folder}/told'; env > '{bench.folder}/env'"),
        Hook(on="session_end", command=f"env > '{bench.folder}/named'", env=("DEPLOY_TOKEN",)),
        DEPLOY_TOKEN=secret,
        PLAIN="yes",
    )
    with ScriptedServer(simple(bash(f"echo {secret[:10]}{secret[10:]}"))) as server:
        await bench.run(server)
    assert secret not in (bench.folder / "told").read_text()
    unnamed = (bench.folder / "env").read_text()
    assert "PLAIN=yes" in unnamed
    assert "DEPLOY_TOKEN" not in unnamed
    assert f"DEPLOY_TOKEN={secret}" in (bench.folder / "named").read_text()


async def test_a_hook_for_a_foreign_tool_sees_its_calls_alone(bench: Bench):
    settings = {"command": sys.executable, "args": ["-I", "-S", str(SERVER)], "call_seconds": 5}
    hooked(bench, Hook(on="before_tool", command="echo 'not this one' >&2; exit 2", rule=parse_rule("mcp__t__where")))
    rules = [on(calls=[call("mcp__t__say", text="hello")]), on("you said hello", calls=[call("mcp__t__where")])]
    with ScriptedServer(simple(*rules)) as scripted_server:
        ended = await bench.run(scripted_server, mcp__servers__t=settings)
    assert [one.code for one in ended.results(R1)] == ["ok", "DENIED", "ok"]


def test_a_call_through_mcp_invoke_is_judged_as_the_tool_that_it_names():
    prepared = Call(
        agent=R1,
        call_id=CallId("c"),
        arguments={"tool": "mcp__t__push", "arguments": {"command": "git push"}},
        state=SessionState(),
        artifacts=None,
        history=None,
    )
    asked = look("mcp_invoke", prepared)
    hooks = [Hook(on="before_tool", command=name, rule=parse_rule(name)) for name in ("mcp__t__push", "mcp__u", "Bash")]
    assert [hook.command for hook in chosen(hooks, Occasion(on="before_tool", asked=asked))] == ["mcp__t__push"]
