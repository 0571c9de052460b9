"""A run's repository, what is taken from it, and how it is merged."""

import os
import shutil
import stat
import time

import pytest

from xnagent.core.commits import Conflict, Merged
from xnagent.errors import WorkspaceError


@pytest.fixture
async def base(repo, session, at):
    return (await session.begin(at=at)).commit


async def edited(session, run, base, edits):
    """A run's commit with these files written (or, with None, removed)."""
    workspace = await session.open_run(run, base)
    for path, content in edits.items():
        full = workspace.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            full.unlink()
        else:
            full.write_text(content)
    return await session.take(run, base)


async def test_a_run_works_in_a_repository_of_its_own(repo, session, base, user):
    run = await session.open_run("r1", base)
    assert run.root == run.root.resolve()
    assert (run.root / "a.txt").read_text() == "a1\na2\na3\n"
    assert (run.root / "link").readlink().as_posix() == "a.txt"
    assert os.access(run.root / "run.sh", os.X_OK)
    assert stat.S_IMODE(run.scratch.stat().st_mode) == 0o700
    assert user.git("status", "--porcelain", cwd=run.root) == ""
    assert user.git("branch", "--show-current", cwd=run.root) == "work"
    assert user.git("config", "user.name", cwd=run.root) == "xnagent"
    assert "first" in user.git("log", "--format=%s", cwd=run.root)
    assert not list((run.root / ".git").glob("hooks/*"))


async def test_a_run_that_goes_on_finds_its_tree_as_it_was(session, base, open_session, repo, at):
    run = await session.open_run("r1", base)
    (run.root / "a.txt").write_text("half done")
    again = await open_session().open_run("r1", base)
    assert (again.root / "a.txt").read_text() == "half done"
    repo.put("other.txt", "x")
    moved = (await open_session().begin(at=at)).commit
    fresh = await session.open_run("r1", moved)
    assert (fresh.root / "a.txt").read_text() == "a1\na2\na3\n"
    assert (fresh.root / "other.txt").exists()


async def test_a_half_made_run_is_made_again(session, base, tmp_path):
    run = await session.open_run("r1", base)
    (run.root.parent / "base").unlink()
    (run.root / "a.txt").unlink()
    left = run.root.parent.parent / ".making-r1"
    left.mkdir()
    again = await session.open_run("r1", base)
    assert (again.root / "a.txt").exists()
    assert not left.exists()


async def test_taking_gives_a_patch_that_applies_and_names_all_paths(repo, session, base, user, tmp_path):
    run = await session.open_run("r1", base)
    (run.root / "a.txt").rename(run.root / "renamed.txt")
    (run.root / "bin.dat").write_bytes(bytes(range(256)))
    (run.root / "d/c.txt").unlink()
    (run.root / "run.sh").chmod(0o644)
    (run.root / "y.log").write_text("ignored")
    taken = await session.take("r1", base)
    assert taken.changed_files == ("a.txt", "bin.dat", "d/c.txt", "renamed.txt", "run.sh")
    assert taken.problems == ()
    user.git("apply", "--check", "-", stdin=taken.patch)
    assert await session.read(taken.commit, "bin.dat") == bytes(range(256))
    assert await session.take("r1", base) == taken


async def test_what_the_worker_did_to_its_git_does_not_matter(session, base, user):
    run = await session.open_run("r1", base)
    (run.root / "a.txt").write_text("committed")
    user.git("commit", "-qam", "mine", cwd=run.root)
    user.git("checkout", "-q", "--orphan", "elsewhere", cwd=run.root)
    with_git = await session.take("r1", base)
    shutil.rmtree(run.root / ".git")
    assert with_git.changed_files == ("a.txt",)
    assert await session.take("r1", base) == with_git


async def test_files_and_folders_may_take_each_others_place(session, base):
    run = await session.open_run("r1", base)
    (run.root / "a.txt").unlink()
    (run.root / "a.txt").mkdir()
    (run.root / "a.txt/inside").write_text("x")
    shutil.rmtree(run.root / "d")
    (run.root / "d").write_text("now a file")
    (run.root / "b.txt").unlink()
    os.mkfifo(run.root / "b.txt")
    taken = await session.take("r1", base)
    assert taken.changed_files == ("a.txt", "a.txt/inside", "b.txt", "d", "d/c.txt")
    assert taken.problems == ()


async def test_a_folder_replaced_by_a_link_to_one(session, base):
    run = await session.open_run("r1", base)
    (run.root / "d").rename(run.root / "e")
    (run.root / "d").symlink_to("e")
    taken = await session.take("r1", base)
    assert taken.changed_files == ("d", "d/c.txt", "e/c.txt")
    assert taken.problems == ()


async def test_the_tree_of_a_run_is_gone(session, base):
    run = await session.open_run("r1", base)
    shutil.rmtree(run.root)
    with pytest.raises(WorkspaceError, match="r1 is gone"):
        await session.take("r1", base)


async def test_a_first_merge_moves_the_head(session, base, integration):
    taken = await edited(session, "r1", base, {"a.txt": "x\n"})
    merged = await session.merge(head=base, base=base, commit=taken.commit, message="r1: do it\n\nmore")
    assert isinstance(merged, Merged)
    assert not merged.has_moved
    await session.advance(merged.commit)
    assert integration("rev-parse", "refs/heads/integration") == merged.commit
    assert integration("log", "-1", "--format=%B", merged.commit).strip() == "r1: do it\n\nmore"
    assert await session.merge(head=base, base=base, commit=taken.commit, message="r1: do it\n\nmore") == merged


async def test_B051_two_runs_in_one_file_both_stay(session, base):
    one = await edited(session, "r1", base, {"a.txt": "A1\na2\na3\n", "new.txt": "n"})
    two = await edited(session, "r2", base, {"a.txt": "a1\na2\na3\nlast\n", "b.txt": None})
    first = await session.merge(head=base, base=base, commit=one.commit, message="1")
    second = await session.merge(head=first.commit, base=base, commit=two.commit, message="2")
    assert second.has_moved
    assert await session.read(second.commit, "a.txt") == b"A1\na2\na3\nlast\n"
    assert await session.changed(base, second.commit) == ("a.txt", "b.txt", "new.txt")


async def test_B051_adjacent_lines_are_a_conflict_and_nothing_is_lost(repo, session, at):
    repo.put("cfg.py", "a = 1\nb = 1\n")
    base = (await session.begin(at=at)).commit
    one = await edited(session, "r1", base, {"cfg.py": "a = 2\nb = 1\n"})
    two = await edited(session, "r2", base, {"cfg.py": "a = 1\nb = 2\n"})
    first = await session.merge(head=base, base=base, commit=one.commit, message="1")
    second = await session.merge(head=first.commit, base=base, commit=two.commit, message="2")
    assert isinstance(second, Conflict)
    assert second.paths == ("cfg.py",)
    assert "cfg.py" in second.detail
    assert await session.read(first.commit, "cfg.py") == b"a = 2\nb = 1\n"


async def test_changed_here_deleted_there_is_a_conflict(session, base):
    one = await edited(session, "r1", base, {"a.txt": None})
    two = await edited(session, "r2", base, {"a.txt": "changed\n"})
    first = await session.merge(head=base, base=base, commit=one.commit, message="1")
    second = await session.merge(head=first.commit, base=base, commit=two.commit, message="2")
    assert second.paths == ("a.txt",)


async def test_a_run_that_changed_nothing(session, base):
    await session.open_run("r1", base)
    taken = await session.take("r1", base)
    assert (taken.changed_files, taken.patch, taken.problems) == ((), b"", ())
    merged = await session.merge(head=base, base=base, commit=taken.commit, message="nothing")
    assert await session.changed(base, merged.commit) == ()


async def test_a_checkout_is_fresh_each_time_and_git_works_in_it(session, base, user):
    first = await session.checkout(base, "final")
    (first.root / "junk").write_text("x")
    second = await session.checkout(base, "final")
    assert second.root == first.root
    assert not (second.root / "junk").exists()
    assert user.git("rev-parse", "HEAD", cwd=second.root) == base


async def test_discard_removes_also_what_is_write_protected(session, base):
    run = await session.open_run("r1", base)
    check = await session.checkout(base, "r1")
    (run.root / "d").chmod(0o500)
    (run.root / "locked").mkdir(mode=0)
    await session.discard("r1")
    await session.discard("r1")
    assert not run.root.parent.exists()
    assert not check.root.parent.exists()


async def test_reset_after_a_crash(session, base, open_session, tmp_path, integration):
    taken = await edited(session, "r1", base, {"a.txt": "x"})
    merged = await session.merge(head=base, base=base, commit=taken.commit, message="m")
    await session.advance(merged.commit)
    work = tmp_path / "work/s-1"
    (work / "integration.git/refs/heads/integration.lock").touch()
    (work / "runs/.making-r9/tree").mkdir(parents=True)
    (work / "tmp/old").mkdir()
    again = open_session()
    await again.reset(base)
    assert integration("rev-parse", "refs/heads/integration") == base
    assert sorted(path.name for path in work.rglob("*") if path.name in {".making-r9", "old"}) == []
    assert (await again.take("r1", base)).commit == taken.commit
    with pytest.raises(WorkspaceError, match="update-ref"):
        await again.reset("0" * 39 + "1")


async def test_read_finds_only_what_is_in_the_commit(repo, session, base):
    assert await session.read(base, "d/c.txt") == b"c\n"
    assert await session.read(base, "./d//c.txt") == b"c\n"
    assert await session.read(base, "link") == b"a1\na2\na3\n"
    for path in (
        "",
        "d",
        "nope",
        "../a.txt",
        "d/../a.txt",
        str(repo.root / "a.txt"),
        "a.txt\0",
        "a.txt\nb",
        ".git/config",
    ):
        assert await session.read(base, path) is None


@pytest.mark.parametrize("name", ["HEAD", "--help", "", "a" * 39, "refs/heads/integration"])
async def test_only_whole_commit_ids_reach_git(session, base, name):
    with pytest.raises(WorkspaceError, match="not the id of a commit"):
        await session.read(name, "a.txt")
    with pytest.raises(WorkspaceError):
        await session.merge(head=base, base=base, commit=name, message="m")


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", ".git", "a" * 200])
async def test_names_that_are_no_folders(session, base, name):
    with pytest.raises(WorkspaceError, match="cannot name"):
        await session.open_run(name, base)
    with pytest.raises(WorkspaceError, match="cannot name"):
        await session.discard(name)


async def test_many_files_are_opened_and_taken_quickly(user, session, at):
    user.git("init", "-q")
    for folder in range(40):
        for number in range(100):
            user.put(f"f{folder}/{number}.txt", f"{folder} {number}\n")
    user.commit()
    base = (await session.begin(at=at)).commit
    began = time.monotonic()
    run = await session.open_run("r1", base)
    opened = time.monotonic()
    (run.root / "f1/1.txt").write_text("x")
    assert (await session.take("r1", base)).changed_files == ("f1/1.txt",)
    assert opened - began < 10
    assert time.monotonic() - opened < 10
