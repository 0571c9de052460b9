"""A command line, and what must be held and passed on while it runs: with a box around it, or as it is."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

import anyio

from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.ports import Workspace
from xnagent.workspaces.box.pins import unpin
from xnagent.workspaces.box.sealing import Box, Rules, Sealed, private_folders
from xnagent.workspaces.spool import BOXED_WRAPPER, ENDER, TIED_WRAPPER, WRAPPER, Spool

BLOCK_BYTES: Final = 512
"""What a plain sh counts the size of a file in; bash under its own name takes twice as much."""

CPU_GRACE_SECONDS: Final = 5
"""Of processor time, for who has used too much of it to clean up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosed:
    """What is to be started."""

    line: tuple[str, ...]
    stdin: int = DEVNULL
    descriptors: tuple[int, ...] = ()


@asynccontextmanager
async def bare(line: Sequence[str], *, spool: Spool, shell: str, is_tied: bool) -> AsyncIterator[Enclosed]:
    """The wrapper's line without a box. What is tied ends with this context, however that ends."""
    if not is_tied:
        yield Enclosed(line=(shell, "-c", WRAPPER, "xnagent", str(spool.place), *line))
        return
    words = (str(spool.place), shell, ENDER, spool.mark)
    with held() as reader:
        yield Enclosed(line=(shell, "-c", TIED_WRAPPER, "xnagent", *words, *line), stdin=reader)


@asynccontextmanager
async def enclosed(
    box: Box, workspace: Workspace, *, line: Sequence[str], spool: Spool, shell: str, joins: Sequence[Path] = ()
) -> AsyncIterator[Enclosed]:
    """The wrapper's line, with a box that ends with this context, also if that ends because the process was killed.

    `joins` are files that make whoever writes its number there a member of a control group.
    """
    script = spool.part("sh")
    sealed = await sealed_line(box, workspace, line=line, shell=shell, script=script if script.exists() else None)
    limits = process_limits(box.grounds.rules)
    wrapper = (shell, "-c", BOXED_WRAPPER, "xnagent", str(spool.place), *limits, *map(str, joins), "--")
    try:
        with held() as reader:
            yield Enclosed(line=(*wrapper, *sealed.line), stdin=reader, descriptors=sealed.descriptors)
    finally:
        sealed.close()
        unpin(sealed.pins)


@contextmanager
def held() -> Iterator[int]:
    """The end of a pipe to read from, which nobody writes to: it closes when this process lets go, or is gone."""
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        for descriptor in (reader, writer):
            with suppress(OSError):
                os.close(descriptor)


def process_limits(rules: Rules) -> tuple[str, ...]:
    """As the wrapper takes them."""
    blocks, seconds = max(1, rules.file_bytes // BLOCK_BYTES), rules.cpu_seconds
    return tuple(map(str, (blocks, rules.open_files, seconds, seconds + CPU_GRACE_SECONDS)))


async def sealed_line(
    box: Box, workspace: Workspace, *, line: Sequence[str], shell: str, script: Path | None = None
) -> Sealed:
    """The line in a box of its own. Raises WorkspaceError."""
    try:
        for folder in private_folders(workspace):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return await anyio.to_thread.run_sync(lambda: box.seal(workspace, line, shell=shell, script=script))
    except OSError as error:
        raise WorkspaceError(f"the box cannot be made: {error.filename or ''} {error.strerror}") from error
