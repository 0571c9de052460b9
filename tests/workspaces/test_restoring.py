"""The integration repository made again from what a log holds, every commit with its id."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from xnagent.core.ids import RunId
from xnagent.errors import WorkspaceError
from xnagent.workspaces.repositories import Crossing, SessionWorkspaces
from xnagent.workspaces.restoring import Recorded, RecordedMerge
from xnagent.workspaces.trees import RunTrees

LIMIT = 8 * 1024 * 1024


@pytest.fixture
def keeping(tmp_path, user):
    def build(limit=LIMIT) -> SessionWorkspaces:
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(user.home)}
        return SessionWorkspaces(
            user.root, tmp_path / "work" / "s-1", session="s-1", environ=environ, crossing=Crossing(keep_bytes=limit)
        )

    return build


@pytest.fixture
def trees(tmp_path, user):
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(user.home)}
    return RunTrees(tmp_path / "work" / "s-1", environ=environ, limit_bytes=LIMIT)


async def session_of(workspaces: SessionWorkspaces, at: str, files: tuple[str, ...]) -> Recorded:
    """Runs side by side from one base, each with a file of its own and a line in a common one, merged in order."""
    base = await workspaces.begin(at=at)
    head, merges = base.commit, []
    for number, name in enumerate(files):
        run = RunId(f"r{number + 1}")
        tree = await workspaces.open_run(run, base.commit)
        (tree.root / name).write_text(f"{name}\n")
        common = (tree.root / "a.txt").read_text().split("\n")
        common[number * 2] += f" by {name}"
        (tree.root / "a.txt").write_text("\n".join(common))
        taken = await workspaces.take(run, base.commit)
        message = f"task: Do {name}\n\nxnagent run {run}"
        merged = await workspaces.merge(head=head, base=base.commit, commit=taken.commit, message=message)
        head = merged.commit
        merges.append(RecordedMerge(run=run, base=base.commit, patch=taken.patch, message=message, commit=head))
    return Recorded(base=base.commit, is_shadow=base.is_shadow, snapshot=base.snapshot, merges=merges)


def dirty(user) -> None:
    user.write(a_txt="a1 mine\na2\na3\n")
    user.put("bytes", bytes(range(256)))
    user.put("staged", "s")
    user.git("add", "staged")
    (user.root / "b.txt").unlink()


@pytest.mark.parametrize("kind", ["clean", "dirty", "unborn", "plain"])
async def test_b002_every_commit_comes_out_with_its_id(repo, user, keeping, trees, at, tmp_path, kind, prints):
    if kind != "clean":
        dirty(user)
    if kind in {"unborn", "plain"}:
        shutil.rmtree(user.root / ".git")
    if kind == "unborn":
        user.git("init", "-q")
    workspaces = keeping()
    recorded = await session_of(workspaces, at, ("one", "two"))
    head = recorded.merges[-1].commit
    await workspaces.advance(head)
    before = prints((await workspaces.checkout(head, "before")).root)
    assert (recorded.snapshot is None) == (kind == "clean")
    shutil.rmtree(tmp_path / "work")
    user.put("a.txt", "the user went on\n")
    assert not await trees.has_integration(recorded.base, head)
    await trees.restore_integration(recorded, repository=user.root)
    assert await trees.has_integration(recorded.base, head)
    await workspaces.reset(head)
    after = prints((await workspaces.checkout(head, "after")).root)
    assert {name: what for name, what in after.items() if not name.startswith(".git/")} == {
        name: what for name, what in before.items() if not name.startswith(".git/")
    }


async def test_a_plain_folder_that_is_not_at_this_machine(repo, user, keeping, trees, at, tmp_path):
    shutil.rmtree(user.root / ".git")
    recorded = await session_of(keeping(), at, ("one",))
    shutil.rmtree(tmp_path / "work")
    shutil.rmtree(user.root)
    await trees.restore_integration(recorded, repository=user.root)
    assert await trees.has_integration(recorded.base, recorded.merges[0].commit)
    applied = await keeping().apply(base=recorded.base, head=recorded.merges[0].commit, wanted=True)
    assert (applied.is_applied, applied.branch, b"+one" in applied.patch) == (False, None, True)
    assert "does not exist" in applied.detail


async def test_what_was_too_large_to_keep_is_missing_and_what_is_there_stays(repo, user, keeping, trees, at, tmp_path):
    dirty(user)
    recorded = await session_of(keeping(limit=100), at, ())
    assert recorded.snapshot is None
    folder = tmp_path / "work" / "s-1" / "integration.git"
    (folder / "mark").touch()
    unknown = replace(recorded, base="1" * 40)
    for there in (True, False):
        with pytest.raises(WorkspaceError, match=r"RESTORE_FAILED: .* has no commit .* workspace.save_bytes"):
            await trees.restore_integration(unknown if there else recorded, repository=user.root)
        assert (folder / "mark").exists() == there
        assert not folder.with_name("restoring.git").exists()
        shutil.rmtree(folder, ignore_errors=True)


async def test_what_makes_other_commits_than_the_log_names_is_not_taken(repo, user, keeping, trees, at):
    recorded = await session_of(keeping(), at, ("one", "two"))
    first, second = recorded.merges
    wrong = {
        "conflicts now": [
            first,
            replace(second, patch=first.patch.replace(b"by one", b"by two").replace(b"/one", b"/x")),
        ],
        "another version of git": [replace(first, message="other"), second],
        "git apply": [replace(first, patch=b"nonsense"), second],
    }
    for text, merges in wrong.items():
        with pytest.raises(WorkspaceError, match=text):
            await trees.restore_integration(replace(recorded, merges=merges), repository=user.root)


async def test_a_checkout_that_is_not_at_this_machine(repo, user, keeping, trees, at, tmp_path):
    recorded = await session_of(keeping(), at, ())
    user.root.rename(tmp_path / "away")
    with pytest.raises(WorkspaceError, match=r"RESTORE_FAILED: the session began from .* does not exist"):
        await trees.restore_integration(recorded, repository=Path(user.root))
