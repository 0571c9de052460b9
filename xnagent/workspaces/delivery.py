"""The end of a session: the branch, and the files."""

from __future__ import annotations

from xnagent.core.commits import Applied
from xnagent.core.ids import SessionId
from xnagent.errors import WorkspaceError
from xnagent.workspaces.changes import Change, problems_of
from xnagent.workspaces.git import Git, few
from xnagent.workspaces.landing import Landed, land
from xnagent.workspaces.origin import Origin
from xnagent.workspaces.publishing import publish


async def deliver(
    ours: Git, origin: Origin, *, base: str, head: str, session: SessionId, changes: tuple[Change, ...]
) -> Applied:
    """Make the branch, then write `changes`, if any. `ours` has an index to use in a folder of its own."""
    branch, trouble = await _branch(ours, origin, head=head, session=session)
    if branch and not origin.has_tree:
        how = f"the result is in the mirror: git fetch {origin.root} {branch}"
        return Applied(is_applied=False, branch=branch, changed_files=(), patch=b"", detail=how)
    if not changes:
        return _applied(branch, Landed(is_applied=False), trouble=trouble)
    if problems := await problems_of(ours, base=base, commit=head):
        return _applied(branch, Landed(is_applied=False, failure=problems[0]), trouble=trouble)
    if ours.index is None:
        raise WorkspaceError("there is no index to use")
    staging = ours.index.with_name("staging")
    staging.mkdir()
    return _applied(branch, await land(ours, changes, base=base, head=head, staging=staging), trouble=trouble)


async def _branch(ours: Git, origin: Origin, *, head: str, session: SessionId) -> tuple[str | None, str]:
    if origin.checkout is None:
        return None, ""
    try:
        return await publish(ours, origin.checkout, head=head, session=session), ""
    except WorkspaceError as error:
        return None, f"no branch was made: {error}"


def _applied(branch: str | None, landed: Landed, *, trouble: str) -> Applied:
    reasons = [trouble] if trouble else []
    if landed.overlaps:
        reasons.append(f"not applied: changed in your tree too, or in the way: {few(landed.overlaps)}")
    if landed.failure:
        reasons.append(f"not applied: {landed.failure}")
    if len(reasons) > bool(trouble):
        way = f"commit or stash your changes, then `git merge {branch}`" if branch else "apply the session's patch"
        reasons.append(way)
    detail = "; ".join(reasons)
    return Applied(is_applied=landed.is_applied, branch=branch, changed_files=(), patch=b"", detail=detail)
