"""The `bash` tool: a command in the workspace, its output bounded, its outcome never guessed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from anyio import to_thread

from xnagent.core.ids import CallId, Ticket
from xnagent.core.spine_events import ToolStarted
from xnagent.core.state import work_of
from xnagent.core.text import clean, first_line
from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.ports import Artifacts, Call, Command, Finished, Intent, Outcome, Shell, ToolSpec
from xnagent.tools.known import FileView
from xnagent.tools.outcome import RefusedError, failure, workspace_of
from xnagent.tools.output import Printed, printed

DEFAULT_TIMEOUT_SECONDS: Final = 120
MAX_TIMEOUT_SECONDS: Final = 600
MAX_CHARS: Final = 12_000
MAX_TAIL_CHARS: Final = 4_000
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
MAX_NAMED: Final = 10
KILLED: Final = 137
UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")

_SPEC = ToolSpec(
    name="bash",
    description=(
        "Run a command with bash. Each call is a new shell in the workspace root: cd, variables and functions do not "
        "last to the next call, so join what belongs together with &&. Standard input is empty; nothing can be "
        "answered, so pass flags such as -y. Output and errors come together, with head and tail if they are long, and "
        "the whole output is kept under a ticket for read and grep. The last line tells the exit code, which is data, "
        "not an error of the tool. Background processes are ended when the shell ends. Use read, edit, write, grep and "
        "glob for files rather than cat, sed, echo and find."
    ),
    parameters={
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "What to run; may have several lines."},
            "timeout_seconds": {
                "type": "integer",
                "description": "Stop it after so many seconds. Default 120; more than 600 is taken as 600.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BashTool:
    """Runs commands; the effect is opaque, so a call is never repeated unknowingly."""

    shell: Shell
    view: FileView = field(default_factory=FileView, repr=False)

    @property
    def spec(self) -> ToolSpec:
        """Its definition."""
        return _SPEC

    async def intend(self, call: Call) -> Intent | Outcome:
        """Names the spool."""
        try:
            workspace_of(call)
            _check(str(call.arguments["command"]))
        except RefusedError as refusal:
            return refusal.outcome("bash")
        return Intent(effect="opaque", spool=spool_name(call.call_id, work_of(call.state, call.agent).steps))

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Run it to its end, or to the time limit."""
        command = Command(
            command=str(call.arguments["command"]),
            timeout_seconds=_timeout(call),
            spool=intent.spool or spool_name(call.call_id, work_of(call.state, call.agent).steps),
        )
        try:
            finished = await self.shell.run(workspace_of(call), command)
        except WorkspaceError as error:
            return failure("FAILED", f"the shell could not run: {error}", tool="bash")
        return await _outcome(call, finished, view=self.view)

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """The real outcome if the spool knows it; to be run if it never began; else: interrupted, not repeated."""
        if started.spool is None:
            return await _interrupted(call, None)
        finished = await self.shell.recover(workspace_of(call), started.spool)
        if finished is None:
            return None
        if finished.exit_code is None:
            return await _interrupted(call, finished)
        return await _outcome(call, finished, view=self.view)


def spool_name(call_id: CallId, step: int) -> str:
    """A file name for a call, unique in the run: call ids may come again after a rebase."""
    digest = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:8]
    readable = UNSAFE.sub("_", call_id)[:40].strip("_-") or "call"
    return f"{readable}-{digest}-{step}"


def _check(command: str) -> None:
    if not command.strip():
        raise RefusedError("BAD_ARGS", "the command is empty.")
    if "\0" in command:
        raise RefusedError("BAD_ARGS", "the command holds a NUL character.")


def _timeout(call: Call) -> int:
    wanted = call.arguments.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS)
    return int(max(1, min(MAX_TIMEOUT_SECONDS, wanted)))


async def _outcome(call: Call, finished: Finished, *, view: FileView) -> Outcome:
    shown, ticket = await _shown(call.artifacts, finished, limit=MAX_CHARS)
    step = work_of(call.state, call.agent).steps
    changed = await to_thread.run_sync(view.note_changes, f"bash at step {step}")
    ending = "\n".join([*_told(changed), _ending(finished, _timeout(call))])
    body = shown.text.rstrip("\n")
    how = f"exit {finished.exit_code}" if finished.exit_code is not None else finished.ending
    return Outcome(
        text=clean(f"{body}\n{ending}" if body else ending),
        label=f"{first_line(str(call.arguments['command']), 100)} → {how}",
        artifact=ticket,
        paths_changed=changed,
        exit_code=finished.exit_code,
    )


def _told(changed: Sequence[str]) -> Iterator[str]:
    if changed:
        more = f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
        yield f"[files that you had seen are changed now: {', '.join(changed[:MAX_NAMED])}{more}]"


async def _shown(artifacts: Artifacts, finished: Finished, *, limit: int) -> tuple[Printed, Ticket | None]:
    """The output within the limit; where that is not all of it, the whole goes to the artifacts."""
    omitted = finished.omitted_bytes
    first = await to_thread.run_sync(lambda: printed(finished.output, limit=limit, omitted_bytes=omitted))
    if first.is_whole:
        return first, None
    ticket = artifacts.put(await to_thread.run_sync(_kept, finished.output, omitted))
    how = f"full output: {ticket}, use read with it and an offset, or grep with it as path"
    again = await to_thread.run_sync(
        lambda: printed(finished.output, limit=limit, omitted_bytes=omitted, how_to_get=how)
    )
    return again, ticket


def _kept(path: Path, omitted: int) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        if size <= MAX_KEPT_BYTES and not omitted:
            return file.read()
        half = min(size, MAX_KEPT_BYTES) // 2
        head = file.read(half)
        file.seek(size - half)
        lost = size - 2 * half + omitted
        return b"".join([head, f"\n[… {lost:,} bytes were not kept …]\n".encode(), file.read(half)])


def _ending(finished: Finished, timeout_seconds: int) -> str:
    took = f"{finished.duration_seconds:.1f} s"
    match finished.ending:
        case "timeout":
            advice = "split the work" if timeout_seconds >= MAX_TIMEOUT_SECONDS else _RAISE
            return f"[timed out after {timeout_seconds} s; {advice}]"
        case "left-background":
            return f"[exit {finished.exit_code} | {took} | background processes were ended with the shell]"
        case "signal":
            return f"[killed by a signal | {took}]"
        case _:
            note = " | killed, often by the memory limit" if finished.exit_code == KILLED else ""
            return f"[exit {finished.exit_code} | {took}{note}]"


_RAISE: Final = f"raise timeout_seconds (max {MAX_TIMEOUT_SECONDS}) or split the work"


async def _interrupted(call: Call, finished: Finished | None) -> Outcome:
    tail, ticket = "(none)", None
    if finished is not None:
        shown, ticket = await _shown(call.artifacts, finished, limit=MAX_TAIL_CHARS)
        tail = shown.text.rstrip("\n") or "(none)"
    refusal = failure(
        "INTERRUPTED",
        "xnagent stopped while this call was running. It was not repeated. It may have run fully, partly or not at "
        f"all. Exit status: none seen. Check the real state before you do it again. Output so far:\n{tail}",
        tool="bash",
    )
    return Outcome(text=refusal.text, code=refusal.code, label=refusal.label, artifact=ticket)
