"""A change of owner does not make git read a tree again; a change of content does."""

import hashlib
import os
import struct
import subprocess
import time

import pytest

from tests.workspaces.box.conftest import Ground
from xnagent.workspaces.box.pins import give
from xnagent.workspaces.stamps import true_stamps

SECOND = 10**9
OTHER = 60_720


class Stood:
    """A repository whose index is older than nothing in it, beside the tree and in it."""

    def __init__(self, folder, kind):
        self.root, self.index = folder / "tree", folder / "index"
        self.root.mkdir()
        self.git("init", "-q", "--template=", f"--object-format={kind}")
        for name in ("a", "d/b", "é\ttab", "x" * 200, "exe"):
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(f"content of {name}\n")
        (self.root / "exe").chmod(0o755)
        (self.root / "link").symlink_to("a")
        self.git("add", "-A")
        inner = self.root / ".git" / "index"
        self.index.write_bytes(inner.read_bytes())
        later = time.time_ns() + 3 * SECOND
        for path in (self.index, inner):
            os.utime(path, ns=(later, later))

    def git(self, *arguments, index=None):
        environ = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        environ |= {"GIT_INDEX_FILE": str(index)} if index else {}
        line = ["git", "-c", "safe.directory=*", "-c", "core.quotePath=false", *arguments]
        return subprocess.run(line, cwd=self.root, env=environ, check=True, capture_output=True, text=True).stdout

    def unsure(self):
        """What git would have to read, by either index."""
        return [sorted(self.git("diff-files", "--name-only", "-z", index=one).split("\0")[:-1]) for one in self.indexes]

    @property
    def indexes(self):
        return (self.index, self.root / ".git" / "index")

    def touched(self):
        """As a change of owner does: another time of change, the same content."""
        for path in self.root.rglob("*"):
            if ".git" not in path.parts:
                os.chown(path, -1, os.getegid(), follow_symlinks=False)
                status = path.lstat()
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Made together, more than a second ago: git may know no shorter time."""
    made = {kind: [Stood(tmp_path_factory.mktemp(kind), kind) for _ in range(9)] for kind in ("sha1", "sha256")}
    time.sleep(1.1)
    return made


@pytest.fixture(params=["sha1", "sha256"])
def stood(request, pool):
    return pool[request.param].pop()


def test_files_that_were_as_stamped_are_so_afterwards(stood):
    assert stood.unsure() == [[], []]
    with true_stamps(stood.root):
        stood.touched()
        assert stood.unsure()[0] == ["a", "d/b", "exe", "link", "x" * 200, "é\ttab"]
    assert stood.unsure() == [[], []]
    assert stood.git("ls-files", "-s", index=stood.index) == stood.git("ls-files", "-s")
    stood.git("fsck", "--strict")


def test_what_differed_before_or_changes_meanwhile_is_found(stood):
    (stood.root / "a").write_text("CONTENT of a\n")
    with true_stamps(stood.root):
        stood.touched()
        (stood.root / "exe").write_text("CONTENT of exe\n")
        (stood.root / "d" / "b").unlink()
    assert stood.unsure() == [["a", "d/b", "exe"]] * 2
    (stood.root / "link").unlink()
    assert stood.unsure() == [["a", "d/b", "exe", "link"]] * 2


def test_a_file_as_young_as_its_index_is_still_read(stood):
    before = [path.stat().st_mtime_ns for path in stood.indexes]
    with true_stamps(stood.root):
        stood.touched()
    assert [path.stat().st_mtime_ns for path in stood.indexes] == before


@pytest.mark.parametrize("content", [b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\7" + bytes(50), b"x" * 100])
def test_what_is_no_index_stays_as_it_is(stood, content):
    for path in stood.indexes:
        path.write_bytes(content)
    with true_stamps(stood.root):
        stood.touched()
    assert [path.read_bytes() for path in stood.indexes] == [content] * 2


def test_an_index_that_is_a_link_is_left_alone(stood, tmp_path):
    inner, elsewhere = stood.root / ".git" / "index", tmp_path / "elsewhere"
    inner.rename(elsewhere)
    inner.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    with true_stamps(stood.root):
        stood.touched()
    assert elsewhere.read_bytes() == before


def test_a_tree_without_indexes_is_fine(tmp_path):
    root = Ground(tmp_path, "none").tree.root
    with true_stamps(root):
        pass
    assert list(root.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_A6_5_a_tree_that_is_given_to_another_user_need_not_be_read_again(stood):
    give(stood.root, owner=OTHER)
    assert {path.lstat().st_uid for path in (stood.root, *stood.root.rglob("*"))} == {OTHER}
    assert stood.unsure() == [[], []]


@pytest.mark.parametrize("rest", [b"", b"x" * 30, b"x" * 300], ids=["no entry", "half an entry", "no end of a path"])
def test_an_index_that_ends_before_its_entries_do_is_left_as_it_is(tmp_path, rest):
    body = struct.pack(">4sII", b"DIRC", 2, 5) + rest
    index, root = tmp_path / "index", tmp_path / "tree"
    root.mkdir()
    index.write_bytes(body + hashlib.sha1(body, usedforsecurity=False).digest())
    before = index.read_bytes()
    with true_stamps(root):
        pass
    assert index.read_bytes() == before
