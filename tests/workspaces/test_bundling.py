"""A result as one file that other repositories fetch from."""

import shutil

import pytest

from xnagent.core.ids import RunId
from xnagent.workspaces.repositories import Crossing, SessionWorkspaces

R1 = RunId("r1")


@pytest.fixture
def bundling(tmp_path, user):
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(user.home)}
    return SessionWorkspaces(
        user.root,
        tmp_path / "work" / "s-1",
        session="s-1",
        environ=environ,
        crossing=Crossing(bundles=tmp_path / "out" / "bundles"),
    )


async def result_of(session: SessionWorkspaces, at: str) -> tuple[str, str]:
    base = (await session.begin(at=at)).commit
    tree = await session.open_run(R1, base)
    (tree.root / "new.txt").write_text("new\n")
    return base, (await session.take(R1, base)).commit


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_bundle_is_fetched_where_the_user_s_commit_is(repo, bundling, at, tmp_path, is_plain):
    """With uncommitted work at the start; of a folder without git the bundle holds everything."""
    repo.git("clone", "-q", str(repo.root), str(tmp_path / "clone"))
    repo.put("mine.txt", "mine\n")
    if is_plain:
        shutil.rmtree(repo.root / ".git")
    base, head = await result_of(bundling, at)
    for _ in range(2):
        applied = await bundling.apply(base=base, head=head, wanted=False)
        assert "bundle" not in applied.detail
    bundle = tmp_path / "out" / "bundles" / "s-1.bundle"
    assert list(bundle.parent.iterdir()) == [bundle]
    clone = tmp_path / "clone"
    repo.git("fetch", "-q", str(bundle), "xnagent/s-1:got", cwd=clone)
    assert repo.git("rev-parse", "got", cwd=clone) == head
    assert repo.git("show", "got:mine.txt", cwd=clone) == "mine"


async def test_a_bundle_that_cannot_be_written_is_told_and_costs_nothing_else(repo, bundling, at, tmp_path):
    (tmp_path / "out").write_text("a file")
    base, head = await result_of(bundling, at)
    applied = await bundling.apply(base=base, head=head, wanted=True)
    assert (applied.is_applied, applied.branch) == (True, "xnagent/s-1")
    assert "no bundle was written" in applied.detail
