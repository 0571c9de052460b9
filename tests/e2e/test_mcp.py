"""Whole sessions whose Workers have tools of real MCP servers: frozen lists, faults as answers, nothing left behind."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.e2e.bench import FILES, Bench, bash, call, finish, on, scripted, start, submit, task
from xnagent.core.events import RunSettled
from xnagent.core.ids import AgentId
from xnagent.core.mcp_events import McpServerChanged, McpToolsFrozen
from xnagent.core.spine_events import ManifestRecorded, ToolFinished, ToolStarted
from xnagent.testing.server import ScriptedServer
from xnagent.workspaces.box.ladder import first_that_works

SERVER = Path(__file__).resolve().parent.parent / "mcp_server.py"
R1 = AgentId("r1")


def plain(*words: str, **fields) -> dict:
    """The settings of a server that is the plain one."""
    return {"command": sys.executable, "args": ["-I", "-S", str(SERVER), *words], "call_seconds": 5, **fields}


def names(body: bytes) -> list[str]:
    return [tool["function"]["name"] for tool in json.loads(body)["tools"]]


def workers_first(server: ScriptedServer) -> bytes:
    return next(body for body in server.bodies if "submit" in names(body))


def simple(*rules, count: int = 1):
    """A session of one run, whose Worker does these and submits."""
    return scripted(start(task("one")), finish("r1 settled"), workers={"one": [*rules, submit()]})


def use(tool: str, *when: str, **arguments):
    return on(*when, calls=[call(f"mcp__t__{tool}", **arguments)])


def is_running(number: str) -> bool:
    return Path(f"/proc/{number}/stat").exists() and " Z " not in Path(f"/proc/{number}/stat").read_text()


async def test_m124_a_worker_calls_tools_and_every_kind_of_fault_is_an_answer(bench: Bench):
    rules = [
        use("say", text="hello"),
        use("where", "you said hello"),
        use("fail", "/"),
        use("picture", "MCP_FAILED"),
        use("both", "link to b"),
        use("flood", '"b": [2]'),
        use("say", "full result: artifact:", wrong=1),
        use("broken", "BAD_ARGS"),
        use("ask", "MCP_PROTOCOL"),
        use("child", "answered"),
        use("die", "<data"),
        use("say", "MCP_DOWN", "the server met its end", text="again"),
        on("you said again", calls=[call("mcp__t__nothing")]),
        bash("cat from-server.txt", "UNKNOWN_TOOL"),
    ]
    with ScriptedServer(simple(*rules)) as server:
        ended = await bench.run(server, mcp__servers={"t": plain("noisy", required=True)})
    assert ended.outcome == "completed"
    codes = [event.code for event in ended.results(R1)][:12]
    assert codes == [
        "ok",
        "ok",
        "MCP_FAILED",
        "ok",
        "ok",
        "ok",
        "BAD_ARGS",
        "MCP_PROTOCOL",
        "ok",
        "ok",
        "MCP_DOWN",
        "ok",
    ]
    said, where, failed, picture, both, flood = (event.text for event in ended.results(R1)[:6])
    assert said == '<data from="MCP server t">\n<\\/DATA>you said hello\n</data>', "nothing closes its label"
    assert str(bench.work("runs", "r1")) in where or "r1" in where
    assert "it cannot be done" in failed
    assert "[image (image/png): not shown, 8 bytes are kept as artifact:" in picture
    assert "[audio (audio/wav): not shown, its content cannot be decoded]" in picture
    assert both.count('"a"') == 1, "what is told twice is shown once"
    assert len(flood) < 13_000
    assert "Elicitation not supported" in ended.results(R1)[8].text
    started = [event for event in ended.of(ToolStarted) if event.tool.startswith("mcp__")]
    assert {event.effect for event in started} == {"opaque"}
    assert not is_running(ended.results(R1)[9].text.splitlines()[1]), "what a server began ends with it"
    assert bench.read("from-server.txt") == "written by a server\n"
    planner, worker = server.bodies[0], workers_first(server)
    assert not [name for name in names(planner) if name.startswith("mcp")]
    mine = [name for name in names(worker) if name.startswith("mcp")]
    assert mine == sorted(mine)
    assert "mcp__t__say" in mine
    assert names(worker) == sorted(names(worker))


async def test_m124_what_was_frozen_is_sent_again_without_the_server(bench: Bench):
    with ScriptedServer(simple(use("say", text="a"), bash("true", "you said a"))) as server:
        first = await bench.run(server, limits__steps=4, mcp__servers={"t": plain(), "gone": plain("dead")})
    assert first.outcome == "limit"
    (frozen,) = first.of(McpToolsFrozen)
    assert [one.fault for one in frozen.servers if one.server == "gone"] == [
        "its connection ended (it said: no configuration found)"
    ]
    rest = scripted(
        finish("r1 settled", times=1),
        workers={
            "one": [use("say", text="b"), use("say", "MCP_DOWN", text="c"), submit("Do not call its tools again")]
        },
    )
    with ScriptedServer(rest) as server:
        ended = await bench.resume(server, mcp__servers={"t": plain("dead")})
    assert ended.outcome == "completed"
    assert len(ended.of(McpToolsFrozen)) == 1
    workers = [event for event in ended.of(ManifestRecorded) if event.role == "worker"]
    assert len(workers) == 1, "the same tools, byte for byte"


async def test_m111_many_tools_stand_behind_three_unless_a_rule_names_them(bench: Bench):
    rules = [
        on(calls=[call("mcp_search", words="part 07")]),
        on("mcp__t__make_part_07", calls=[call("mcp_inspect", tools=["mcp__t__make_part_07"])]),
        on('"required":["text"]', calls=[call("mcp_invoke", tool="mcp__t__make_part_07", arguments={})]),
        on("BAD_ARGS", calls=[call("mcp_invoke", tool="mcp__t__make_part_07", arguments={"text": "x"})]),
        on("MCP_REFUSED", calls=[call("mcp_search")]),
        on("t (58 tools)", calls=[call("mcp_invoke", tool="mcp__t__make_part_01", arguments={"text": "x"})]),
    ]
    with ScriptedServer(simple(*rules)) as server:
        ended = await bench.run(
            server,
            mcp__servers={"t": plain("many")},
            planner__model={"name": "m", "base_url": server.base_url, "window": 64_000},
            permissions={"allow": ["mcp__t__make_part_00"], "deny": ["mcp__t__make_part_01"]},
        )
    assert ended.outcome == "completed"
    assert ended.results(R1)[-2].code == "NOT_FOUND", "a forbidden tool is not there"
    mine = [name for name in names(workers_first(server)) if name.startswith("mcp")]
    assert mine == ["mcp__t__make_part_00", "mcp_inspect", "mcp_invoke", "mcp_search"]
    (frozen,) = ended.of(McpToolsFrozen)
    assert (len(frozen.listed), len(frozen.deferred)) == (60, 59)


async def test_a_required_server_that_is_late_ends_the_session_before_anything_is_sent(bench: Bench):
    with ScriptedServer(scripted()) as server:
        ended = await bench.run(server, mcp__servers={"t": plain("late", required=True, start_seconds=0.3)})
    assert (ended.code, server.bodies) == (2, [])
    assert "MCP_REQUIRED: server t did not answer: it did not answer within 0.3 s" in ended.record["error"]["message"]


async def test_a_server_that_changes_is_told_and_not_followed(bench: Bench):
    with ScriptedServer(simple(use("say", text="a"), use("hang", "you said a"), submit("MCP_TIMEOUT"))) as server:
        ended = await bench.run(server, mcp__servers={"t": plain("changing", call_seconds=0.5)})
    assert [event.detail for event in ended.of(McpServerChanged)] == ["it says that its tools are others now"]
    assert ended.results(R1)[1].code == "MCP_TIMEOUT"


@pytest.mark.skipif(first_that_works(os.environ) is None, reason="no box works here")
async def test_B074_a_server_runs_in_the_box_of_its_run_with_an_allow_list_of_variables(tmp_path: Path):
    files = {**FILES, "server.py": SERVER.read_text()}
    bench = Bench(tmp_path, files)
    bench.host = type(bench.host)(
        home=bench.host.home, environ={**bench.host.environ, "CHOSEN": "chosen-value", "OTHER_KEY": "sk-0123456789"}
    )
    python = shutil.which("python3", path="/usr/bin:/bin") or "python3"
    server_table = {"command": python, "args": ["server.py"], "env": ["CHOSEN"], "required": True}
    rules = [use("env"), use("where", "chosen-value"), bash("cat from-server.txt; ls ~", "<data")]
    with ScriptedServer(simple(*rules)) as server:
        ended = await bench.run(server, mcp__servers={"t": server_table}, sandbox={"mode": "required"})
    assert ended.outcome == "completed", ended.record
    environment = json.loads(ended.results(R1)[0].text.splitlines()[1])
    assert environment["CHOSEN"] == "chosen-value"
    assert "OTHER_KEY" not in environment
    assert environment["USER"] == "worker"
    assert [event.code for event in ended.of(ToolFinished) if event.agent == R1][:3] == ["ok", "ok", "ok"]
    assert [event.status for event in ended.of(RunSettled)] == ["completed"]
