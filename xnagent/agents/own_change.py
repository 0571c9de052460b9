"""Whether a run changed what judges it: files that its checks name, or that the programs in them read by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

WORD: Final = re.compile(r"[^\s'\"`=:;,|&()<>]+")
"""What may be a path in a command."""
LISTED: Final = 5
"""Paths that one flag names."""

_NODE: Final = ("package.json", "jest.config.*", "vitest.config.*")
_PYTEST: Final = ("conftest.py", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
READS: Final[Mapping[str, tuple[str, ...]]] = {
    "make": ("Makefile", "makefile", "GNUmakefile", "*.mk"),
    "gmake": ("Makefile", "makefile", "GNUmakefile", "*.mk"),
    "cmake": ("CMakeLists.txt", "CMakePresets.json"),
    "ctest": ("CMakeLists.txt", "CTestTestfile.cmake"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile",),
    "npm": _NODE,
    "npx": _NODE,
    "pnpm": _NODE,
    "yarn": _NODE,
    "bun": _NODE,
    "node": ("package.json",),
    "deno": ("deno.json", "deno.jsonc"),
    "pytest": _PYTEST,
    "py.test": _PYTEST,
    "tox": ("tox.ini", "pyproject.toml", "setup.cfg", *_PYTEST),
    "nox": ("noxfile.py", *_PYTEST),
    "pre-commit": (".pre-commit-config.yaml",),
    "ruff": ("ruff.toml", ".ruff.toml", "pyproject.toml"),
    "mypy": ("mypy.ini", ".mypy.ini", "pyproject.toml", "setup.cfg"),
    "cargo": ("Cargo.toml", "build.rs"),
    "mvn": ("pom.xml",),
    "mvnw": ("pom.xml", "mvnw"),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
    "gradlew": ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradlew"),
}
"""Files that a program takes its orders from, by name; in whatever folder they stand."""
TESTING: Final[Mapping[str, tuple[str, ...]]] = {
    "pytest": ("test_*.py", "*_test.py"),
    "py.test": ("test_*.py", "*_test.py"),
    "unittest": ("test*.py",),
    "tox": ("test_*.py", "*_test.py"),
    "nox": ("test_*.py", "*_test.py"),
    "go": ("*_test.go",),
}
"""Files that a program collects by itself."""


def judged_by_own_change(checks: Sequence[str], changed: Sequence[str]) -> tuple[str, ...]:
    """A flag for each check of which files were changed that it names, runs, or takes its orders from."""
    return tuple(
        f"changed {_few(found)}, which the check `{check}` {verb}"
        for check in dict.fromkeys(checks)
        for verb, found in _touched(check, changed)
        if found
    )


def _touched(check: str, changed: Sequence[str]) -> Iterable[tuple[str, list[str]]]:
    words = {word.removeprefix("./").rstrip("/") for word in WORD.findall(check)}
    named = [path for path in changed if _names(words, path)]
    rules = [rule for word in words for rule in _rules(word)]
    read = [path for path in changed if path not in named and _is_read(path, words=words, rules=rules)]
    return (("names", named), ("reads", read))


def _names(words: set[str], path: str) -> bool:
    """Whether the path is one of the words, as it is or as a glob or a module, or a test in a folder among them."""
    is_test = "test" in path.lower() and not words.isdisjoint(str(parent) for parent in PurePosixPath(path).parents)
    return path in words or _is_module(words, path) or is_test or _is_globbed(words, path)


def _is_module(words: set[str], path: str) -> bool:
    dotted = path.removesuffix(".py").replace("/", ".").removesuffix(".__main__")
    return path.endswith(".py") and dotted in words and ("." in dotted or "-m" in words)


def _is_globbed(words: set[str], path: str) -> bool:
    return any(fnmatchcase(path, word) for word in words if any(sign in word for sign in "*?[") and word.strip("*?./"))


def _rules(word: str) -> tuple[str, ...]:
    name = PurePosixPath(word).name
    return (*READS.get(name, ()), *TESTING.get(name, ()))


def _is_read(path: str, *, words: set[str], rules: Sequence[str]) -> bool:
    """Whether it is such a file; or has the name of a word that is run from its folder (`cd tools && sh run.sh`)."""
    name = PurePosixPath(path).name
    folder = str(PurePosixPath(path).parent)
    return any(fnmatchcase(name, rule) for rule in rules) or (folder in words and name in words)


def _few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return ", ".join(paths[:LISTED]) + more
