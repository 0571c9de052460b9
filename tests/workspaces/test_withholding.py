"""Files that hold known secrets stay out of snapshots, patches and saves, and out of what a Worker can read (B075)."""

import base64
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workspaces.conftest import ENVIRON
from xnagent.core.ids import RunId, SessionId
from xnagent.core.masking import Secret, mask_of
from xnagent.workspaces.repositories import Crossing, SessionWorkspaces
from xnagent.workspaces.trees import RunTrees
from xnagent.workspaces.withholding import CHUNK_BYTES, Held

KEY = "sk-test/Zq8+xTr3VbN1mK9pLwQ2yHdU7sEoA5cGf"
MASK = mask_of([Secret(name="A_KEY", value=KEY), Secret(name="B_KEY", value="hunter2-hunter2")])
R1 = RunId("r1")
LIMIT = 8 * 1024 * 1024


@pytest.fixture
def work(tmp_path):
    return tmp_path / "work"


@pytest.fixture
def guarded(user, work):
    environ = {**ENVIRON, "HOME": str(user.home)}
    return SessionWorkspaces(
        user.root, work, session=SessionId("s-1"), environ=environ, crossing=Crossing(keep_bytes=64 * LIMIT, mask=MASK)
    )


def objects(folder):
    """All that a command that reads git's objects can find there."""
    line = ["git", "--git-dir", str(folder / "integration.git"), "cat-file", "--batch-all-objects", "--batch"]
    done = subprocess.run(line, env={"PATH": ENVIRON["PATH"]}, capture_output=True, check=True)
    return done.stdout


async def test_B075_an_untracked_secret_file_is_not_in_the_snapshot_nor_anywhere_a_worker_can_read(
    repo, guarded, work, at, prints
):
    repo.put(".env", f"KEY={KEY}\n")
    repo.put("notes.txt", "nothing\n")
    before = prints(repo.root)
    base = await guarded.begin(at=at)
    assert await guarded.read(base.commit, ".env") is None
    assert await guarded.read(base.commit, "notes.txt") == b"nothing\n"
    assert KEY.encode() not in base.snapshot.patch
    assert KEY.encode() not in objects(work)
    told = "not in the repositories that runs and checks work in: .env holds [secret:A_KEY]"
    assert (base.withheld, base.notes) == ((told,), (told,))
    assert not (await guarded.open_run(R1, base.commit)).root.joinpath(".env").exists()
    assert prints(repo.root) == before


@pytest.mark.parametrize("is_staged", [False, True], ids=["in the tree", "staged"])
async def test_B075_a_secret_in_uncommitted_work_leaves_the_file_as_it_was_committed(repo, guarded, at, is_staged):
    repo.put("a.txt", f"a1\n{KEY}\n")
    repo.put("new.txt", KEY)
    repo.put("b.txt", "b2\n")
    if is_staged:
        repo.git("add", "-A")
    base = await guarded.begin(at=at)
    assert await guarded.read(base.commit, "a.txt") == b"a1\na2\na3\n"
    assert await guarded.read(base.commit, "b.txt") == b"b2\n"
    assert KEY.encode() not in base.snapshot.patch
    assert base.withheld[0].endswith("a.txt holds [secret:A_KEY]; new.txt holds [secret:A_KEY]")


async def test_a_secret_that_is_staged_alone_is_not_in_the_snapshot(repo, guarded, at):
    repo.put("a.txt", KEY)
    repo.git("add", "-A")
    repo.put("a.txt", "a1\na2\na3\n")
    base = await guarded.begin(at=at)
    assert (base.commit, base.withheld) == (repo.git("rev-parse", "HEAD"), ())


async def test_a_staged_secret_is_found_behind_more_staged_content_than_is_read_at_once(repo, guarded, at):
    for name in ("a", "b"):
        repo.put(f"{name}.bin", f"\0{name}" * 5_000_000)
    repo.put("zz.txt", KEY)
    repo.git("add", "-A")
    base = await guarded.begin(at=at)
    assert await guarded.read(base.commit, "zz.txt") is None
    assert KEY.encode() not in base.snapshot.patch
    assert base.withheld[0].endswith("zz.txt holds [secret:A_KEY]")


async def test_a_plain_folder_with_a_secret_file_begins_without_it(user, guarded, work, at):
    user.put("a.txt", "a\n")
    user.put("d/key", base64.b64encode(b"x" + KEY.encode()))
    base = await guarded.begin(at=at)
    assert base.is_shadow
    assert await guarded.read(base.commit, "a.txt") == b"a\n"
    assert base.withheld[0].endswith("d/key holds [secret:A_KEY]")
    assert b"d/key" not in objects(work)


async def test_B075_a_run_that_writes_a_secret_is_refused_and_its_patch_does_not_hold_it(repo, guarded, work, at):
    base = (await guarded.begin(at=at)).commit
    tree = await guarded.open_run(R1, base)
    (tree.root / "a.txt").write_text("changed\n")
    (tree.root / "out.txt").write_bytes(b"\0" + KEY.encode().hex().encode())
    (tree.root / "link").unlink()
    (tree.root / "link").symlink_to("hunter2-hunter2")
    taken = await guarded.take(R1, base)
    assert taken.changed_files == ("a.txt",)
    assert [one.partition(";")[0] for one in taken.problems] == [
        "SECRET: link holds [secret:B_KEY]",
        "SECRET: out.txt holds [secret:A_KEY]",
    ]
    assert b"out.txt" not in taken.patch
    assert KEY.encode().hex().encode() not in objects(work)


async def test_what_a_commit_held_already_may_be_changed_moved_and_removed(repo, guarded, at):
    repo.put("config", f"key={KEY}\nport=1\n")
    repo.put("old", f"{KEY}\n")
    repo.commit()
    base = (await guarded.begin(at=at)).commit
    tree = await guarded.open_run(R1, base)
    (tree.root / "config").write_text(f"key={KEY}\nport=2\n")
    (tree.root / "old").rename(tree.root / "moved")
    taken = await guarded.take(R1, base)
    assert (taken.changed_files, taken.problems) == (("config", "moved", "old"), ())
    (tree.root / "config").write_text("port=2\n")
    assert (await guarded.take(R1, base)).problems == ()


async def test_a_secret_from_a_file_that_the_run_leaves_as_it_is_may_not_go_into_another(repo, guarded, at):
    repo.put("config", f"key={KEY}\n")
    repo.commit()
    base = (await guarded.begin(at=at)).commit
    tree = await guarded.open_run(R1, base)
    (tree.root / "copy").write_text(KEY)
    taken = await guarded.take(R1, base)
    assert [one.partition(";")[0] for one in taken.problems] == ["SECRET: copy holds [secret:A_KEY]"]


async def test_a_saved_tree_has_all_but_the_secret_file_and_applies(repo, guarded, work, at):
    base = (await guarded.begin(at=at)).commit
    tree = await guarded.open_run(R1, base)
    trees = RunTrees(work, environ=ENVIRON, limit_bytes=LIMIT, mask=MASK)
    (tree.root / "a.txt").write_text("changed\n")
    (tree.root / ".env").write_text(KEY)
    saved = await trees.save(R1, base, since=None)
    assert KEY.encode() not in saved.patch
    assert await trees.rebuild(R1, base, patches=[saved.patch]) == saved.commit
    assert await guarded.read(saved.commit, "a.txt") == b"changed\n"


async def test_without_known_secrets_nothing_is_withheld(repo, session, at):
    repo.put(".env", f"KEY={KEY}\n")
    base = await session.begin(at=at)
    assert base.withheld == ()
    assert await session.read(base.commit, ".env") == f"KEY={KEY}\n".encode()


async def test_a_secret_is_found_at_the_end_of_a_long_file(repo, guarded, at):
    repo.put("long", b"x" * (CHUNK_BYTES - 20) + KEY.encode() + b"y" * 10)
    base = await guarded.begin(at=at)
    assert base.withheld[0].endswith("long holds [secret:A_KEY]")


@given(
    before=st.binary(max_size=50), after=st.binary(max_size=50), way=st.sampled_from(["raw", "hex", "base64", "wrap"])
)
def test_a_whole_value_is_held_wherever_it_stands_and_a_piece_is_not(before, after, way):
    raw = KEY.encode()
    forms = {
        "raw": raw,
        "hex": raw.hex().encode(),
        "base64": base64.b64encode(raw),
        "wrap": b"\n".join((raw[:9], raw[9:])),
    }
    assert MASK.held(before + forms[way] + after) == {"[secret:A_KEY]"}
    assert MASK.held(raw[: len(raw) // 2]) == frozenset()
    assert MASK.held(before) == frozenset()


def test_two_secrets_in_one_file_are_both_told():
    assert Held(path="a", secrets=("[secret:A]", "[secret:B]")).told == "a holds [secret:A] and [secret:B]"
