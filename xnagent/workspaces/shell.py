"""Commands as process groups: `ports.Shell` on real processes.

A wrapper records beginning and end in the spool; a collector of its own keeps the output. Both go on if the process
that started them is killed, so a later one can `recover`; a command that is boxed or tied is killed then. Working
folder and environment do not last from one command to the next: each begins in the root of the workspace.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

import anyio
from anyio.abc import Process

from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.ports import Command, Finished, Workspace
from xnagent.workspaces.box.sealing import Box
from xnagent.workspaces.box.watching import LOOKED_AT_BYTES, Watch, warden_of
from xnagent.workspaces.enclosure import Enclosed, bare, enclosed
from xnagent.workspaces.environment import boxed, command_environment
from xnagent.workspaces.git import search_path
from xnagent.workspaces.processes import MARKER, Family, end, identify, members, reaped, wait_until
from xnagent.workspaces.spool import (
    COLLECTOR,
    HEAD_BYTES,
    TAIL_BYTES,
    Spool,
    collector_mark,
    command_line,
    finish_output,
    has_left,
    recorded_seconds,
    spool_at,
    was_boxed,
)

GRACE_SECONDS: Final = 1.0
"""Between being asked to stop and being stopped."""
LINGER_SECONDS: Final = 0.2
"""For what is just ending when the shell has ended."""
WATCH_SECONDS: Final = 0.25
"""Between two looks at what a command uses."""
DRAIN_SECONDS: Final = 1.0
"""For the rest of the output when all writers are gone."""


class ProcessShell:
    """`environ` is the environment of the orchestrator; `passed` names variables that commands get on purpose.

    With a box, every command runs in one of its own, which ends with this process; `is_tied` says that commands must do
    so without one as well, because a process that goes on elsewhere could not end them.
    """

    def __init__(
        self, environ: Mapping[str, str], *, passed: tuple[str, ...] = (), box: Box | None = None, is_tied: bool = False
    ) -> None:
        self._environ = environ
        self._passed = passed
        self._box = box
        self._is_tied = is_tied
        self._warden = warden_of(box) if box else None

    async def run(self, workspace: Workspace, command: Command) -> Finished:
        """Run it to its end. What it left in the background is stopped. Cancelled: the whole tree is stopped first.

        Returns within the time limit and 4 seconds. Raises WorkspaceError if the workspace is gone.
        """
        spool = spool_at(workspace.scratch, command.spool)
        await anyio.to_thread.run_sync(_prepare, workspace, spool)
        begun = time.monotonic()
        line = command_line(self._interpreter(), command.command, spool=spool)
        watch = await anyio.to_thread.run_sync(self._warden.watch, workspace) if self._warden else None
        async with self._collected(spool) as writer, self._enclosed(workspace, line, spool=spool, watch=watch) as start:
            process = await self._start(start, workspace, spool=spool, stdout=writer)
            async with process:
                reason = await self._attend(process, spool, watch=watch, timeout_seconds=command.timeout_seconds)
        if watch and spool.exit_code() and not (was_boxed(spool) or spool.ending()):
            raise WorkspaceError(f"the box could not be made: {_last_line(spool)}")
        finished = await anyio.to_thread.run_sync(_finished, spool, time.monotonic() - begun)
        if watch:
            await anyio.to_thread.run_sync(lambda: _note(finished, watch, reason=reason))
        return finished

    async def recover(self, workspace: Workspace, spool: str) -> Finished | None:
        """After a crash: stop what still runs and say how it ended; None if it never began.

        Where others may have gone on with the session at another place, no spool here proves nothing.
        """
        found = spool_at(workspace.scratch, spool)
        if self._is_tied and not found.has_begun():
            await anyio.to_thread.run_sync(found.part("run").touch)
        return await anyio.to_thread.run_sync(_recover, found)

    def close(self) -> None:
        """Remove what limited the commands."""
        if self._warden:
            self._warden.close()

    def _interpreter(self) -> str:
        path = search_path(self._environ)
        found = shutil.which("bash", path=path) or shutil.which("sh", path=path)
        if found is None:
            raise WorkspaceError("neither bash nor sh is on the PATH; install bash")
        return found

    def _plain_shell(self) -> str:
        """For our own scripts: it is sooner there than bash, and we want nothing that it has not."""
        return shutil.which("sh", path=search_path(self._environ)) or self._interpreter()

    def _enclosed(
        self, workspace: Workspace, line: Sequence[str], *, spool: Spool, watch: Watch | None
    ) -> AbstractAsyncContextManager[Enclosed]:
        if self._box is None:
            # A plain sh gives no job a group of its own where there is no terminal.
            shell = self._interpreter() if self._is_tied else self._plain_shell()
            return bare(line, spool=spool, shell=shell, is_tied=self._is_tied)
        joins = watch.group.joins if watch else ()
        return enclosed(self._box, workspace, line=line, spool=spool, shell=self._plain_shell(), joins=joins)

    async def _start(self, start: Enclosed, workspace: Workspace, *, spool: Spool, stdout: int) -> Process:
        try:
            env = command_environment(self._environ, workspace, mark=spool.mark, passed=self._passed)
            if self._box is None:
                return await _open(start, stdout=stdout, cwd=workspace.root, env=env)
            if self._box.grounds.owner is not None:
                os.fchown(stdout, self._box.grounds.owner, -1)
            return await _open(start, stdout=stdout, cwd=workspace.root, env=boxed(env))
        finally:
            os.close(stdout)

    async def _attend(
        self, process: Process, spool: Spool, *, watch: Watch | None, timeout_seconds: float
    ) -> str | None:
        """Wait for the shell; then, or when it must not go on, see that nothing of it does. What was too much."""
        leader = identify(_stat(process.pid)) or spool.leader()
        family = Family(mark=spool.mark, leader=leader, has_keeper=watch is not None)
        reason = None
        try:
            with anyio.move_on_after(timeout_seconds) as limit:
                reason = await _wait(process, family, watch=watch)
            ending = "timeout" if limit.cancelled_caught else "signal" if reason else "left-background"
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(
                    _stop, spool, _Stop(family=family, ending=ending, is_urgent=bool(reason))
                )
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_stop, spool, _Stop(family=family, ending="signal"))
                await reaped(process)
            raise
        return reason

    @asynccontextmanager
    async def _collected(self, spool: Spool) -> AsyncIterator[int]:
        """A descriptor whose input is kept in the spool; at the end it is waited for until all is."""
        reader, writer = os.pipe()
        limits = (str(HEAD_BYTES), str(TAIL_BYTES))
        line = (self._plain_shell(), "-c", COLLECTOR, "collector", str(spool.place), *limits)
        start = Enclosed(line=line, stdin=reader)
        env = {"PATH": search_path(self._environ), "LC_ALL": "C", MARKER: collector_mark(spool)}
        try:
            collector = await _open(start, stdout=DEVNULL, cwd=spool.place.parent, env=env)
        except BaseException:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        try:
            yield writer
        finally:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(DRAIN_SECONDS):
                    await collector.wait()
                if collector.returncode is None:
                    await anyio.to_thread.run_sync(_stop_collector, spool)
                await collector.aclose()


async def _open(start: Enclosed, *, stdout: int, cwd: Path, env: Mapping[str, str]) -> Process:
    try:
        return await anyio.open_process(
            start.line,
            stdin=start.stdin,
            stdout=stdout,
            stderr=DEVNULL,
            cwd=cwd,
            env=env,
            start_new_session=True,
            pass_fds=start.descriptors,
        )
    except OSError as error:
        raise WorkspaceError(f"the shell cannot be started in {cwd}: {error.strerror}") from error


async def _wait(process: Process, family: Family, *, watch: Watch | None) -> str | None:
    """Until the process ends, or has too much of something: that is returned."""
    if watch is None:
        await process.wait()
        return None
    while True:
        with anyio.move_on_after(WATCH_SECONDS):
            await process.wait()
            return None
        reason = await anyio.to_thread.run_sync(watch.excess, family)
        if reason:
            return reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stop:
    family: Family
    ending: str
    is_urgent: bool = False
    """There is no time to be asked."""


def _stop(spool: Spool, stop: _Stop) -> None:
    is_over = stop.ending == "left-background"
    if is_over and wait_until(lambda: not members(stop.family), limit_seconds=LINGER_SECONDS):
        return
    spool.stop_because(stop.ending)
    grace_seconds = LINGER_SECONDS if is_over else GRACE_SECONDS
    end(stop.family, grace_seconds=0 if stop.is_urgent else grace_seconds)


def _stop_collector(spool: Spool) -> None:
    end(Family(mark=collector_mark(spool)), grace_seconds=0)


def _recover(spool: Spool) -> Finished | None:
    family = spool.family()
    linger_seconds = 0 if spool.exit_code() is None else LINGER_SECONDS
    if not wait_until(lambda: not members(family), limit_seconds=linger_seconds):
        _say_why(spool, family)
        end(family, grace_seconds=GRACE_SECONDS)
    collector = Family(mark=collector_mark(spool))
    if not wait_until(lambda: not members(collector), limit_seconds=DRAIN_SECONDS):
        _stop_collector(spool)
    return _finished(spool, recorded_seconds(spool)) if spool.has_begun() else None


def _say_why(spool: Spool, family: Family) -> None:
    """Why it is about to be stopped; a shell that only has not got to its own end yet left nothing behind."""
    if spool.ending() is not None:
        return
    if spool.exit_code() is None:
        spool.stop_because("signal")
    elif members(family) - {family.leader}:
        spool.stop_because("left-background")


def _finished(spool: Spool, seconds: float) -> Finished:
    code, ending = spool.exit_code(), spool.ending()
    if ending is None and has_left(spool):
        ending = "left-background"
    if ending in ("timeout", "signal") or code is None:
        code, ending = None, ending if ending == "timeout" else "signal"
    return Finished(
        exit_code=code,
        output=spool.output,
        duration_seconds=seconds,
        ending=ending or "exit",
        omitted_bytes=finish_output(spool),
    )


def _note(finished: Finished, watch: Watch, *, reason: str | None) -> None:
    """Say at the end of the output what the box did."""
    with finished.output.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOOKED_AT_BYTES))
        end = file.read()
        told = watch.notes(exit_code=finished.exit_code, output=end)
        lines = [*([reason] if reason else ()), *told]
        if lines:
            gap = "" if not end or end.endswith(b"\n") else "\n"
            file.write((gap + "\n".join(lines) + "\n").encode())


def _last_line(spool: Spool) -> str:
    lines = spool.text("out").strip().splitlines()
    return lines[-1][:300] if lines else "it was ended from outside"


def _prepare(workspace: Workspace, spool: Spool) -> None:
    if workspace.root.is_symlink() or not workspace.root.is_dir():
        raise WorkspaceError(f"the workspace {workspace.root} is gone; the run cannot go on")
    workspace.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    spool.clear()


def _stat(number: int) -> str:
    try:
        return Path(f"/proc/{number}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return ""
