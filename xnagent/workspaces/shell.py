"""Commands as process groups: `ports.Shell` on real processes.

A wrapper records beginning and end in the spool; a collector of its own keeps the output. Both go on if the process
that started them is killed, so a later one can `recover`. Working folder and environment do not last from one command
to the next: each begins in the root of the workspace.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

import anyio
from anyio.abc import Process

from xnagent.errors import WorkspaceError
from xnagent.ports import Command, Finished, Workspace
from xnagent.workspaces.environment import command_environment
from xnagent.workspaces.git import search_path
from xnagent.workspaces.processes import MARKER, Family, end, identify, members, reaped, wait_until
from xnagent.workspaces.spool import (
    COLLECTOR,
    HEAD_BYTES,
    TAIL_BYTES,
    WRAPPER,
    Spool,
    collector_mark,
    command_line,
    finish_output,
    recorded_seconds,
    spool_at,
)

GRACE_SECONDS: Final = 1.0
"""Between being asked to stop and being stopped."""
LINGER_SECONDS: Final = 0.2
"""For what is just ending when the shell has ended."""
DRAIN_SECONDS: Final = 1.0
"""For the rest of the output when all writers are gone."""


class ProcessShell:
    """`environ` is the environment of the orchestrator; `passed` names variables that commands get on purpose."""

    def __init__(self, environ: Mapping[str, str], *, passed: tuple[str, ...] = ()) -> None:
        self._environ = environ
        self._passed = passed

    async def run(self, workspace: Workspace, command: Command) -> Finished:
        """Run it to its end. What it left in the background is stopped. Cancelled: the whole tree is stopped first.

        Returns within the time limit and 4 seconds. Raises WorkspaceError if the workspace is gone.
        """
        spool = spool_at(workspace.scratch, command.spool)
        await anyio.to_thread.run_sync(_prepare, workspace, spool)
        line = command_line(self._interpreter(), command.command, spool=spool)
        begun = time.monotonic()
        async with self._collected(spool) as writer:
            try:
                process = await self._start(line, workspace, spool=spool, stdout=writer)
            finally:
                os.close(writer)
            async with process:
                await _watch(process, spool, timeout_seconds=command.timeout_seconds)
        return await anyio.to_thread.run_sync(_finished, spool, time.monotonic() - begun)

    async def recover(self, workspace: Workspace, spool: str) -> Finished | None:
        """After a crash: stop what still runs and say how it ended; None if it never began."""
        return await anyio.to_thread.run_sync(_recover, spool_at(workspace.scratch, spool))

    def _interpreter(self) -> str:
        path = search_path(self._environ)
        found = shutil.which("bash", path=path) or shutil.which("sh", path=path)
        if found is None:
            raise WorkspaceError("neither bash nor sh is on the PATH; install bash")
        return found

    async def _start(self, line: tuple[str, ...], workspace: Workspace, *, spool: Spool, stdout: int) -> Process:
        env = command_environment(self._environ, workspace, mark=spool.mark, passed=self._passed)
        wrapper = (self._interpreter(), "-c", WRAPPER, "xnagent", str(spool.place))
        return await _open((*wrapper, *line), stdin=DEVNULL, stdout=stdout, cwd=workspace.root, env=env)

    @asynccontextmanager
    async def _collected(self, spool: Spool) -> AsyncIterator[int]:
        """A descriptor whose input is kept in the spool; at the end it is waited for until all is."""
        reader, writer = os.pipe()
        limits = (str(HEAD_BYTES), str(TAIL_BYTES))
        line = (self._interpreter(), "-c", COLLECTOR, "collector", str(spool.place), *limits)
        env = {"PATH": search_path(self._environ), "LC_ALL": "C", MARKER: collector_mark(spool)}
        try:
            collector = await _open(line, stdin=reader, stdout=DEVNULL, cwd=spool.place.parent, env=env)
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


async def _open(line: tuple[str, ...], *, stdin: int, stdout: int, cwd: Path, env: Mapping[str, str]) -> Process:
    try:
        return await anyio.open_process(
            line, stdin=stdin, stdout=stdout, stderr=DEVNULL, cwd=cwd, env=env, start_new_session=True
        )
    except OSError as error:
        raise WorkspaceError(f"the shell cannot be started in {cwd}: {error.strerror}") from error


async def _watch(process: Process, spool: Spool, *, timeout_seconds: float) -> None:
    """Wait for the shell; then, or when its time is up, see that nothing of it goes on."""
    family = Family(mark=spool.mark, leader=identify(_stat(process.pid)) or spool.leader())
    try:
        with anyio.move_on_after(timeout_seconds) as limit:
            await process.wait()
        ending = "timeout" if limit.cancelled_caught else "left-background"
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_stop, spool, _Stop(family=family, ending=ending))
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_stop, spool, _Stop(family=family, ending="signal"))
            await reaped(process)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stop:
    family: Family
    ending: str


def _stop(spool: Spool, stop: _Stop) -> None:
    is_over = stop.ending == "left-background"
    if is_over and wait_until(lambda: not members(stop.family), limit_seconds=LINGER_SECONDS):
        return
    spool.stop_because(stop.ending)
    end(stop.family, grace_seconds=LINGER_SECONDS if is_over else GRACE_SECONDS)


def _stop_collector(spool: Spool) -> None:
    end(Family(mark=collector_mark(spool)), grace_seconds=0)


def _recover(spool: Spool) -> Finished | None:
    family = spool.family()
    if members(family):
        if spool.ending() is None:
            spool.stop_because("signal" if spool.exit_code() is None else "left-background")
        end(family, grace_seconds=GRACE_SECONDS)
    collector = Family(mark=collector_mark(spool))
    if not wait_until(lambda: not members(collector), limit_seconds=DRAIN_SECONDS):
        _stop_collector(spool)
    return _finished(spool, recorded_seconds(spool)) if spool.has_begun() else None


def _finished(spool: Spool, seconds: float) -> Finished:
    code, ending = spool.exit_code(), spool.ending()
    if ending in ("timeout", "signal") or code is None:
        code, ending = None, ending if ending == "timeout" else "signal"
    return Finished(
        exit_code=code,
        output=spool.output,
        duration_seconds=seconds,
        ending=ending or "exit",
        omitted_bytes=finish_output(spool),
    )


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
