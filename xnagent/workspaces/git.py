"""Running git: one place, with an environment and a configuration of ours, bounded output and a time limit.

Nothing of the caller's environment reaches git but where programs are; no configuration of a user or system is read.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from xnagent.core.values import dataclass
from xnagent.errors import UsageError, WorkspaceError
from xnagent.workspaces.processes import reaped

OLDEST_GIT: Final = (2, 38)
"""The first with `merge-tree --write-tree` and `cat-file -z`."""
OUTPUT_BYTES: Final = 256 * 1024 * 1024
ERRORS_BYTES: Final = 64 * 1024
LIMIT_SECONDS: Final = 600.0
GRACE_SECONDS: Final = 1.0
LISTED_PATHS: Final = 10
DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"

_FIXED: Final[Mapping[str, str]] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_AUTHOR_NAME": "xnagent",
    "GIT_AUTHOR_EMAIL": "xnagent@localhost",
    "GIT_COMMITTER_NAME": "xnagent",
    "GIT_COMMITTER_EMAIL": "xnagent@localhost",
    "LC_ALL": "C",
}
_CONFIGURATION: Final = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.untrackedCache=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "protocol.allow=never",
    "safe.directory=*",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What git said."""

    code: int
    output: bytes
    errors: str
    is_cut: bool = False
    """The output was longer than the limit, and git was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """Git for one repository, tree and index; None where git shall find or need none."""

    environ: Mapping[str, str]
    git_dir: Path | None = None
    work_tree: Path | None = None
    index: Path | None = None
    objects: Path | None = None
    """Where new objects go instead of the repository's own folder."""
    date: str | None = None
    """Of commits: seconds since 1970."""
    settings: tuple[str, ...] = ()
    """More configuration, as `name=value`."""
    reads_user_settings: bool = False
    """Also system and user configuration; only to look settings up."""
    more: Mapping[str, str] = field(default_factory=dict)
    """More environment: what reaching another machine needs."""
    limit_seconds: float = LIMIT_SECONDS

    async def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        accepted: Container[int] = (0,),
        can_be_cut: bool = False,
        limit_bytes: int = OUTPUT_BYTES,
    ) -> Answer:
        """Run one command; WorkspaceError with git's first line if it ends with a code that is not accepted."""
        command = [_program(self.environ), *_options(self.settings), *arguments]
        folder = self.work_tree or self.git_dir or Path("/")
        try:
            with anyio.fail_after(self.limit_seconds):
                answer = await _converse(command, env=self._environment(), cwd=folder, stdin=stdin, limit=limit_bytes)
        except TimeoutError as error:
            raise WorkspaceError(
                f"git {arguments[0]} took longer than {self.limit_seconds:.0f} s and was stopped"
            ) from error
        except OSError as error:
            raise WorkspaceError(f"git {arguments[0]} cannot run in {folder}: {error.strerror}") from error
        if answer.is_cut and not can_be_cut:
            raise WorkspaceError(f"git {arguments[0]}: the output is larger than {limit_bytes} bytes")
        if not answer.is_cut and answer.code not in accepted:
            raise WorkspaceError(f"git {arguments[0]}: {_first_line(answer)}")
        return answer

    async def text(self, *arguments: str, stdin: bytes = b"") -> str:
        """The output of one command as text, without its last line break."""
        return os.fsdecode((await self.run(*arguments, stdin=stdin)).output.removesuffix(b"\n"))

    async def commit(self, tree: str, *, parents: tuple[str, ...], message: str) -> str:
        """A commit by xnagent: the same tree, parents, message and `date` give the same id."""
        options = [option for parent in parents for option in ("-p", parent)]
        text = message.replace("\0", "").encode("utf-8", "replace")
        return await self.text("commit-tree", *options, tree, stdin=text)

    async def seconds(self, commit: str) -> str:
        """When a commit was made, as `date` wants it."""
        return await self.text("show", "-s", "--format=%ct", "--no-show-signature", commit)

    def dated(self, seconds: str) -> Git:
        """The same, for commits of that time."""
        return replace(self, date=seconds)

    def _environment(self) -> dict[str, str]:
        folders = {"GIT_DIR": self.git_dir, "GIT_WORK_TREE": self.work_tree, "GIT_INDEX_FILE": self.index}
        named = {**folders, "GIT_OBJECT_DIRECTORY": self.objects}
        kept = {name: self.environ[name] for name in ("TMPDIR",) if name in self.environ}
        dates = {name: f"@{self.date} +0000" for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE") if self.date}
        paths = {name: str(path) for name, path in named.items() if path is not None}
        whole = {"PATH": search_path(self.environ), **kept, **self.more, **_FIXED, **dates, **paths}
        if not self.reads_user_settings:
            return whole
        homes = {name: self.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in self.environ}
        return {**{name: value for name, value in whole.items() if not name.startswith("GIT_CONFIG_")}, **homes}


def search_path(environ: Mapping[str, str]) -> str:
    """Where programs are looked for."""
    return environ.get("PATH") or DEFAULT_PATH


def shown(path: str) -> str:
    """A file's name as text that can be stored and sent; bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def listed(output: bytes) -> tuple[str, ...]:
    """The names in a NUL-separated list."""
    return tuple(os.fsdecode(name) for name in output.split(b"\0") if name)


def few(paths: tuple[str, ...]) -> str:
    """Some paths for people, and how many more there are."""
    names = ", ".join(shown(path) for path in paths[:LISTED_PATHS])
    more = len(paths) - LISTED_PATHS
    return f"{names} and {more} more" if more > 0 else names


def joined(paths: tuple[str, ...]) -> bytes:
    """Names as a NUL-terminated list."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


async def git_version(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """The version of the git on the PATH, `(2, 39, 5)`; None without one."""
    if shutil.which("git", path=search_path(environ)) is None:
        return None
    words = (await Git(environ=environ).text("--version")).split()
    numbers = words[2].split(".") if len(words) > len(("git", "version")) else []
    return tuple(int(number) for number in numbers if number.isdigit()) or None


async def require_git(environ: Mapping[str, str]) -> None:
    """UsageError unless a git that is new enough is there."""
    found = await git_version(environ)
    wanted = ".".join(map(str, OLDEST_GIT))
    if found is None:
        raise UsageError(f"git was not found on the PATH; install git {wanted} or newer")
    if found < OLDEST_GIT:
        raise UsageError(f"git {'.'.join(map(str, found))} is too old; install git {wanted} or newer")


def _program(environ: Mapping[str, str]) -> str:
    program = shutil.which("git", path=search_path(environ))
    if program is None:
        raise UsageError("git was not found on the PATH; install it")
    return program


def _options(settings: tuple[str, ...]) -> list[str]:
    return [word for setting in (*_CONFIGURATION, *settings) for word in ("-c", setting)]


def _first_line(answer: Answer) -> str:
    lines = [line for line in answer.errors.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return (fatal or lines or [f"exit {answer.code}"])[0][:500]


async def _converse(command: list[str], *, env: dict[str, str], cwd: Path, stdin: bytes, limit: int) -> Answer:
    output, errors = bytearray(), bytearray()
    source = PIPE if stdin else DEVNULL
    process = await anyio.open_process(
        command, stdin=source, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True
    )
    async with process:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_feed, process.stdin, stdin)
                group.start_soon(_collect, process.stderr, _Sink(into=errors, limit_bytes=ERRORS_BYTES))
                await _collect(process.stdout, _Sink(into=output, limit_bytes=limit, process=process))
                code = await process.wait()
        finally:
            await _stop(process)
    is_cut = len(output) > limit
    return Answer(code=code, output=bytes(output[:limit]), errors=errors.decode("utf-8", "replace"), is_cut=is_cut)


async def _stop(process: Process) -> None:
    """End git and what it started, if it still runs: asked first, so that it removes its lock files."""
    with anyio.CancelScope(shield=True):
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(GRACE_SECONDS):
            await process.wait()
        _signal(process, signal.SIGKILL)
        await reaped(process)


def _signal(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


async def _feed(stream: ByteSendStream | None, data: bytes) -> None:
    if stream is None:
        return
    try:
        await stream.send(data)
        await stream.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sink:
    into: bytearray
    limit_bytes: int
    process: Process | None = None
    """Stopped when the limit is passed."""


async def _collect(stream: ByteReceiveStream | None, sink: _Sink) -> None:
    if stream is None:
        return
    async for chunk in stream:
        if len(sink.into) <= sink.limit_bytes:
            sink.into.extend(chunk)
        elif sink.process is not None:
            _signal(sink.process, signal.SIGKILL)
            return
