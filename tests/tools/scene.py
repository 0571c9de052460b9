"""A workspace of real files, a real shell, and calls as an agent makes them."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from anyio import to_thread

from xnagent.core.ids import AgentId, CallId, Ticket
from xnagent.core.spine_events import ToolStarted
from xnagent.core.state import SessionState
from xnagent.ports import Finished, Intent, Outcome
from xnagent.tools.registry import planner_tools, worker_tools
from xnagent.tools.schema import ArgumentProblem, parse_arguments


@dataclass
class Folder:
    root: Path
    scratch: Path


@dataclass
class Memory:
    kept: dict[str, bytes] = field(default_factory=dict)

    def put(self, data: bytes, *, is_verbatim: bool = False) -> Ticket:
        ticket = Ticket(f"artifact:{hashlib.sha256(data).hexdigest()[:16]}")
        self.kept[ticket] = data
        return ticket

    async def get(self, ticket: Ticket) -> bytes | None:
        return self.kept.get(ticket)


@dataclass
class PlainShell:
    """bash with a spool and nothing else: no sandbox, no orphan hunt."""

    ran: list[str] = field(default_factory=list)

    async def run(self, workspace, command):
        self.ran.append(command.command)
        spool = workspace.scratch / f"{command.spool}.out"
        started = time.monotonic()
        code, ending = await to_thread.run_sync(self._finish, workspace, command, spool)
        (workspace.scratch / f"{command.spool}.rc").write_text(str(code))
        return Finished(exit_code=code, output=spool, duration_seconds=time.monotonic() - started, ending=ending)

    def _finish(self, workspace, command, spool):
        with spool.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", command.command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=workspace.root,
                start_new_session=True,
                env={"PATH": os.defpath, "GIT_TERMINAL_PROMPT": "0"},
            )
        try:
            code = process.wait(command.timeout_seconds)
        except subprocess.TimeoutExpired:
            self._kill(process.pid)
            process.wait(10)
            return None, "timeout"
        return code, "left-background" if self._kill(process.pid) else "exit"

    def _kill(self, group):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
            return True
        return False

    async def recover(self, workspace, spool):
        out, code = workspace.scratch / f"{spool}.out", workspace.scratch / f"{spool}.rc"
        if not out.exists():
            return None
        status = int(code.read_text()) if code.exists() else None
        return Finished(
            exit_code=status, output=out, duration_seconds=0.1, ending="exit" if status is not None else "signal"
        )


@dataclass
class TheCall:
    agent: AgentId
    call_id: CallId
    arguments: dict
    state: SessionState
    artifacts: Memory
    workspace: Folder | None


class Scene:
    """One model at work: `await scene.do("read", path="a")` parses, intends and runs as an agent would."""

    def __init__(self, base: Path, *, ripgrep: str | None = None, role: str = "worker") -> None:
        root, scratch = base / "ws", base / "scratch"
        root.mkdir(exist_ok=True)
        scratch.mkdir(exist_ok=True)
        self.folder = Folder(root.resolve(), scratch.resolve())
        self.artifacts = Memory()
        self.shell = PlainShell()
        made = worker_tools(self.shell, ripgrep=ripgrep) if role == "worker" else planner_tools(ripgrep=ripgrep)
        self.tools = {tool.spec.name: tool for tool in made}
        self.count = 0

    @property
    def root(self) -> Path:
        return self.folder.root

    def call(self, **arguments) -> TheCall:
        self.count += 1
        return TheCall(
            AgentId("r1"), CallId(f"call_{self.count}"), arguments, SessionState(), self.artifacts, self.folder
        )

    async def do(self, tool: str, **arguments) -> Outcome:
        return await self.raw(tool, json.dumps(arguments))

    async def raw(self, tool: str, text: str) -> Outcome:
        parsed = parse_arguments(text, self.tools[tool].spec)
        if isinstance(parsed, ArgumentProblem):
            return Outcome(text=parsed.text, code=parsed.code)
        call = self.call(**parsed)
        intent = await self.tools[tool].intend(call)
        outcome = intent if isinstance(intent, Outcome) else await self.tools[tool].run(call, intent)
        json.dumps({"text": outcome.text, "label": outcome.label}, ensure_ascii=False).encode("utf-8")
        assert "\0" not in outcome.text
        return outcome

    async def begin(self, tool: str, **arguments) -> tuple[TheCall, ToolStarted]:
        """A call whose intent is in the log, and then the process dies."""
        call = self.call(**arguments)
        intent = await self.tools[tool].intend(call)
        assert isinstance(intent, Intent)
        return call, ToolStarted(
            agent=call.agent,
            call_id=call.call_id,
            tool=tool,
            effect=intent.effect,
            spool=intent.spool,
            before=intent.before,
            after=intent.after,
        )

    def put(self, name: str, data: bytes | str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def bytes_of(self, name: str) -> bytes:
        return (self.root / name).read_bytes()
