"""`xnagent acp`, spoken to by the client of the protocol's official SDK."""

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest

import xnagent
from tests.api.acp_client import editing, environ_of, line_of
from tests.api.kit import Kit
from tests.e2e.bench import bash, finish, on, plan, scripted, start, submit, task, until, write
from xnagent.acp.patches import pieces
from xnagent.acp.talk import stop_reason
from xnagent.acp.wire import LineWire
from xnagent.testing.server import ScriptedServer


@pytest.fixture
def anyio_backend() -> str:
    """The SDK knows asyncio alone."""
    return "asyncio"


async def test_an_editor_sees_text_plan_tool_calls_diffs_and_usage(tmp_path: Path):
    script = scripted(
        start(task("a")),
        finish("settled", summary="It is written."),
        finish("m1", summary="Nothing more."),
        workers={"a": [bash("echo x = 2 > a.py"), write("new.py", "z = 1\n"), submit()]},
    )
    with ScriptedServer(script) as server:
        async with editing(tmp_path, server) as (editor, agent, _):
            servers = [acp.schema.McpServerStdio(name="files", command="x", args=[], env=[])]
            begun = await agent.new_session(cwd=str(tmp_path / "repo"), mcp_servers=servers)
            prompt = [acp.text_block("Make it so."), acp.resource_link_block("a.py", "file:///a.py")]
            first = await agent.prompt(session_id=begun.session_id, prompt=prompt)
            second = await agent.prompt(session_id=begun.session_id, prompt=[acp.text_block("And?")])
            seen = len(editor.told)
            await agent.load_session(session_id=begun.session_id, cwd=str(tmp_path / "repo"), mcp_servers=[])
            faults = await faults_of(agent, begun.session_id, tmp_path)
        server.check()
    assert {code for code, _ in faults} == {-32602}
    words = ("absolute", "NO_FOLDER", "s-nobody", "begin or load", "empty", "only text")
    assert all(word in told for word, (_, told) in zip(words, faults, strict=True)), faults
    assert "(files) are not used" in editor.text()
    assert (first.stop_reason, second.stop_reason) == ("end_turn", "end_turn")
    told, again = editor.told[:seen], editor.told[seen:]
    assert "It is written." in editor.text()
    assert editor.text("user_message_chunk") == "Make it so.\n\n[a.py](file:///a.py)And?"
    plans = [[(entry.content, entry.status) for entry in one.entries] for one in told if one.session_update == "plan"]
    assert plans == [[("Do a", status)] for status in ("pending", "in_progress", "completed")]
    calls = {one.tool_call_id: one for one in told if one.session_update == "tool_call"}
    assert ("r1: Do a", "other") in {(one.title, one.kind) for one in calls.values()}
    assert ("r1: write", "edit") in {(one.title, one.kind) for one in calls.values()}
    changes = [one for one in told if one.session_update == "tool_call_update"]
    assert {one.tool_call_id for one in changes} == set(calls)
    ends = {one.tool_call_id: one.status for one in changes if one.status}
    assert set(ends.values()) == {"completed"}
    (merged,) = [one for one in changes if one.tool_call_id == "run-r1" and one.kind == "edit"]
    assert [(Path(one.path).name, one.old_text, one.new_text) for one in merged.content] == [
        ("a.py", "x = 1\n", "x = 2\n"),
        ("new.py", None, "z = 1\n"),
    ]
    usage = [one for one in told if one.session_update == "usage_update"]
    assert usage
    assert usage[-1].size == 128_000
    assert [one.session_update for one in again].count("plan") == len(plans)


async def test_an_editor_speaks_beside_a_prompt_and_cancels_and_goes_on(tmp_path: Path):
    hold = f"touch {tmp_path}/begun; for n in $(seq 600); do [ -e {tmp_path}/go ] && break; sleep 0.05; done"
    script = scripted(
        start(task("a")),
        on("m1", text="I wait on.", times=0),
        finish("settled"),
        workers={"a": [bash(hold), submit("CANCELLED")]},
    )
    with ScriptedServer(script) as server:
        async with editing(tmp_path, server) as (editor, agent, _):
            begun = await agent.new_session(cwd=str(tmp_path / "repo"), mcp_servers=[])
            prompt = asyncio.create_task(agent.prompt(session_id=begun.session_id, prompt=[acp.text_block("Go.")]))
            await until((tmp_path / "begun").exists)
            beside = await agent.prompt(session_id=begun.session_id, prompt=[acp.text_block("Use tabs.")])
            await agent.cancel(session_id=begun.session_id)
            stopped = await prompt
            (tmp_path / "go").touch()
            resumed = await agent.prompt(session_id=begun.session_id, prompt=[acp.text_block("Go on.")])
    assert (beside.stop_reason, stopped.stop_reason, resumed.stop_reason) == ("end_turn", "cancelled", "end_turn")
    assert "All done." in editor.text()


async def faults_of(agent: Any, session: str, folder: Path) -> list[tuple[int, str]]:
    """Requests that cannot be, and what is said about them."""
    faults = []
    for call in (
        agent.new_session(cwd="relative", mcp_servers=[]),
        agent.new_session(cwd=str(folder / "nowhere"), mcp_servers=[]),
        agent.load_session(session_id="s-nobody", cwd=str(folder), mcp_servers=[]),
        agent.prompt(session_id="s-nobody", prompt=[acp.text_block("Go.")]),
        agent.prompt(session_id=session, prompt=[acp.text_block("  ")]),
        agent.prompt(session_id=session, prompt=[acp.image_block("AAAA", "image/png")]),
    ):
        with pytest.raises(acp.RequestError) as caught:
            await call
        faults.append((caught.value.code, caught.value.data["details"]))
    return faults


async def test_a_turn_ends_with_the_reason_of_its_outcome(kit: Kit):
    with ScriptedServer(scripted(on("<state>", calls=[plan(task("a"))]))) as server:
        async with xnagent.open(**kit.options(server, max_steps=1)) as session:
            async for _ in session.run("Make it so."):
                pass
    final = session.final
    assert stop_reason(final) == "max_turn_requests"
    for outcome, kind, reason in (
        ("limit", "limit_tokens", "max_tokens"),
        ("deadline", "deadline", "max_turn_requests"),
        ("interrupted", "interrupted", "cancelled"),
        ("provider_error", "content_refused", "refusal"),
        ("provider_error", "overloaded", None),
        ("error", "StoreError", None),
        ("blocked", "", "end_turn"),
        ("failed", "", "end_turn"),
    ):
        error = replace(final.error, kind=kind)
        assert stop_reason(replace(final, outcome=outcome, error=error)) == reason


def test_lines_that_are_no_messages_are_answered_and_the_end_of_input_ends_it_in_order(tmp_path: Path, kit: Kit):
    hold = "for n in $(seq 600); do sleep 0.05; done"
    with ScriptedServer(scripted(start(task("a")), workers={"a": [bash(hold)]})) as server:
        environ = environ_of(tmp_path)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(line_of(tmp_path, server), env=environ, **pipes)
        assert process.stdin
        assert process.stdout
        new = {"cwd": str(tmp_path / "repo"), "mcpServers": []}
        calls = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
            {"jsonrpc": "2.0", "id": 2, "method": "no/such"},
            {"jsonrpc": "2.0", "id": 3, "method": "session/new", "params": new},
        ]
        lines = [b"{nonsense", b"[1]", b'"x"', b"null", b"", *(json.dumps(call).encode() for call in calls)]
        process.stdin.write(b"\n".join(lines) + b"\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(7)]
        (session,) = [one["result"]["sessionId"] for one in answers if one["id"] == 3]
        said = {"sessionId": session, "prompt": [{"type": "text", "text": "Go."}]}
        call = {"jsonrpc": "2.0", "id": 4, "method": "session/prompt", "params": said}
        process.stdin.write(json.dumps(call).encode() + b"\n")
        process.stdin.flush()
        while b'"run-r1","status":"in_progress"' not in process.stdout.readline().replace(b" ", b""):
            pass
        out, err = process.communicate(timeout=40)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out.splitlines()[-1]) == {"jsonrpc": "2.0", "id": 4, "result": {"stopReason": "cancelled"}}
    codes = [one["error"]["code"] for one in answers if "error" in one]
    assert sorted(codes) == [-32700, -32601, -32600, -32600, -32600]
    ended = kit.ended(session)
    assert (ended.outcome, ended.run("r1").status) == ("interrupted", "interrupted")


def test_a_signal_ends_it_while_it_waits(tmp_path: Path):
    with ScriptedServer(scripted()) as server:
        line, environ = line_of(tmp_path, server), environ_of(tmp_path)
        begin = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
        process = subprocess.Popen(line, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin
        assert process.stdout
        process.stdin.write(begin + b"\n")
        process.stdin.flush()
        assert b"protocolVersion" in process.stdout.readline()
        process.terminate()
        assert process.wait(timeout=40) == 143
        process.stdin.close()
        process.stdout.close()


async def test_a_file_is_read_like_a_pipe_also_without_a_last_line_feed(tmp_path: Path):
    (tmp_path / "in").write_bytes(b'{"id":1,"method":"a"}\n{nonsense\n\n{"id":1,"result":{}}')
    written: list[bytes] = []
    with (tmp_path / "in").open("rb") as file:
        wire = LineWire(file.fileno(), written.append)
        read = [await wire.receive() for _ in range(3)]
    assert read == [{"id": 1, "method": "a"}, {"id": 1, "result": {}}, None]
    assert b"-32700" in written[0]
    with anyio.move_on_after(0.01) as scope:
        await wire.until_answered()
    assert scope.cancelled_caught
    await wire.send({"id": 1, "result": None})
    await wire.until_answered()


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path):
    (tmp_path / "acp.py").write_text("raise ImportError('No module named acp')\n")
    with ScriptedServer(scripted()) as server:
        line = line_of(tmp_path, server)
        environ = environ_of(tmp_path)
        environ["PYTHONPATH"] = f"{tmp_path}:{environ['PYTHONPATH']}"
        done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'xnagent[acp]'" in done.stderr


def test_a_patch_is_cut_into_its_hunks():
    patch = (
        "diff --git a/a.py b/a.py\nindex 1..2 100644\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@ def f\n x\n-y\n+z\n"
        "@@ -9 +9 @@\n-p\n+q\n\\ No newline at end of file\n"
        "diff --git a/b.bin b/b.bin\nnew file mode 100644\nGIT binary patch\nliteral 3\n"
        "diff --git a/old b/old\ndeleted file mode 100644\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
    )
    assert [(one.path, one.before, one.after) for one in pieces(patch)] == [
        ("a.py", "x\ny\n", "x\nz\n"),
        ("a.py", "p\n", "q\n"),
        ("old", "gone\n", ""),
    ]
    assert pieces("nothing") == []
