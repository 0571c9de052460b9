"""An editor: the client of the protocol's official SDK, around a real `xnagent acp`."""

import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp

from tests.e2e.bench import make_repository
from xnagent.testing.server import ScriptedServer

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Editor:
    """What the agent told."""

    told: list[Any] = field(default_factory=list)

    async def session_update(self, session_id: str, update: Any, **_more: Any) -> None:
        self.told.append(update)

    def on_connect(self, conn: Any) -> None:
        """Nothing."""

    def of(self, kind: str) -> list[Any]:
        return [one for one in self.told if one.session_update == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one.content.text for one in self.of(kind))


def line_of(folder: Path, server: ScriptedServer, *more: str) -> list[str]:
    options = ["--home", str(folder / "home"), "--model", "m", "--base-url", server.base_url, "--sandbox", "off"]
    return [sys.executable, "-m", "xnagent", "acp", *options, *more]


def environ_of(folder: Path) -> dict[str, str]:
    if not (folder / "repo").exists():
        make_repository(folder / "repo")
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT)}


@asynccontextmanager
async def editing(folder: Path, server: ScriptedServer, *more: str) -> AsyncIterator[tuple[Editor, Any, Process]]:
    """The editor, its connection, and the agent's process."""
    editor = Editor()
    program, *arguments = line_of(folder, server, *more)
    environ = environ_of(folder)
    async with acp.spawn_agent_process(editor, program, *arguments, env=environ, cwd=folder) as (agent, process):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield editor, agent, process
