"""What `doctor` and the start of a session say of MCP servers."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from xnagent.app.host import Host
from xnagent.app.servers import check_servers
from xnagent.cli.doctor import Finding, servers
from xnagent.config import Settings
from xnagent.core.ids import AgentId, CallId
from xnagent.core.mcp_events import McpTool
from xnagent.core.spine_events import ToolStarted
from xnagent.errors import UsageError
from xnagent.tools.mcp.peers import NoPeers
from xnagent.tools.mcp.tool import McpCallTool

SERVER = Path(__file__).resolve().parent.parent / "mcp_server.py"
TOOL = McpTool(name="mcp__s__t", server="s", tool="t", description="", parameters='{"type":"object","properties":{}}')


def configured(**tables: dict) -> Settings:
    return Settings.model_validate({"mcp": {"servers": tables}, "sandbox": {"mode": "off"}})


def test_doctor_says_which_servers_answer_and_why_others_do_not(tmp_path: Path):
    line = ["-I", "-S", str(SERVER)]
    settings = configured(
        good={"command": sys.executable, "args": line},
        dead={"command": sys.executable, "args": [*line, "dead"], "required": True},
        keyless={"url": "http://127.0.0.1:9/mcp", "bearer_env": "NO_SUCH_TOKEN"},
    )
    found = servers(settings, Host(home=tmp_path / "home", environ={"PATH": os.environ["PATH"]}))
    assert found == [
        Finding(what="mcp dead", is_fine=False, detail="its connection ended (it said: no configuration found)"),
        Finding(what="mcp good", is_fine=True, detail="14 tools, protocol 2025-11-25", is_needed=False),
        Finding(what="mcp keyless", is_fine=False, detail="the variable NO_SUCH_TOKEN is not set", is_needed=False),
    ]
    assert servers(Settings(), Host(home=tmp_path, environ={})) == []


def test_without_the_extra_a_session_with_servers_does_not_begin(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    check_servers(Settings())
    with pytest.raises(UsageError, match=r"pip install 'xnagent\[mcp\]'") as caught:
        check_servers(configured(a={"command": "x"}))
    assert caught.value.exit_code == 2


async def test_a_call_that_a_killed_process_had_begun_is_not_made_again():
    tool = McpCallTool(tool=TOOL, exchange=NoPeers())
    started = ToolStarted(agent=AgentId("r1"), call_id=CallId("c1"), tool=TOOL.name, effect="opaque")
    outcome = await tool.reconcile(None, started)
    assert outcome is not None
    assert outcome.code == "INTERRUPTED"
    assert "It was not repeated" in outcome.text
