"""Git LFS, whose program is never run: a file whose content is what its pointer says counts as unchanged."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final

import anyio.to_thread

from xnagent.workspaces.git import Git, joined

POINTER: Final = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*oid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
LARGEST_POINTER: Final = 1024
"""As the specification of Git LFS has it."""


async def smudged(git: Git, paths: tuple[str, ...]) -> frozenset[str]:
    """Those of the paths whose entry in the index is a pointer to exactly what stands in the tree."""
    if git.work_tree is None or not paths:
        return frozenset()
    answer = await git.run("check-attr", "-z", "--stdin", "filter", stdin=joined(paths))
    fields = answer.output.split(b"\0")
    filtered = [os.fsdecode(path) for path, value in zip(fields[0::3], fields[2::3], strict=False) if value == b"lfs"]
    found = [path for path in filtered if await _is_smudged(git, path, root=git.work_tree)]
    return frozenset(found)


async def _is_smudged(git: Git, path: str, *, root: Path) -> bool:
    entry = await git.run("ls-files", "-s", "-z", "--", f":(literal){path}")
    if not entry.output.startswith(b"100"):
        return False
    name = entry.output.split(b" ")[1].decode("ascii")
    size = int((await git.run("cat-file", "-s", name)).output)
    if size > LARGEST_POINTER:
        return False
    pointer = POINTER.fullmatch((await git.run("cat-file", "blob", name)).output)
    if pointer is None:
        return False
    return await anyio.to_thread.run_sync(_has, root / path, pointer)


def _has(path: Path, pointer: re.Match[bytes]) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != int(pointer[2]):
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest().encode() == pointer[1]
