"""Whole sessions with MCP servers that others wrote, in the box. `scripts/check-peers-mcp` installs and names them."""

import os
import sys
from pathlib import Path

import pytest

from tests.e2e.bench import Bench, bash, call, finish, on, scripted, start, submit, task
from xnagent.core.ids import AgentId
from xnagent.core.mcp_events import McpToolsFrozen
from xnagent.core.spine_events import RequestStarted
from xnagent.testing.server import ScriptedServer
from xnagent.workspaces.box.ladder import first_that_works

R1 = AgentId("r1")
SECONDS = 280
"""They are programs of half a second, on machines that have other things to do."""
FOLDER = Path(os.environ.get("MCP_PEERS", "/nonexistent"))

pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="MCP_PEERS names no folder: scripts/check-peers-mcp installs them"),
    pytest.mark.skipif(first_that_works(os.environ) is None, reason="no box works here"),
]


def npm(name: str, *arguments: str) -> dict:
    program = FOLDER / "node_modules" / ".bin" / name
    return {"command": str(program), "args": arguments, "reads": [str(FOLDER / "node_modules")]}


def pypi(name: str, *arguments: str) -> dict:
    return {"command": str(FOLDER / "venv" / "bin" / name), "args": arguments}


def use(tool: str, *when: str, **arguments):
    return on(*when, calls=[call(f"mcp__peer__{tool}", **arguments)])


PEERS = {
    "everything": (
        npm("mcp-server-everything"),
        [
            use("echo", message="hello peer"),
            use("get-sum", "hello peer", a=2, b=40),
            use("get-tiny-image", "42"),
            use("get-sum", "image/png", a="no number", b=1),
        ],
        ["ok", "ok", "ok", "BAD_ARGS"],
    ),
    "filesystem": (
        npm("mcp-server-filesystem", "."),
        [
            use("write_file", path="peer.txt", content="by a peer\n"),
            bash("cat peer.txt", "peer.txt"),
            use("read_text_file", "by a peer", path="peer.txt"),
            use("read_text_file", "by a peer", path="/etc/passwd"),
        ],
        ["ok", "ok", "ok", "MCP_FAILED"],
    ),
    "memory, which writes where it is installed": (
        npm("mcp-server-memory"),
        [use("create_entities", entities=[{"name": "x", "entityType": "thing", "observations": ["is new"]}])],
        ["MCP_FAILED"],
    ),
    "git": (
        pypi("mcp-server-git", "--repository", "."),
        [
            use("git_status", repo_path="."),
            bash("echo x >> a.py", "branch"),
            use("git_diff_unstaged", "exit 0", repo_path="."),
        ],
        ["ok", "ok", "ok"],
    ),
    "time": (
        pypi("mcp-server-time", "--local-timezone", "UTC"),
        [
            use("convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"),
            use("get_current_time", "21:00", timezone="Nowhere/Land"),
        ],
        ["ok", "MCP_FAILED"],
    ),
}


@pytest.mark.parametrize("name", PEERS)
async def test_m124_a_session_with_a_server_that_others_wrote(tmp_path: Path, name: str):
    table, rules, codes = PEERS[name]
    bench = Bench(tmp_path)
    script = scripted(start(task("one")), finish("r1 settled"), workers={"one": [*rules, submit()]})
    server_table = {**table, "required": True, "start_seconds": 120}
    with ScriptedServer(script) as server:
        ended = await bench.run(
            server,
            seconds=SECONDS,
            limits__deadline_seconds=SECONDS,
            mcp__servers={"peer": server_table},
            sandbox={"mode": "required"},
        )
    assert ended.outcome == "completed", ended.record
    (frozen,) = ended.of(McpToolsFrozen)
    found = [event.code for event in ended.results(R1) if event.tool != "submit"]
    sys.stdout.write(
        f"{name}: {len(frozen.listed)} tools, protocol {frozen.servers[0].protocol}, {', '.join(found)}; "
        f"{len(ended.of(RequestStarted))} requests replayed byte for byte\n"
    )
    assert found == codes, [event.text for event in ended.results(R1)]
