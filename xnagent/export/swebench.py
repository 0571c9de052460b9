"""A session's result as a prediction for SWE-bench: an instance, a model and the patch of its source files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from xnagent.core.text import Json

FIELDS: Final = ("instance_id", "model_name_or_path", "model_patch")
AGENT: Final = "xnagent"
_FILE: Final = re.compile(rb"^diff --git ", re.MULTILINE)
_BINARY: Final = re.compile(rb"^(GIT binary patch|Binary files .* differ)$", re.MULTILINE)
_PATH: Final = re.compile(rb'^(?:\+\+\+|---) "?[ab]/(.*?)"?\t?$|^rename to "?(.*?)"?$', re.MULTILINE)
_HUNK: Final = re.compile(rb"^@@ ", re.MULTILINE)
_HEADER: Final = re.compile(rb'^diff --git "?a/(.*?)"? "?b/(.*?)"?$', re.MULTILINE)
_TEST_FOLDERS: Final = frozenset({"tests", "__tests__", "e2e"})
_TEST_ROOTS: Final = frozenset({"test", "testing"})
"""At the top alone: deeper down they hold the source of frameworks for tests."""
_TEST_FILE: Final = re.compile(r"conftest\.py|test_.*\.\w+|.*_test\.\w+|.*\.(test|spec)\.\w+")
_MADE: Final = re.compile(r"(^|/)(__pycache__|node_modules|\.pytest_cache|[^/]+\.egg-info)/|^(build|dist)/")


def prediction(instance: str, *, model: str, patch: bytes | None) -> dict[str, Json]:
    """One line of a file of predictions; without a patch the harness counts it as an empty one."""
    text = source_patch(patch or b"").decode()
    return dict(zip(FIELDS, (instance, f"{AGENT}/{model}" if model else AGENT, text), strict=True))


def source_patch(patch: bytes) -> bytes:
    """Those files of a `git diff` that are source: no tests, nothing binary, nothing that a build made."""
    return b"".join(part for part in _files(patch) if _is_source(part))


def _files(patch: bytes) -> Iterator[bytes]:
    starts = [found.start() for found in _FILE.finditer(patch)]
    for start, end in pairwise([*starts, len(patch)]):
        yield patch[start:end]


def _is_source(part: bytes) -> bool:
    hunk = _HUNK.search(part)
    header = part if hunk is None else part[: hunk.start()]
    if _BINARY.search(header) is not None:
        return False
    try:
        part.decode()
        paths = [path.decode() for path in _paths(header)]
    except UnicodeDecodeError:
        return False
    return bool(paths) and not any(is_test(path) or _MADE.search(path) for path in paths)


def _paths(header: bytes) -> list[bytes]:
    found = [first or second for first, second in _PATH.findall(header)]
    if found:
        return found
    named = _HEADER.search(header)
    return [] if named is None else [named[2]]


def is_test(path: str) -> bool:
    """Whether a file is a test: the harness brings its own, and puts them over the prediction's."""
    *folders, name = path.split("/")
    is_below = any(folder in _TEST_FOLDERS for folder in folders) or (bool(folders) and folders[0] in _TEST_ROOTS)
    return is_below or _TEST_FILE.fullmatch(name) is not None
