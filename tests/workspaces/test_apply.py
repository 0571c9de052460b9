"""The result comes to the user: as a branch, and as files where that loses nothing."""

import os
import shutil
import subprocess

import pytest

from xnagent.workspaces import landing
from xnagent.workspaces.changes import Change, Entry
from xnagent.workspaces.placing import Placement, prepare


@pytest.fixture
async def base(repo, session, at):
    repo.put("dirty.txt", "uncommitted\n")
    return (await session.begin(at=at)).commit


@pytest.fixture
def result(session, base):
    """A result in which these files are written (None: removed), on top of the base or of another result."""

    async def make(edits, run="r1", onto=None):
        head = onto or base
        workspace = await session.open_run(run, head)
        for path, content in edits.items():
            full = workspace.root / path
            if content is None:
                full.unlink()
                continue
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text(content)
        taken = await session.take(run, head)
        merged = await session.merge(head=head, base=head, commit=taken.commit, message=run)
        await session.advance(merged.commit)
        return merged.commit

    return make


def git_state(repo):
    """All that must stay as it was: index, HEAD, configuration, stash, hooks."""
    folder = repo.root / ".git"
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not {"objects", "xnagent"} & set(path.parts)
    }


async def test_a_result_that_disturbs_nothing_is_applied(repo, session, base, result):
    (repo.root / "b.txt").chmod(0o640)
    head = await result(
        {"a.txt": "A\n", "b.txt": "B\n", "new/deep/n.txt": "n\n", "d/c.txt": None, "run.sh": "#!/bin/sh\n:\n"}
    )
    repo.put("mine.txt", "made meanwhile")
    before = git_state(repo)
    applied = await session.apply(base=base, head=head, wanted=True)
    assert applied.is_applied
    assert applied.detail == ""
    assert applied.branch == "xnagent/s-1"
    assert applied.changed_files == ("a.txt", "b.txt", "d/c.txt", "new/deep/n.txt", "run.sh")
    assert applied.patch.startswith(b"diff --git a/a.txt b/a.txt\n")
    assert (repo.root / "a.txt").read_text() == "A\n"
    assert (repo.root / "new/deep/n.txt").read_text() == "n\n"
    assert not (repo.root / "d").exists()
    assert os.access(repo.root / "run.sh", os.X_OK)
    assert (repo.root / "b.txt").stat().st_mode & 0o777 == 0o640
    assert (repo.root / "dirty.txt").read_text() == "uncommitted\n"
    assert git_state(repo) == before
    assert repo.git("rev-parse", "xnagent/s-1") == head
    assert repo.git("show", "xnagent/s-1:new/deep/n.txt") == "n"
    assert repo.git("fsck", "--no-dangling") == ""
    assert not list(repo.root.rglob(".xnagent-*"))


async def test_the_branch_stands_without_the_session(repo, session, base, result, tmp_path):
    head = await result({"a.txt": "A\n"})
    await session.apply(base=base, head=head, wanted=False)
    shutil.rmtree(tmp_path / "work")
    assert repo.git("show", "xnagent/s-1:a.txt") == "A"
    assert repo.git("show", "xnagent/s-1:dirty.txt") == "uncommitted"
    assert repo.git("fsck", "--no-dangling") == ""


async def test_only_the_branch_if_the_files_are_not_wanted(repo, session, base, result):
    head = await result({"a.txt": "A\n"})
    applied = await session.apply(base=base, head=head, wanted=False)
    assert (applied.is_applied, applied.branch, applied.detail) == (False, "xnagent/s-1", "")
    assert applied.changed_files == ("a.txt",)
    assert (repo.root / "a.txt").read_text() == "a1\na2\na3\n"


async def test_nothing_changed(repo, session, base, result):
    for head in (base, await result({})):
        applied = await session.apply(base=base, head=head, wanted=True)
        assert (applied.is_applied, applied.branch, applied.changed_files, applied.patch) == (False, None, (), b"")
    assert repo.git("branch", "--list", "xnagent/*") == ""


def edit(root):
    (root / "a.txt").write_text("user's\n")


def remove(root):
    (root / "a.txt").unlink()


def to_folder(root):
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()


def to_link(root):
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to("b.txt")


def make_executable(root):
    (root / "a.txt").chmod(0o755)


def untracked(root):
    (root / "new.txt").write_text("user's\n")


def ignored(root):
    (root / "build").mkdir()
    (root / "build/x").write_text("user's\n")


def folder_in_the_way(root):
    (root / "new.txt").mkdir()
    (root / "new.txt/content").write_text("user's")


def file_in_the_way(root):
    (root / "build").write_text("user's")


def link_in_the_way(root):
    (root.parent / "outside").mkdir()
    (root / "build").symlink_to(root.parent / "outside")


def fifo_in_the_way(root):
    os.mkfifo(root / "new.txt")


@pytest.mark.parametrize(
    ("disturb", "named"),
    [
        (edit, "a.txt"),
        (remove, "a.txt"),
        (to_folder, "a.txt"),
        (to_link, "a.txt"),
        (make_executable, "a.txt"),
        (untracked, "new.txt"),
        (ignored, "build/x"),
        (folder_in_the_way, "new.txt"),
        (file_in_the_way, "build/x"),
        (link_in_the_way, "build/x"),
        (fifo_in_the_way, "new.txt"),
    ],
)
async def test_what_the_user_changed_meanwhile_is_kept(repo, session, base, result, prints, disturb, named):
    repo.put(".gitignore", "*.log\n")
    base = (await session.begin(at="2026-11-30T12:00:00.000Z")).commit
    repo.put(".gitignore", "*.log\nbuild/\nbuild\n")
    head = await result({"a.txt": "A\n", "b.txt": "B\n", "new.txt": "n\n", "build/x": "x\n"}, onto=base)
    disturb(repo.root)
    before = {name: value for name, value in prints(repo.root).items() if not name.startswith(".git/")}
    applied = await session.apply(base=base, head=head, wanted=True)
    assert not applied.is_applied
    assert named in applied.detail
    assert "git merge xnagent/s-1" in applied.detail
    assert {name: value for name, value in prints(repo.root).items() if not name.startswith(".git/")} == before


async def test_at_most_ten_paths_are_named(repo, session, base, result):
    names = [f"n{number:02}.txt" for number in range(15)]
    head = await result(dict.fromkeys(names, "x"))
    for name in names:
        repo.put(name, "user's")
    detail = (await session.apply(base=base, head=head, wanted=True)).detail
    assert "n09.txt and 5 more" in detail
    assert "n10.txt" not in detail


async def test_edits_elsewhere_do_not_stand_in_the_way(repo, session, base, result):
    head = await result({"a.txt": "A\n"})
    repo.put("b.txt", "user's\n")
    repo.git("add", "b.txt")
    assert (await session.apply(base=base, head=head, wanted=True)).is_applied
    assert (repo.root / "b.txt").read_text() == "user's\n"


async def test_the_user_made_the_same_change(repo, session, base, result):
    head = await result({"a.txt": "A\n", "d/c.txt": None, "b.txt": "B\n"})
    repo.put("a.txt", "A\n")
    shutil.rmtree(repo.root / "d")
    assert (await session.apply(base=base, head=head, wanted=True)).is_applied
    assert (repo.root / "b.txt").read_text() == "B\n"


async def test_applying_again_after_a_crash_in_the_middle_goes_on(repo, session, base, result, open_session):
    head = await result({"a.txt": "A\n", "b.txt": "B\n", "n.txt": "n\n", "d/c.txt": None})
    repo.put("a.txt", "A\n")
    (repo.root / "d/c.txt").unlink()
    (repo.root / ".xnagent-0123").write_text("left by nobody")
    for session_again in (open_session(), open_session()):
        applied = await session_again.apply(base=base, head=head, wanted=True)
        assert applied.is_applied
        assert applied.branch == "xnagent/s-1"
    assert (repo.root / "n.txt").read_text() == "n\n"
    assert (repo.root / "b.txt").read_text() == "B\n"


async def test_files_and_folders_change_places(repo, session, base, result):
    workspace = await session.open_run("r1", base)
    (workspace.root / "a.txt").unlink()
    (workspace.root / "a.txt").mkdir()
    (workspace.root / "a.txt/in").write_text("in")
    shutil.rmtree(workspace.root / "d")
    (workspace.root / "d").write_text("file")
    (workspace.root / "link").unlink()
    (workspace.root / "link").symlink_to("b.txt")
    head = (await session.take("r1", base)).commit
    applied = await session.apply(base=base, head=head, wanted=True)
    assert applied.is_applied, applied.detail
    assert (repo.root / "a.txt/in").read_text() == "in"
    assert (repo.root / "d").read_text() == "file"
    assert (repo.root / "link").readlink().as_posix() == "b.txt"


async def test_line_ends_are_the_users(repo, session, at):
    repo.git("config", "core.autocrlf", "true")
    for name in ("a.txt", "b.txt"):
        (repo.root / name).write_bytes((repo.root / name).read_bytes().replace(b"\n", b"\r\n"))
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    (run.root / "b.txt").write_bytes(b"b\r\nmore\r\n")
    head = (await session.take("r1", base)).commit
    assert (await session.apply(base=base, head=head, wanted=True)).is_applied
    assert (repo.root / "b.txt").read_bytes() == b"b\r\nmore\r\n"


async def test_a_folder_without_git_is_written_and_has_no_branch(user, session, at):
    user.write(a_txt="a\n", b_txt="b\n")
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    (run.root / "a.txt").write_text("A\n")
    head = (await session.take("r1", base)).commit
    user.put("a.txt", "user's\n")
    refused = await session.apply(base=base, head=head, wanted=True)
    assert (refused.is_applied, refused.branch) == (False, None)
    assert "a.txt" in refused.detail
    user.put("a.txt", "a\n")
    applied = await session.apply(base=base, head=head, wanted=True)
    assert (applied.is_applied, applied.branch) == (True, None)
    assert sorted(path.name for path in user.root.iterdir()) == ["a.txt", "b.txt"]


async def test_the_users_folder_is_gone_but_the_patch_is_not(user, session, at):
    user.write(a_txt="a\n")
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    (run.root / "a.txt").write_text("A\n")
    head = (await session.take("r1", base)).commit
    shutil.rmtree(user.root)
    applied = await session.apply(base=base, head=head, wanted=True)
    assert (applied.is_applied, applied.branch, applied.changed_files) == (False, None, ("a.txt",))
    assert b"+A" in applied.patch
    assert "does not exist" in applied.detail


async def test_an_edit_that_the_index_hides_is_kept(repo, session, at):
    repo.git("update-index", "--assume-unchanged", "a.txt")
    repo.put("a.txt", "hidden edit\n")
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    (run.root / "a.txt").write_text("A\n")
    head = (await session.take("r1", base)).commit
    assert not (await session.apply(base=base, head=head, wanted=True)).is_applied
    assert (repo.root / "a.txt").read_text() == "hidden edit\n"


async def test_a_result_of_many_files(repo, session, base, result):
    files = {f"many/{number}.txt": f"{number}\n" for number in range(300)}
    head = await result(files)
    applied = await session.apply(base=base, head=head, wanted=True)
    assert applied.is_applied
    assert {f"many/{path.name}": path.read_text() for path in (repo.root / "many").iterdir()} == files
    assert repo.git("fsck", "--no-dangling") == ""


async def test_a_later_result_moves_the_branch(repo, session, base, result):
    one = await result({"a.txt": "A\n"})
    await session.apply(base=base, head=one, wanted=False)
    two = await result({"b.txt": "B\n"}, run="r2", onto=one)
    assert (await session.apply(base=base, head=two, wanted=False)).branch == "xnagent/s-1"
    assert repo.git("rev-parse", "xnagent/s-1") == two


async def test_a_branch_with_the_users_commits_or_checked_out_is_left_alone(repo, session, base, result):
    one = await result({"a.txt": "A\n"})
    await session.apply(base=base, head=one, wanted=False)
    repo.git("worktree", "add", "-q", str(repo.root.parent / "wt"), "xnagent/s-1")
    two = await result({"b.txt": "B\n"}, run="r2", onto=one)
    assert (await session.apply(base=base, head=two, wanted=False)).branch == "xnagent/s-1-2"
    assert repo.git("rev-parse", "xnagent/s-1") == one
    repo.git("commit", "-q", "--allow-empty", "-m", "user's", cwd=repo.root.parent / "wt")
    repo.git("worktree", "remove", "--force", str(repo.root.parent / "wt"))
    kept = repo.git("rev-parse", "xnagent/s-1")
    assert (await session.apply(base=base, head=two, wanted=False)).branch == "xnagent/s-1-2"
    assert repo.git("rev-parse", "xnagent/s-1") == kept


async def test_a_branch_named_xnagent_is_in_the_way(repo, session, base, result):
    repo.git("branch", "xnagent")
    head = await result({"a.txt": "A\n"})
    assert (await session.apply(base=base, head=head, wanted=False)).branch == "xnagent-s-1"


async def test_a_disk_that_is_full_leaves_the_tree_as_it_was(repo, session, base, result, tmp_path):
    """Stands for ENOSPC, EROFS and EACCES: no new file can be made in one of the folders."""
    (repo.root / "d").chmod(0o500)
    head = await result({"a.txt": "A\n", "d/c.txt": "C\n"})
    placement = Placement(
        root=repo.root, staging=tmp_path / "nothing", written=("a.txt", "d/c.txt"), removed=("b.txt",)
    )
    with pytest.raises(OSError, match="No such file"):
        prepare(placement)
    assert not list(repo.root.rglob(".xnagent-*"))
    if os.geteuid() != 0:
        applied = await session.apply(base=base, head=head, wanted=True)
        assert not applied.is_applied
        assert "Permission denied" in applied.detail
        assert (repo.root / "a.txt").read_text() == "a1\na2\na3\n"


@pytest.fixture
def tiny(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tiny", str(folder)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_tree_on_a_full_file_system(tiny, at, open_session):
    (tiny / "a.txt").write_text("a\n")
    (tiny / "fill").write_bytes(b"x" * 20_000)
    session = open_session(tiny)
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    (run.root / "a.txt").write_text("A\n")
    (run.root / "big.txt").write_text("b" * 100_000)
    head = (await session.take("r1", base)).commit
    applied = await session.apply(base=base, head=head, wanted=True)
    assert not applied.is_applied
    assert "No space left" in applied.detail
    assert (tiny / "a.txt").read_text() == "a\n"
    assert sorted(path.name for path in tiny.iterdir()) == ["a.txt", "fill"]


async def test_a_repository_that_cannot_be_written_still_gets_its_files(repo, session, base, result):
    (repo.root / ".git/refs/heads/xnagent").mkdir()
    (repo.root / ".git/refs/heads/xnagent/s-1.lock").touch()
    head = await result({"a.txt": "A\n"})
    applied = await session.apply(base=base, head=head, wanted=True)
    assert applied.is_applied
    assert applied.branch == "xnagent/s-1-2"


def test_a_file_that_changes_between_the_look_and_the_writing_is_kept(repo, tmp_path):
    staging = tmp_path / "staging"
    staging.mkdir()
    (staging / "a.txt").write_text("A")
    looked = landing._signatures(repo.root, ("a.txt",))
    repo.put("a.txt", "user's")
    change = Change(path="a.txt", old=None, new=Entry(mode="100644", content="x"))
    plan = landing._Plan(pending=(change,), overlaps=(), signatures=looked)
    landed = landing._carry_out(plan, landing._placement(plan, repo.root, staging=staging))
    assert (landed.is_applied, landed.overlaps) == (False, ("a.txt",))
    assert (repo.root / "a.txt").read_text() == "user's"
    assert not list(repo.root.glob(".xnagent-*"))
