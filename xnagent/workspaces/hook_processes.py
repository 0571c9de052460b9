"""Starts the user's hooks: outside the box, with the user's rights, within a time; nothing of them is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from subprocess import PIPE
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process

from xnagent.core.hooks import Hook, HookEnd
from xnagent.core.values import dataclass
from xnagent.ports import Clock
from xnagent.workspaces.processes import Family, end, identify, reaped

SHELL: Final = "/bin/sh"
KEPT_BYTES: Final = 16_384
GRACE_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 1.0
"""For output that somebody holds open who could not be found."""
NOBODY: Final = "hook:"
"""No command's marker: hooks are found by the session that they begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookProcesses:
    """Runs hooks in one folder."""

    folder: Path
    environment: Callable[[Hook], Mapping[str, str]]
    clock: Clock

    async def run(self, hook: Hook, document: bytes) -> HookEnd:
        """The hook to its end, within its time. Cancelled: it is killed first."""
        began, heard = self.clock.monotonic(), _Heard()
        try:
            process = await self._open(hook, document)
        except OSError as error:
            return HookEnd(exit_code=None, problem=f"it cannot be started in {self.folder}: {error.strerror}")
        try:
            is_late = await _attended(process, heard, seconds=hook.seconds)
        finally:
            with anyio.CancelScope(shield=True):
                await process.aclose()
        seconds = self.clock.monotonic() - began
        output = (heard.errors or heard.output).decode("utf-8", "replace")
        if is_late:
            problem = f"it did not end within {hook.seconds:g} s and was killed"
            return HookEnd(exit_code=None, output=output, problem=problem, duration_seconds=seconds)
        return _ended(process.returncode or 0, output, seconds=seconds)

    async def _open(self, hook: Hook, document: bytes) -> Process:
        """What it reads is a file, so that a hook that reads nothing holds nobody up."""
        told = os.memfd_create("hook", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(told), "wb") as file:
                file.write(document)
            os.lseek(told, 0, os.SEEK_SET)
            return await anyio.open_process(
                (SHELL, "-c", hook.command),
                stdin=told,
                stdout=PIPE,
                stderr=PIPE,
                cwd=self.folder,
                env=self.environment(hook),
                start_new_session=True,
            )
        finally:
            os.close(told)


@dataclass(slots=True)
class _Heard:
    """The ends of what a hook printed."""

    output: bytes = b""
    errors: bytes = b""
    ends: set[str] = field(default_factory=set)

    async def listen(self, stream: ByteReceiveStream, name: str) -> None:
        """Keep the end of a stream."""
        async for part in stream:
            setattr(self, name, (getattr(self, name) + part)[-KEPT_BYTES:])


async def _attended(process: Process, heard: _Heard, *, seconds: float) -> bool:
    """Wait for its end, and end what it started; whether it took too long."""
    with anyio.CancelScope(shield=True):
        family = await anyio.to_thread.run_sync(_family, process.pid)
    async with anyio.create_task_group() as group:
        for stream, name in ((process.stdout, "output"), (process.stderr, "errors")):
            if stream is not None:
                group.start_soon(heard.listen, stream, name)
        try:
            with anyio.move_on_after(seconds) as limit:
                await process.wait()
        finally:
            grace = GRACE_SECONDS if process.returncode is None else 0.0
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_end, family, grace)
                await reaped(process)
        group.cancel_scope.deadline = anyio.current_time() + DRAIN_SECONDS
    return limit.cancelled_caught


def _family(number: int) -> Family:
    try:
        stat = Path(f"/proc/{number}/stat").read_text("utf-8", errors="replace")
    except OSError:
        stat = ""
    return Family(mark=NOBODY, leader=identify(stat))


def _end(family: Family, grace_seconds: float) -> None:
    end(family, grace_seconds=grace_seconds)


def _ended(code: int, output: str, *, seconds: float) -> HookEnd:
    if code >= 0:
        return HookEnd(exit_code=code, output=output, duration_seconds=seconds)
    problem = f"it was ended by {signal.Signals(-code).name}"
    return HookEnd(exit_code=None, output=output, problem=problem, duration_seconds=seconds)
