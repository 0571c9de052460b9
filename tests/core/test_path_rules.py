"""Path patterns as in .gitignore."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnagent.core.path_rules import is_near, matches, paths_in, problem_of, tidy


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("src/**", "src/a.py", True),
        ("src/**", "src/a/b.py", True),
        ("src/**", "src", False),
        ("src/**", "lib/src/a.py", False),
        ("src", "src/a.py", True),
        ("src/", "lib/src/a.py", True),
        ("/src", "lib/src", False),
        ("./src", "src/x", True),
        ("*.py", "a/b.py", True),
        ("*.py", "b.pyc", False),
        ("src/*.py", "src/a/b.py", False),
        ("**/x", "x", True),
        ("**/x", "a/b/x/y", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        (".env", ".env", True),
        (".env", "a/.env", True),
        (".env*", ".env.local", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab].txt", "a.txt", True),
        ("[!ab].txt", "c.txt", True),
        ("[!ab].txt", "a.txt", False),
        ("[a", "[a", True),
        ("//etc/**", "/etc/passwd", True),
        ("//etc/**", "etc/passwd", False),
        ("~/.ssh/**", "~/.ssh/id", True),
        ("a.b", "axb", False),
        ("a b/c", "a b/c/d", True),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool):
    assert matches(pattern, path) is expected


def test_a_folder_whose_content_is_named_is_near():
    assert is_near("secrets/**", "secrets")
    assert not matches("secrets/**", "secrets")


@pytest.mark.parametrize("pattern", ["", "/", "../x", "a/../b", "!a", "a\nb", " a"])
def test_a_pattern_that_can_match_nothing_has_a_reason(pattern: str):
    assert problem_of(pattern)


name = st.text(alphabet="ab.", min_size=1, max_size=3).filter(lambda text: text.strip(".") != "")
glob = st.text(alphabet="ab.*?", min_size=1, max_size=4).filter(lambda text: text.strip(".") != "" and "**" not in text)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is missing")
@given(
    st.lists(st.one_of(glob, st.just("**")), min_size=1, max_size=3).map("/".join),
    st.lists(st.lists(name, min_size=1, max_size=3).map("/".join), min_size=1, max_size=6, unique=True),
)
@settings(max_examples=60, deadline=None)
def test_git_ignores_the_same_paths(tmp_path_factory: pytest.TempPathFactory, pattern: str, paths: list[str]):
    if pattern.strip("/").endswith("**") and pattern.count("**") > 1:
        return
    folder = repository(tmp_path_factory)
    (folder / ".gitignore").write_text(f"{pattern}\n")
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=folder,
        input="\0".join(paths),
        capture_output=True,
        text=True,
        check=False,
    )
    ignored = set(done.stdout.split("\0")) - {""}
    assert {path for path in paths if matches(pattern, path)} == ignored, pattern


def repository(factory: pytest.TempPathFactory) -> Path:
    folder = factory.getbasetemp() / "ignoring"
    if not folder.exists():
        folder.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@given(st.text(max_size=12))
def test_any_pattern_and_path_can_be_compared(text: str):
    if not problem_of(text):
        matches(text, "a/b")
    assert tidy(text) is None or ".." not in str(tidy(text)).split("/")


def test_paths_in_the_words_of_a_command():
    assert "secrets/x" in paths_in("--config=./secrets//x")
    assert "b" in paths_in("a/../b")
    assert paths_in("../..") == ()
    assert "/etc/passwd" in paths_in("@/etc/passwd")
