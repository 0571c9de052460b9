"""Permission rules over whole sessions: what a denied call leaves behind, and what it does not change."""

import json
from dataclasses import replace

import pytest

from tests.e2e.bench import Bench, bash, call, finish, on, scripted, start, submit, task, write
from xnagent.core.ids import AgentId
from xnagent.core.spine_events import ManifestRecorded, PrefixBroken, RequestStarted, ToolsChanged, ToolStarted
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import overview, overview_text
from xnagent.testing.server import ScriptedServer

R1 = AgentId("r1")


def tools_of(body: bytes) -> set[str]:
    return {tool["function"]["name"] for tool in json.loads(body)["tools"]}


async def test_a_denied_call_has_no_effect_is_told_counted_and_the_run_goes_on(bench: Bench):
    script = scripted(
        start(task("one")),
        finish("r1 settled: completed"),
        workers={
            "one": [
                bash("touch made && git push"),
                bash("sh -c 'touch made'"),
                write("src/a.py", "x\n"),
                write("c.py", "y = 2\n"),
                submit(),
            ]
        },
    )
    deny = ["Bash(git push *)", "Bash(touch *)", "Edit(src/**)"]
    with ScriptedServer(script) as server:
        ended = await bench.run(server, permissions__deny=deny)
    results = ended.results(R1)
    assert [one.code for one in results] == ["DENIED", "DENIED", "DENIED", "ok", "ok"]
    assert results[0].text.startswith("DENIED: rule Bash(git push *) forbids `git push`.")
    assert "permissions.deny" in results[0].text
    assert "rule Edit(src/**) forbids `src/a.py`" in results[2].text
    assert not [one for one in ended.of(ToolStarted) if one.tool == "bash"], "a denied call never began"
    assert (ended.outcome, ended.state.denials) == ("completed", 3)
    assert ended.record["workspace"]["changed_files"] == ["c.py"]
    reading = Reading(session=bench.session, state=ended.state, events=ended.events)
    assert overview(reading)["denials"] == 3
    assert "denied    3 calls" in overview_text(reading)


async def test_M119_with_allow_rules_nothing_else_of_the_tool_is_allowed(bench: Bench):
    script = scripted(
        start(task("one")),
        finish("r1 settled: completed"),
        workers={
            "one": [
                bash("echo hi && ls"),
                bash("echo $(touch made)"),
                bash("echo hi"),
                write("c.py", "y = 2\n"),
                submit(),
            ]
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, permissions__allow=["Bash(echo *)"])
    first, second, *rest = ended.results(R1)
    assert "only this is allowed: Bash(echo *); `ls` is not among them" in first.text
    assert "--allow RULE" in first.text
    assert "it cannot be told what this runs: command or parameter substitution" in second.text
    assert [one.code for one in rest] == ["ok", "ok", "ok"], "other tools have no rules"


async def test_rules_on_reading_hold_for_the_planner_through_links_and_in_searches(bench: Bench):
    bench.repository.joinpath("keys").mkdir()
    bench.repository.joinpath("keys", "k.txt").write_text("needle in keys\n")
    bench.repository.joinpath("open.txt").write_text("needle in the open\n")
    bench.repository.joinpath("link").symlink_to("keys")
    script = scripted(
        on("<state>", calls=[call("read", target="keys/k.txt"), call("read", target="link/k.txt")]),
        on(calls=[call("grep", pattern="needle"), call("grep", pattern="needle", path="keys")]),
        on(calls=[call("read", target="open.txt")]),
        finish(),
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, permissions__deny=["Read(keys/**)"])
    plain, linked, everywhere, there, public = ended.results()[:5]
    assert (plain.code, linked.code, there.code, public.code) == ("DENIED", "DENIED", "DENIED", "ok")
    assert "open.txt:1:needle in the open" in everywhere.text
    assert "needle in keys" not in "".join(one.text for one in ended.results())


async def test_a_tool_that_is_denied_as_a_whole_is_not_offered(bench: Bench):
    script = scripted(
        start(task("one")),
        finish("r1 settled: completed"),
        workers={"one": [bash("ls"), write("c.py", "y = 2\n"), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, permissions__deny=["bash", "Grep"])
    offered = {name for body in server.bodies for name in tools_of(body)}
    assert not {"bash", "grep"} & offered
    assert {"read", "write", "edit", "glob", "plan"} <= offered
    first = ended.results(R1)[0]
    assert (first.code, first.text.split(".")[0]) == ("DENIED", "DENIED: rule bash forbids `bash`")


async def test_so_many_denials_end_the_session_as_a_limit(bench: Bench):
    script = scripted(start(task("one")), workers={"one": [bash(f"git push {number}") for number in range(5)]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server, permissions__deny=["Bash(git push *)"], permissions__max_denials=2)
    assert (ended.outcome, ended.code) == ("limit", 6)
    assert ended.state.limit.limit == "denials"
    assert ended.state.denials == 2
    assert "permissions.max_denials" in ended.record["error"]["message"]
    assert ended.record["error"]["class"] == "limit_denials"


@pytest.mark.parametrize(
    ("later", "is_declared"),
    [
        pytest.param(["Bash(git push *)", "Read(keys/**)"], False, id="more-rules"),
        pytest.param([], False, id="no-rules"),
        pytest.param(["Read"], True, id="a-tool-less"),
    ],
)
async def test_changed_rules_change_no_request_but_by_a_tool_that_goes(bench: Bench, later, is_declared: bool):
    asking = finish("<state>", outcome="blocked", summary="Wait.", question="May I?")
    with ScriptedServer(scripted(asking)) as server:
        first = await bench.run(server, permissions__deny=["Bash(git push *)"])
    with ScriptedServer(scripted(on("Yes", calls=[call("read", target="a.py")]), finish())) as server:
        ended = await bench.resume(server, "Yes.", permissions__deny=later)
    before = first.of(RequestStarted)[-1]
    after = ended.of(RequestStarted)[-1]
    assert (before.manifest != after.manifest) is is_declared
    assert not ended.of(PrefixBroken)
    manifests = {one.manifest: one for one in ended.of(ManifestRecorded)}
    names = [{tool["name"] for tool in json.loads(manifests[one.manifest].tools)} for one in (before, after)]
    assert names[0] - names[1] == ({"read", "grep", "glob"} if is_declared else set())
    bare = {"tools": "", "tools_sha256": "", "manifest": ""}
    assert replace(manifests[after.manifest], **bare) == replace(manifests[before.manifest], **bare)
    assert len(ended.of(ToolsChanged)) == is_declared


async def test_a_resumed_session_gets_a_tool_back(bench: Bench):
    asking = finish("<state>", outcome="blocked", summary="Wait.", question="May I?")
    with ScriptedServer(scripted(asking)) as server:
        await bench.run(server, permissions__deny=["Grep"])
    with ScriptedServer(scripted(on("Yes", calls=[call("grep", pattern="x")]), finish())) as server:
        ended = await bench.resume(server, "Yes.")
        assert "grep" in tools_of(server.bodies[-1])
    assert ended.results(tool="grep")[0].code == "ok"
