"""Trees of runs as patches: saved step by step, and the same again where the folder is gone."""

import shutil
import tempfile
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from xnagent.core.ids import RunId
from xnagent.core.trees import TreeLog
from xnagent.errors import WorkspaceError
from xnagent.workspaces.repositories import Crossing, SessionWorkspaces
from xnagent.workspaces.trees import RunTrees

R1 = RunId("r1")
LIMIT = 8 * 1024 * 1024
ENVIRON = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
NAMES = ("a", "b c", "d/e", "d", "é\ttab", "x/y/z", '"q"\\', ".gitattributes")
contents = st.one_of(
    st.none(),
    st.sampled_from(
        [
            b"",
            b"one\n",
            b"no end",
            b"cr\r\nlf\r\n\rx",
            bytes(range(256)),
            b"* diff=x -delta\n",
            b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n",
        ]
    ),
    st.binary(max_size=40),
    st.integers(1, 400).map(lambda count: b"".join(b"line %d\n" % n for n in range(count) if n % 7)),
    st.sampled_from(["link", "mode"]),
)
steps = st.lists(st.dictionaries(st.sampled_from(NAMES), contents, max_size=4), min_size=1, max_size=4)


def put(root: Path, files) -> None:
    """Make each path what is wanted, whatever stands there or above it."""
    for name, content in files.items():
        full = root / name
        for above in reversed(full.relative_to(root).parents[:-1]):
            if (root / above).is_symlink() or (root / above).is_file():
                (root / above).unlink()
        if full.is_dir() and not full.is_symlink():
            shutil.rmtree(full)
        if content == "mode":
            if full.is_file() and not full.is_symlink():
                full.chmod(0o755)
            continue
        full.unlink(missing_ok=True)
        if content is not None:
            full.parent.mkdir(parents=True, exist_ok=True)
            full.symlink_to("a") if content == "link" else full.write_bytes(content)


def seen(root: Path):
    """Path, kind or executable bit, and content."""
    return {
        path.relative_to(root).as_posix(): ("link", path.readlink().as_posix())
        if path.is_symlink()
        else (path.stat().st_mode & 0o100, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if (path.is_symlink() or path.is_file()) and ".git" not in path.relative_to(root).parts
    }


@given(begin=st.dictionaries(st.sampled_from(NAMES), contents), changes=steps)
@settings(max_examples=5, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
def test_b002_what_is_saved_step_by_step_is_the_same_again(begin, changes):
    with tempfile.TemporaryDirectory() as name:
        anyio.run(scenario, Path(name).resolve(), begin, changes)


async def scenario(place, begin, changes):
    """The folder is deleted after the last save, and once more with all of the session's own."""
    user = place / "user"
    user.mkdir()
    put(user, begin)
    session = SessionWorkspaces(
        user, place / "work", session="s-1", environ=ENVIRON, crossing=Crossing(keep_bytes=LIMIT)
    )
    trees = RunTrees(place / "work", environ=ENVIRON, limit_bytes=LIMIT)
    base = (await session.begin(at="2026-11-30T12:00:00Z")).commit
    tree = await session.open_run(R1, base)
    since, patches = None, []
    for files in changes:
        put(tree.root, files)
        saved = await trees.save(R1, base, since=since)
        assert saved.since == (since or base)
        patches += [saved.patch] if saved.patch else []
        since = saved.commit
    wanted, taken = seen(tree.root), await session.take(R1, base)
    assert taken.commit == since
    shutil.rmtree(place / "work" / "runs")
    assert not await trees.holds(R1, base, tree=TreeLog())
    assert await trees.rebuild(R1, base, patches=patches) == since
    again = await trees.restore(R1, base, commit=since, spools=["c1"])
    assert seen(again.root) == wanted
    assert (again.scratch / "c1.run").read_bytes() == b""
    assert await trees.holds(R1, base, tree=TreeLog(times_restored=1, commit=saved.commit))
    assert not await trees.holds(R1, base, tree=TreeLog()), "it is not the first any more"
    assert not await trees.holds(R1, base, tree=TreeLog(times_restored=2)), "another place went on with it"
    elsewhere = TreeLog(times_restored=1, commit="0" * len(base))
    assert not await trees.holds(R1, base, tree=elsewhere), "another place saved it"
    assert (await trees.save(R1, base, since=since)).patch == b""
    assert (await session.take(R1, base)).commit == since


@pytest.fixture
async def base(repo, session, at):
    return (await session.begin(at=at)).commit


@pytest.fixture
def trees(tmp_path):
    return RunTrees(tmp_path / "work" / "s-1", environ=ENVIRON, limit_bytes=LIMIT)


async def test_a_save_is_as_large_as_what_changed_since_the_last(session, base, trees):
    tree = await session.open_run(R1, base)
    (tree.root / "large.txt").write_text("".join(f"{n}\n" for n in range(50_000)))
    first = await trees.save(R1, base, since=None)
    (tree.root / "small.txt").write_text("small\n")
    second = await trees.save(R1, base, since=first.commit)
    third = await trees.save(R1, base, since=second.commit)
    assert len(first.patch) > 200_000
    assert len(second.patch) < 500
    assert (third.commit, third.patch) == (second.commit, b"")


async def test_a_save_that_is_not_known_any_more_is_made_against_the_base(session, base, trees):
    tree = await session.open_run(R1, base)
    (tree.root / "new.txt").write_text("new\n")
    saved = await trees.save(R1, base, since="1" * 40)
    assert (saved.since, b"new.txt" in saved.patch) == (base, True)


async def test_what_is_ignored_nested_or_larger_than_the_limit_is_not_saved(session, base, trees, tmp_path, user):
    tree = await session.open_run(R1, base)
    (tree.root / "x.log").write_text("ignored")
    (tree.root / "inner").mkdir()
    user.git("init", "-q", cwd=tree.root / "inner")
    (tree.root / "inner" / "f").write_text("f")
    assert (await trees.save(R1, base, since=None)).patch == b""
    (tree.root / "large.bin").write_text("".join(f"{n}\n" for n in range(5_000)))
    small = RunTrees(tmp_path / "work" / "s-1", environ=ENVIRON, limit_bytes=1_000)
    with pytest.raises(WorkspaceError, match="larger than 1000 bytes"):
        await small.save(R1, base, since=None)


async def test_b073_a_save_runs_nothing_that_the_tree_configures(session, base, trees, tmp_path, user):
    tree = await session.open_run(R1, base)
    mark = tmp_path / "ran"
    user.git("config", "core.fsmonitor", f"touch {mark}", cwd=tree.root)
    user.git("config", "filter.x.clean", f"touch {mark}; cat", cwd=tree.root)
    (tree.root / ".gitattributes").write_text("* filter=x diff=x\n")
    (tree.root / "a.txt").write_text("changed\n")
    saved = await trees.save(R1, base, since=None)
    assert b"+changed" in saved.patch
    again = await trees.restore(R1, base, commit=saved.commit, spools=[])
    assert (again.root / "a.txt").read_text() == "changed\n"
    assert not mark.exists()


async def test_a_crash_in_a_save_does_not_stop_the_next_one(session, base, trees, tmp_path):
    tree = await session.open_run(R1, base)
    (tree.root / "a.txt").write_text("1\n")
    await trees.save(R1, base, since=None)
    (tmp_path / "work" / "s-1" / "runs" / "r1" / "saving-index.lock").touch()
    (tree.root / "a.txt").write_text("2\n")
    assert b"+2" in (await trees.save(R1, base, since=None)).patch


async def test_a_tree_that_is_gone_or_a_link_is_not_saved(session, base, trees, tmp_path):
    tree = await session.open_run(R1, base)
    tree.root.rename(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError, match="is gone"):
        await trees.save(R1, base, since=None)
    tree.root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError, match="is gone"):
        await trees.save(R1, base, since=None)


async def test_patches_that_do_not_fit_are_an_error(session, base, trees):
    await session.open_run(R1, base)
    with pytest.raises(WorkspaceError):
        await trees.rebuild(R1, base, patches=[b"no patch at all\n"])
