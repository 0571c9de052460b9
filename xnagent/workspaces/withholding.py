"""Files whose content holds a secret that this process knows: kept out of commits, and so of patches and the log.

A patch must apply as it is, so nothing in it can be masked; the file is left out whole, before git makes an object of
it. What the tree's last commit held already counts as the repository's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Final

import anyio.to_thread

from xnagent.core.masking import Mask
from xnagent.core.values import dataclass
from xnagent.workspaces.git import OUTPUT_BYTES, Git, joined, shown

CHUNK_BYTES: Final = 4 * 1024 * 1024
OVERLAP_BYTES: Final = 64 * 1024
"""A secret, in any form, is shorter."""
ABSENT: Final = "0"
_TOGETHER: Final = 64
"""Contents that are read at once,"""
_TOGETHER_BYTES: Final = 16 * 1024 * 1024
"""if they are not longer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A file that is kept out."""

    path: str
    secrets: tuple[str, ...]
    """Placeholders of what its content holds."""

    @property
    def told(self) -> str:
        """For people and models."""
        return f"{shown(self.path)} holds {' and '.join(self.secrets)}"


async def withheld(git: Git, paths: Iterable[str], *, mask: Mask) -> tuple[Held, ...]:
    """Those of the changed or new paths whose content holds a secret that none of them held by the index."""
    if not mask.grams or git.work_tree is None:
        return ()
    changed = tuple(paths)
    found = await anyio.to_thread.run_sync(partial(_search, git.work_tree, changed, mask=mask))
    return _new(found, known=await _held_before(git, changed, mask=mask)) if found else ()


async def unstage_secrets(git: Git, base: str, *, mask: Mask) -> None:
    """Make the index at paths that hold a secret, and did not in the base, what the base is."""
    if not mask.grams:
        return
    entries = await _staged(git, base)
    if not await _held_in(git, [entry.new for entry in entries], mask=mask):
        return
    found = {entry.path: await _held_in(git, (entry.new,), mask=mask) for entry in entries}
    known = await _held_in(git, [entry.old for entry in entries], mask=mask)
    shut = {one.path for one in _new(found, known=known)}
    lines = tuple(f"{entry.mode} {entry.old}\t{entry.path}" for entry in entries if entry.path in shut)
    await git.run("update-index", "-z", "--index-info", stdin=joined(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    path: str
    mode: str
    """In the base, as `old`; zeros: it is not there."""
    old: str
    new: str


async def _staged(git: Git, base: str) -> tuple[_Entry, ...]:
    options = ("--cached", "-z", "--raw", "--no-renames", "--no-abbrev")
    fields = (await git.run("diff-index", *options, base)).output.split(b"\0")
    heads = [head.decode("ascii").removeprefix(":").split(" ") for head in fields[0::2] if head]
    paths = map(os.fsdecode, fields[1::2])
    return tuple(
        _Entry(path=path, mode=head[0], old=head[2], new=head[3]) for head, path in zip(heads, paths, strict=False)
    )


def _new(found: Mapping[str, frozenset[str]], *, known: frozenset[str]) -> tuple[Held, ...]:
    return tuple(
        Held(path=path, secrets=tuple(sorted(names - known))) for path, names in found.items() if names - known
    )


def _search(root: Path, paths: Iterable[str], *, mask: Mask) -> dict[str, frozenset[str]]:
    found = {path: _held_by(root / path, mask=mask) for path in paths}
    return {path: names for path, names in found.items() if names}


def _held_by(path: Path, *, mask: Mask) -> frozenset[str]:
    """What a file holds, or a link says; nothing where neither can be read."""
    with suppress(OSError):
        if path.is_symlink():
            return mask.held(os.fsencode(path.readlink()))
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return frozenset(name for part in _parts(file) for name in mask.held(part))
    return frozenset()


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    end = b""
    while chunk := file.read(CHUNK_BYTES):
        yield end + chunk
        end = chunk[-OVERLAP_BYTES:]


async def _held_before(git: Git, paths: tuple[str, ...], *, mask: Mask) -> frozenset[str]:
    """What the index's own contents at the paths hold."""
    literal = tuple(f":(literal){path}" for path in paths)
    listed = [await git.run("ls-files", "-s", "-z", "--", *literal[at : at + _TOGETHER]) for at in _steps(literal)]
    entries = [entry.split(b" ") for answer in listed for entry in answer.output.split(b"\0") if entry]
    return await _held_in(git, [entry[1].decode("ascii") for entry in entries], mask=mask)


async def _held_in(git: Git, ids: Iterable[str], *, mask: Mask) -> frozenset[str]:
    """What these contents hold. One that is not here, as of a submodule, holds nothing."""
    wanted = tuple(name for name in dict.fromkeys(ids) if name.strip(ABSENT))
    names: frozenset[str] = frozenset()
    for at in _steps(wanted):
        names |= await _held_together(git, wanted[at : at + _TOGETHER], mask=mask)
    return names


async def _held_together(git: Git, ids: tuple[str, ...], *, mask: Mask) -> frozenset[str]:
    """What these hold, read at once; if they are too long together, in halves, so that none is cut off."""
    limit = _TOGETHER_BYTES if len(ids) > 1 else OUTPUT_BYTES
    contents = await git.run("cat-file", "--batch", "-z", stdin=joined(ids), can_be_cut=True, limit_bytes=limit)
    if not contents.is_cut or len(ids) == 1:
        return await anyio.to_thread.run_sync(mask.held, contents.output)
    half = len(ids) // 2
    first = await _held_together(git, ids[:half], mask=mask)
    return first | await _held_together(git, ids[half:], mask=mask)


def _steps(items: tuple[str, ...]) -> range:
    return range(0, len(items), _TOGETHER)
