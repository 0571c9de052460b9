"""A tree made in advance: whoever takes it finds what a fresh one has."""

import os
import stat
import subprocess
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from tests.workspaces.conftest import ENVIRON
from xnagent.core.ids import SessionId
from xnagent.errors import WorkspaceError
from xnagent.workspaces.repositories import SessionWorkspaces
from xnagent.workspaces.spares import Spare

OWNER = 60_721


@pytest.fixture
def spare(tmp_path):
    return Spare(tmp_path / "spared", environ=ENVIRON, least_files=1)


@pytest.fixture
def spared(repo, tmp_path, spare):
    return SessionWorkspaces(repo.root, tmp_path / "spared", session=SessionId("s-2"), environ=ENVIRON, spare=spare)


@asynccontextmanager
async def kept(spare, **options):
    """While somebody keeps it, and there is one."""
    async with anyio.create_task_group() as group:

        async def keep():
            await spare.keep(**options)

        group.start_soon(keep)
        await ready(spare)
        yield
        group.cancel_scope.cancel()


async def ready(spare):
    await until(lambda: spare.base is not None)


async def until(condition):
    with anyio.fail_after(30):
        while not condition():
            await anyio.lowlevel.checkpoint()


def everything(root):
    """Names, modes, owners and contents of a tree and its repository; of the index only that it is there."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode) and path != root / ".git" / "index":
            content = path.read_bytes()
        found[str(path.relative_to(root))] = (oct(status.st_mode), status.st_uid, without_times(path, content))
    return found


def without_times(path, content):
    return content.rpartition(b">")[0] if "logs" in path.parts else content


def mark(folder):
    (folder / "spare" / "scratch" / "mark").touch()


def spared_folder(tmp_path):
    return tmp_path / "spared"


def changed_files(root, index):
    """By what an index says of them, without looking into them."""
    environ = {"PATH": os.environ["PATH"], "GIT_INDEX_FILE": str(index)}
    line = ["git", "-c", "safe.directory=*", "diff-files"]
    return subprocess.run(line, cwd=root, env=environ, capture_output=True, check=True).stdout


def nothing(_user):
    pass


def files(user):
    user.write(a_txt="other\n", d__new__x_txt="new\n")
    (user.root / "run.sh").chmod(0o644)
    (user.root / "b.txt").unlink()


def kinds(user):
    (user.root / "link").unlink()
    (user.root / "d" / "c.txt").unlink()
    (user.root / "d").rmdir()
    (user.root / "d").symlink_to("a.txt")
    user.put("link/file", "a folder now\n")


def attributes(user):
    user.put(".gitattributes", "*.txt text eol=crlf\n")


def submodule(user):
    user.git("init", "-q", "s")
    user.git("commit", "-q", "--allow-empty", "-m", "inner", cwd=user.root / "s")


@pytest.mark.parametrize(
    ("change", "is_taken"), [(nothing, True), (files, True), (kinds, True), (attributes, False), (submodule, False)]
)
async def test_whoever_takes_it_finds_what_a_fresh_tree_has(repo, spared, spare, at, tmp_path, change, is_taken):
    await spared.begin(at=at)
    change(repo)
    commit = repo.commit("second")
    async with kept(spare):
        mark(spared_folder(tmp_path))
        taken = await spared.checkout(commit, "taken")
        assert (taken.scratch / "mark").exists() == is_taken
    fresh = await spared.checkout(commit, "fresh")
    assert everything(taken.root) == everything(fresh.root)
    assert repo.git("diff-files", cwd=taken.root) == ""
    assert repo.git("rev-parse", "HEAD", cwd=taken.root) == commit
    run = await spared.open_run("r1", commit)
    (run.root / "a.txt").write_text("mine\n")
    assert (await spared.take("r1", commit)).changed_files == ("a.txt",)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_as_root_it_belongs_to_the_user_that_commands_run_as(repo, spared, spare, at, tmp_path):
    await spared.begin(at=at)
    files(repo)
    commit = repo.commit("second")
    async with kept(spare, owner=OWNER):
        mark(spared_folder(tmp_path))
        run = await spared.open_run("r1", commit)
        assert (run.scratch / "mark").exists()
        owners = {path.lstat().st_uid for path in (run.root, *run.root.rglob("*"))}
        assert owners == {OWNER}
        for index in (run.root / ".git" / "index", run.root.parent / "index"):
            assert changed_files(run.root, index) == b""


async def test_the_next_is_made_when_nobody_waits_for_a_tree_any_more(spared, spare, at):
    base = (await spared.begin(at=at)).commit
    async with kept(spare):
        trees = []

        async def opened(name):
            trees.append(await spared.open_run(name, base))

        async with anyio.create_task_group() as group:
            for name in ("r1", "r2", "r3"):
                group.start_soon(opened, name)
        assert {str(everything(tree.root)) for tree in trees} == {str(everything(trees[0].root))}
        await ready(spare)


async def test_nothing_is_left_of_it_also_if_it_was_half_made(spared, spare, at, tmp_path):
    await spared.begin(at=at)
    folder = spared_folder(tmp_path)
    async with kept(spare):
        assert (folder / "spare").is_dir()
    assert not list(folder.glob("*spare"))
    async with anyio.create_task_group() as group:
        group.start_soon(spare.keep)
        await until((folder / ".making-spare").is_dir)
        group.cancel_scope.cancel()
    assert not list(folder.glob("*spare"))
    (folder / "spare").mkdir()
    await spared.reset(await spared_head(spared, at))
    assert not (folder / "spare").exists()


async def spared_head(session, at):
    return (await session.begin(at=at)).commit


async def test_a_small_repository_has_none(repo, spared, at, tmp_path):
    base = (await spared.begin(at=at)).commit
    with anyio.fail_after(30):
        await Spare(spared_folder(tmp_path), environ=ENVIRON, least_files=100).keep()
    assert (await spared.open_run("r1", base)).root.is_dir()
    assert not (tmp_path / "spared" / "spare").exists()


async def test_a_fault_in_advance_is_met_by_whoever_wants_a_tree(spared, spare, at, tmp_path):
    base = (await spared.begin(at=at)).commit
    (tmp_path / "spared" / "integration.git").rename(tmp_path / "gone")
    with anyio.fail_after(30):
        await spare.keep()
    with pytest.raises(WorkspaceError):
        await spared.open_run("r1", base)
