"""Programs that are talked to over their input and output, each in a box of its own: `ports.Services` on processes.

A service is held like a command: a wrapper watches a pipe whose other end only this process has, so the service ends
with it, however it ends. What a run's commands may use is counted together with what its services use.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from xnagent.core.text import clean
from xnagent.errors import WorkspaceError
from xnagent.ports import Service, Workspace
from xnagent.workspaces.box.sealing import Box, Sealed
from xnagent.workspaces.box.watching import Watch, warden_of
from xnagent.workspaces.enclosure import held, process_limits, sealed_line
from xnagent.workspaces.environment import boxed, command_environment
from xnagent.workspaces.git import search_path
from xnagent.workspaces.processes import Family, end, identify, reaped
from xnagent.workspaces.spool import ENDER

TOLD_BYTES: Final = 4_000
LEAVING_SECONDS: Final = 1.0
"""For a service to end by itself when its input has ended."""
GRACE_SECONDS: Final = 0.5
LAST_WORDS_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 0.1
LOOKS: Final = 10
"""So many times it is looked whether it has ended for each time that is looked what it uses."""
RECEIVED_BYTES: Final = 65_536

BOXED: Final = """\
hold=$1; shift
exec 5< "/proc/self/fd/$hold"
exec 6<&0 < /dev/null
{ read -r line <&5; kill -KILL 0; } > /dev/null 2>&1 6<&- &
watch=$!
ulimit -c 0
ulimit -f "$1"; ulimit -n "$2"; ulimit -S -t "$3"; ulimit -H -t "$4"; shift 4
while [ "$1" != -- ]; do printf 0 > "$1"; shift; done
shift
( exec "$@" <&6 3> /dev/null 4> /dev/null 5<&- 6<&- )
code=$?
exec 2> /dev/null
kill "$watch"
wait "$watch"
exit "$code"
"""
"""Limits and groups as in `spool.BOXED_WRAPPER`; input and output are the service's own.

The pipe that is held is opened anew first: its number may be one of those that are used here.
"""

TIED: Final = """\
hold=$1; shell=$2; ender=$3; mark=$4; shift 4
exec 5< "/proc/self/fd/$hold"
exec 6<&0 < /dev/null
set -m
(unset XNAGENT_RUN; exec "$shell" -c "$ender" ender "$$" "$mark" <&5 5<&- 6<&-) > /dev/null 2>&1 &
ender=$!
set +m
ulimit -c 0
"$@" <&6 5<&- 6<&-
code=$?
exec 2> /dev/null
kill -KILL "$ender"
wait "$ender"
exit "$code"
"""
"""The same without a box."""


@dataclass(slots=True, kw_only=True)
class RunningService:
    """A process that is talked to."""

    input: ByteSendStream
    output: ByteReceiveStream
    errors: bytearray = field(default_factory=bytearray)
    """The end of what it said."""
    excess: str = ""
    """Why it was stopped."""
    is_over: bool = False
    """Its output has ended."""
    silent: anyio.Event = field(default_factory=anyio.Event)
    """Its error output has ended."""

    async def send(self, data: bytes) -> None:
        """To its input."""
        await self.input.send(data)

    async def receive(self) -> bytes:
        """From its output."""
        try:
            return await self.output.receive(RECEIVED_BYTES)
        except anyio.EndOfStream:
            self.is_over = True
            raise

    async def told(self) -> str:
        """The end of its error output, and why it was stopped, if it was. Of one that just ended, all of it."""
        if self.is_over:
            with anyio.move_on_after(LAST_WORDS_SECONDS):
                await self.silent.wait()
        said = clean(bytes(self.errors).decode("utf-8", "replace")).strip()
        return "\n".join(part for part in (said, self.excess) if part)


class ProcessServices:
    """`environ` is the environment of the orchestrator; without a box services have the rights of who runs xnagent."""

    def __init__(self, environ: Mapping[str, str], *, box: Box | None = None) -> None:
        self._environ = environ
        self._box = box
        self._warden = warden_of(box) if box else None
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def start(self, workspace: Workspace, service: Service) -> AsyncIterator[RunningService]:
        """Run it until the context ends."""
        mark = self._mark(workspace, service)
        watch = await anyio.to_thread.run_sync(self._warden.watch, workspace) if self._warden else None
        with held() as hold:
            process = await self._open(workspace, service, hold=hold, mark=mark, watch=watch)
            leader = identify(await anyio.to_thread.run_sync(_stat, process.pid))
            family = Family(mark=mark, leader=leader, has_keeper=self._box is not None)
            try:
                async with anyio.create_task_group() as group:
                    running = _running(process)
                    group.start_soon(_listen, process, running)
                    group.start_soon(partial(_look, process, family, running=running, watch=watch))
                    yield running
                    group.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    await _stop(process, family)

    def close(self) -> None:
        """Remove what limited them."""
        if self._warden:
            self._warden.close()

    def _mark(self, workspace: Workspace, service: Service) -> str:
        """Of this start alone: what ends an earlier one must not find the next."""
        parts = (str(workspace.scratch), service.name, str(os.getpid()), str(next(self._numbers)))
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:24]

    async def _open(
        self, workspace: Workspace, service: Service, *, hold: int, mark: str, watch: Watch | None
    ) -> Process:
        if not workspace.root.is_dir():
            raise WorkspaceError(f"the workspace {workspace.root} is gone")
        path = search_path(self._environ)
        shell = shutil.which("bash", path=path) or shutil.which("sh", path=path) or "/bin/sh"
        env = await anyio.to_thread.run_sync(
            lambda: command_environment(self._environ, workspace, mark=mark, passed=service.passed)
        )
        if self._box is None:
            line = (shell, "-c", TIED, "service", str(hold), shell, ENDER, mark, *service.line)
            return await _spawn(line, workspace.root, env=env, descriptors=(hold,))
        plain = shutil.which("sh", path=path) or shell
        sealed = await sealed_line(self._box, workspace, line=service.line, shell=plain)
        joins = watch.group.joins if watch else ()
        limits = process_limits(self._box.grounds.rules)
        line = (plain, "-c", BOXED, "service", str(hold), *limits, *map(str, joins), "--", *sealed.line)
        return await _spawn_sealed(line, workspace.root, env=boxed(env), sealed=sealed, hold=hold)


async def _spawn_sealed(
    line: tuple[str, ...], root: Path, *, env: Mapping[str, str], sealed: Sealed, hold: int
) -> Process:
    """What was pinned stays: a command of the same run may rely on it when the service ends."""
    try:
        return await _spawn(line, root, env=env, descriptors=(hold, *sealed.descriptors))
    finally:
        sealed.close()


async def _spawn(line: tuple[str, ...], root: Path, *, env: Mapping[str, str], descriptors: tuple[int, ...]) -> Process:
    try:
        return await anyio.open_process(
            line,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=root,
            env=env,
            start_new_session=True,
            pass_fds=descriptors,
        )
    except OSError as error:
        raise WorkspaceError(f"no program can be started in {root}: {error.strerror}") from error


def _running(process: Process) -> RunningService:
    if process.stdin is None or process.stdout is None:
        raise WorkspaceError("a program was started without pipes")
    return RunningService(input=process.stdin, output=process.stdout)


async def _listen(process: Process, running: RunningService) -> None:
    """Keep the end of what it says: a full pipe would stop it."""
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        while process.stderr is not None:
            running.errors += await process.stderr.receive()
            del running.errors[:-TOLD_BYTES]
    running.silent.set()


async def _look(process: Process, family: Family, *, running: RunningService, watch: Watch | None) -> None:
    """Stop all of it when the run has too much of something, and what is left of it when it has ended itself.

    What a service left behind may hold its output open, so that nobody would see that it has ended.
    """
    for number in itertools.count(1):
        await anyio.sleep(LOOK_SECONDS)
        if process.returncode is not None:
            break
        if watch is not None and number % LOOKS == 0:
            reason = await anyio.to_thread.run_sync(watch.excess, family)
            running.excess = reason or ""
            if reason:
                break
    await anyio.to_thread.run_sync(lambda: end(family, grace_seconds=0))


async def _stop(process: Process, family: Family) -> None:
    """Its input ends; what does not end by itself then is ended, with all that it began."""
    if process.stdin is not None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await process.stdin.aclose()
    await _drained(process)
    grace_seconds = GRACE_SECONDS if process.returncode is None else 0.0
    await anyio.to_thread.run_sync(lambda: end(family, grace_seconds=grace_seconds))
    await reaped(process)
    await process.aclose()


async def _drained(process: Process) -> None:
    """Wait for its end, taking what it still says: a full pipe would keep it from ending."""
    with anyio.move_on_after(LEAVING_SECONDS), suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        with suppress(anyio.EndOfStream):
            while process.stdout is not None:
                await process.stdout.receive()
        await process.wait()


def _stat(number: int) -> str:
    try:
        return Path(f"/proc/{number}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return ""
