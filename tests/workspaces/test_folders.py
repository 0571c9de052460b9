"""Folders are removed whatever a worker made of them."""

import subprocess

from xnagent.workspaces.folders import remove


def test_a_tree_deeper_than_the_stack_is_removed(tmp_path):
    subprocess.run(["mkdir", "-p", str(tmp_path / "tree") + "/d" * 1_500], check=True)
    remove(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_write_protected_folders_are_removed(tmp_path):
    (tmp_path / "tree" / "in").mkdir(parents=True)
    (tmp_path / "tree" / "in" / "f").write_text("x")
    (tmp_path / "tree" / "in").chmod(0o500)
    remove(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []
