"""Three-way merges between commits, without a tree on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from xnagent.core.commits import Conflict
from xnagent.workspaces.git import Git, shown

DETAIL_CHARACTERS: Final = 1000


async def merge_trees(git: Git, *, head: str, base: str, commit: str) -> str | Conflict:
    """The tree that has the changes of both; `base` must be the parent of `commit` and an ancestor of `head`."""
    if head == base:
        return await git.text("rev-parse", f"{commit}^{{tree}}")
    answer = await git.run("merge-tree", "--write-tree", "-z", "--name-only", head, commit, accepted=(0, 1))
    fields = [os.fsdecode(field) for field in answer.output.split(b"\0")]
    if answer.code == 0:
        return fields[0].strip()
    end = fields.index("", 1)
    messages = [text.strip() for kind, text in _messages(fields[end + 1 :]) if kind.startswith("CONFLICT")]
    paths = tuple(sorted({shown(path) for path in fields[1:end]}))
    return Conflict(paths=paths, detail=shown("\n".join(messages))[:DETAIL_CHARACTERS])


async def commit_merged(git: Git, tree: str, *, head: str, commit: str, message: str) -> str:
    """The merge's commit: dated as what was merged, so that merging again gives the same id."""
    dated = git.dated(await git.seconds(commit))
    return await dated.commit(tree, parents=(head,), message=message)


def _messages(fields: list[str]) -> Iterator[tuple[str, str]]:
    """Kind and text of each message: a count, so many paths, the kind, the text."""
    while fields and fields[0].isdigit():
        count = int(fields[0])
        yield fields[count + 1], fields[count + 2]
        fields = fields[count + 3 :]
