"""The result as a branch in the user's repository, without `fetch`: its configuration could reroute that.

Objects are written by git with our configuration; then one `update-ref` with hooks off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from xnagent.core.ids import SessionId
from xnagent.errors import WorkspaceError
from xnagent.workspaces.git import Git
from xnagent.workspaces.integration import ORIGIN_REF
from xnagent.workspaces.origin import Checkout

ATTEMPTS: Final = 20


async def publish(ours: Git, checkout: Checkout, *, head: str, session: SessionId) -> str:
    """Make the commit a branch of the user's repository and return the branch's name.

    A branch that is checked out, or has commits which the result lacks, is left alone; the name then gets a number.
    """
    await _hand_over(ours, checkout, head=head)
    theirs = Git(environ=ours.environ, git_dir=checkout.git_dir)
    taken = await _checked_out(theirs)
    names = [f"xnagent/{session}", *(f"xnagent/{session}-{number}" for number in range(2, ATTEMPTS))]
    for name in (*names, f"xnagent-{session}"):
        if await _is_ours(theirs, name, head=head) or (name not in taken and await _set(theirs, name, head=head)):
            return name
    raise WorkspaceError(f"no branch xnagent/{session} can be made; remove the branches of that name")


async def _hand_over(ours: Git, checkout: Checkout, *, head: str) -> None:
    known = await ours.run("rev-parse", "--verify", "--quiet", ORIGIN_REF, accepted=(0, 1))
    exclude = f"^{known.output.decode().strip()}\n" if known.output else ""
    options = ("--revs", "--local", "--stdout", "-q", "--delta-base-offset")
    pack = await ours.run("pack-objects", *options, stdin=f"{head}\n{exclude}".encode())
    await replace(ours, objects=checkout.objects).run("unpack-objects", "-q", stdin=pack.output)


async def _checked_out(theirs: Git) -> set[str]:
    lines = (await theirs.text("worktree", "list", "--porcelain")).splitlines()
    return {line.removeprefix("branch refs/heads/") for line in lines if line.startswith("branch ")}


async def _is_ours(theirs: Git, name: str, *, head: str) -> bool:
    found = await theirs.run("rev-parse", "--verify", "--quiet", f"refs/heads/{name}", accepted=(0, 1))
    return found.output.decode().strip() == head


async def _set(theirs: Git, name: str, *, head: str) -> bool:
    """Make or move the branch, unless that would lose commits or another branch is in the way."""
    ref = f"refs/heads/{name}"
    found = await theirs.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", accepted=(0, 1))
    old = found.output.decode().strip()
    if old and (await theirs.run("merge-base", "--is-ancestor", old, head, accepted=(0, 1))).code:
        return False
    expected = old or "0" * len(head)
    answer = await theirs.run("update-ref", "-m", "xnagent: result", ref, head, expected, accepted=(0, 1, 128))
    return answer.code == 0
