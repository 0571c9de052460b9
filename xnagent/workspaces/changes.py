"""What differs between two commits, and whether it may cross out of a workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.workspaces.git import OUTPUT_BYTES, Git, joined, listed, shown
from xnagent.workspaces.staging import GIT_FOLDERS

LINK: Final = "120000"
SUBMODULE: Final = "160000"
MAX_HOPS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file in a tree."""

    mode: str
    """`100644`, `100755`, `120000` (symlink) or `160000` (submodule)."""
    content: str
    """The id of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs. A rename is two."""

    path: str
    old: Entry | None
    new: Entry | None


async def changes_between(git: Git, *, base: str, commit: str) -> tuple[Change, ...]:
    """What differs from one commit to the other, in the order of paths."""
    options = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none")
    return parse_raw((await git.run("diff-tree", *options, base, commit)).output)


async def staged_changes(git: Git, base: str) -> dict[str, Entry | None]:
    """What the index has where it differs from a commit, by path."""
    options = ("--cached", "-z", "--raw", "--no-renames", "--no-abbrev")
    found = parse_raw((await git.run("diff-index", *options, base)).output)
    return {change.path: change.new for change in found}


def parse_raw(output: bytes) -> tuple[Change, ...]:
    """The changes in the output of `--raw -z`."""
    fields = output.split(b"\0")
    return tuple(
        _change(head.decode("ascii"), os.fsdecode(path))
        for head, path in zip(fields[0::2], fields[1::2], strict=False)
        if head
    )


def _change(head: str, path: str) -> Change:
    old_mode, new_mode, old_content, new_content, _ = head.removeprefix(":").split(" ")
    return Change(path=path, old=_entry(old_mode, old_content), new=_entry(new_mode, new_content))


def _entry(mode: str, content: str) -> Entry | None:
    return None if set(mode) == {"0"} else Entry(mode=mode, content=content)


async def patch_between(git: Git, *, base: str, commit: str, limit_bytes: int = OUTPUT_BYTES) -> bytes | None:
    """The patch as `git diff --binary` makes it, renames as two files; None: larger than the limit."""
    options = ("-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
    answer = await git.run("diff-tree", *options, base, commit, can_be_cut=True, limit_bytes=limit_bytes)
    return None if answer.is_cut else answer.output


async def problems_of(git: Git, *, base: str, commit: str) -> tuple[str, ...]:
    """Why the difference must not be merged: links that lead out of the tree, repositories as entries."""
    changes = await changes_between(git, base=base, commit=commit)
    submodules = [shown(change.path) for change in changes if change.new and change.new.mode == SUBMODULE]
    problems = [f"SUBMODULE: {path} became a repository of its own; its content would be lost" for path in submodules]
    if any(change.new and change.new.mode == LINK for change in changes):
        before, after = await _links(git, base), await _links(git, commit)
        known = {path for path in before if leads_out(path, before)}
        out = [path for path in sorted(after) if path not in known and leads_out(path, after)]
        problems += [f"ESCAPING_LINK: {shown(path)} -> {shown(after[path])} leads out of the tree" for path in out]
    return tuple(problems)


async def _links(git: Git, commit: str) -> dict[str, str]:
    """The targets of all symlinks in a commit, by path."""
    found = listed((await git.run("ls-tree", "-r", "-z", "--full-tree", commit)).output)
    links = [entry.partition("\t") for entry in found if entry.startswith(LINK + " ")]
    ids = tuple(head.split(" ")[2] for head, _, _ in links)
    if not ids:
        return {}
    contents = (await git.run("cat-file", "--batch", "-z", stdin=joined(ids))).output
    targets = _batch(contents, len(ids))
    return {path: target for (_, _, path), target in zip(links, targets, strict=True)}


def _batch(output: bytes, count: int) -> list[str]:
    targets: list[str] = []
    start = 0
    for _ in range(count):
        end = output.find(b"\n", start)
        fields = output[start:end].split(b" ")
        if end < 0 or not fields[-1].isdigit():
            raise WorkspaceError(f"git cat-file: {os.fsdecode(output[start:end])}")
        size = int(fields[-1])
        targets.append(os.fsdecode(output[end + 1 : end + 1 + size]))
        start = end + size + 2
    return targets


def leads_out(path: str, links: Mapping[str, str]) -> bool:
    """Whether following a symlink leaves the tree or enters a `.git` folder; `links` are all symlinks of the tree."""
    reached = path.split("/")[:-1]
    pending = links[path].split("/")
    is_absolute = links[path].startswith("/")
    for _ in range(MAX_HOPS):
        if is_absolute:
            return True
        step = _walk(reached, pending, links=links)
        if isinstance(step, bool):
            return step
        reached, pending = step[0], [*links[step[1]].split("/"), *step[2]]
        is_absolute = links[step[1]].startswith("/")
    return False


def _walk(
    reached: list[str], pending: list[str], *, links: Mapping[str, str]
) -> bool | tuple[list[str], str, list[str]]:
    """Go along until the way leads out (True), ends (False), or meets a link: its folder, path, and what follows."""
    for number, part in enumerate(pending):
        if part == ".." and not reached:
            return True
        if part == "..":
            reached = reached[:-1]
        elif part.lower() in GIT_FOLDERS:
            return True
        elif part not in ("", "."):
            reached = [*reached, part]
            if (link := "/".join(reached)) in links:
                return reached[:-1], link, pending[number + 1 :]
    return False
