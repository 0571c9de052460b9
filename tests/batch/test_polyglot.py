"""Folders of exercises through the real command line: hidden tests, restored files, pass rates, nothing done twice."""

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.harness import Shell, call, make_shell, model
from xnagent.batch.polyglot import write_jobs
from xnagent.errors import UsageError
from xnagent.testing.server import ScriptedServer

TEST = """\
import unittest
from two import two


class Two(unittest.TestCase):
    def test(self):
        assert two() == 2
"""
COMMAND = f"{sys.executable} -m unittest -q two_test.py"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return make_shell(tmp_path).with_variables(PATH=path)


def exercise(shell: Shell, name: str, files: dict[str, str], **lists: Any) -> None:
    folder = shell.folder / "exercises" / name
    lists = {"solution": ["two.py"], "test": ["two_test.py"], "example": [".meta/example.py"], **lists}
    whole = {
        ".meta/config.json": json.dumps({"files": lists}),
        ".meta/example.py": "GOLD = 2\n",
        ".docs/instructions.md": "Return two.\n",
        ".docs/instructions.append.md": "An integer.\n",
        **files,
    }
    for path, text in whole.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def planned(summary: str, *worker: dict[str, object], check: str) -> dict[str, object]:
    """Both exercises have the same words, so they share a script."""
    return {
        "planner": [
            call("plan", tasks=[{"id": "one", "title": "One", "objective": "solve it", "checks": [check]}]),
            call("delegate", task="one"),
            {**call("finish", outcome="completed", summary=summary), "when": "settled"},
        ],
        "planner_wait": "Waiting.",
        "worker": [*worker, call("submit", status="completed", summary="did it")],
    }


def batch(*more: str) -> list[str]:
    return ["batch", "../exercises", "--format", "polyglot", "--out", "../results.jsonl", *more]


def test_exercises_are_judged_by_their_own_tests_whatever_a_worker_did_to_the_rest(shell: Shell):
    begun = "def two():\n    pass\n"
    exercise(shell, "python/exercises/practice/two", {"two.py": begun, "two_test.py": TEST})
    exercise(shell, "python/exercises/practice/three", {"two.py": begun, "two_test.py": TEST.replace("== 2", "== 3")})
    files = {"two.py": "", "two.test.js": "xtest('two', () => 0)\n", "package.json": "{}\n"}
    exercise(shell, "javascript/exercises/practice/two", files, test=["two.test.js"])
    cheat = "echo 'import sys; sys.exit(0)' > two_test.py; echo 1 > package.json; echo 1 > two.test.js"
    work = call("bash", command=f"ls -a .; printf 'def two():\\n    return 2\\n' > two.py; {cheat}")
    restored = "grep -q '^test(' two.test.js && grep -q '{}' package.json"
    check = f"if grep -q two two.test.js; then {restored}; else {COMMAND}; fi"
    with ScriptedServer(planned("Done.", work, check="true")) as server:
        done = shell.run(*batch("--check", check, "--output", "json"), *model(server.base_url))
        sent = str([exchange.request.body for exchange in server.exchanges])
    assert done.code == 4, done.err
    assert done.record["languages"] == {
        "javascript": {"passed": 1, "total": 1},
        "python": {"passed": 1, "total": 2},
    }
    assert "python: 1 of 2 passed (50.0%)" in done.err
    assert "Return two." in sent
    assert "An integer." in sent
    assert "two.py" in sent
    assert not [hidden for hidden in ("GOLD", "class Two", "example.py", ".meta", ".docs") if hidden in sent]
    results = (shell.folder / "results.jsonl").read_text()
    records = {record["id"]: record for record in map(json.loads, results.splitlines())}
    verified = {name: record["verified"] for name, record in records.items()}
    assert verified == {"python/two": True, "python/three": False, "javascript/two": True}
    assert records["python/two"]["workspace"]["applied"] is False

    again, rates = shell.many(
        [*batch("--check", check), *model("http://127.0.0.1:9")],
        [*batch("--check", check, "--dry-run", "--output", "json"), *model("http://127.0.0.1:9")],
    )
    assert (again.code, rates.record["todo"]) == (4, 0)
    assert "python: 1 of 2 passed" in again.err
    assert (shell.folder / "results.jsonl").read_text() == results


def test_what_is_no_exercise_is_refused_before_anything_begins(shell: Shell):
    (shell.folder / "empty").mkdir()
    exercise(shell, "cobol/exercises/practice/two", {"two.py": "", "two_test.py": TEST})
    unknown = [*batch(), *model("http://127.0.0.1:9")]
    calls = [
        unknown,
        [unknown[0], "../empty", *unknown[2:]],
        [*unknown, "--apply"],
        [*unknown, "--repos", "../empty"],
    ]
    codes = ["EXERCISE_COMMAND", "EXERCISES_EMPTY", "USAGE", "USAGE"]
    for done, code in zip(shell.many(*calls), codes, strict=True):
        assert (done.code, code in done.err) == (2, True), done.err
    assert not list(shell.folder.glob("results*"))


@pytest.mark.parametrize(
    "lists",
    [
        {"solution": ["../../two.py"]},
        {"solution": ["/two.py"]},
        {"solution": []},
        {"solution": [5]},
        {"test": "two_test.py"},
        {"test": None},
        {"editor": [".git/config"]},
    ],
)
def test_a_configuration_that_names_no_files_of_the_exercise_is_refused(tmp_path: Path, lists: dict[str, Any]):
    shell = Shell(folder=tmp_path, extra={})
    exercise(shell, "python/exercises/practice/two", {"two.py": "", "two_test.py": TEST}, **lists)
    write = partial(write_jobs, tmp_path / "exercises", tmp_path / "place", environ=shell.environ, checks=())
    with pytest.raises(UsageError, match="EXERCISE_MALFORMED"):
        anyio.run(write)
    assert not (tmp_path / "place").exists()


def test_the_same_exercises_are_the_same_jobs_in_any_place(tmp_path: Path):
    shell = Shell(folder=tmp_path, extra={})
    exercise(shell, "python/exercises/practice/two", {"two.py": "", "two_test.py": TEST})

    def jobs(place: str) -> str:
        write = partial(write_jobs, tmp_path / "exercises", tmp_path / place, environ=shell.environ, checks=())
        return anyio.run(write).read_text()

    first = jobs("a")
    assert jobs("a") == first
    assert jobs("b") == first
    assert sorted(path.name for path in (tmp_path / "a/python/two").iterdir()) == [".git", "two.py"]
    assert "python3 -m pytest -q" in first
    exercise(shell, "python/exercises/practice/two", {"two_test.py": TEST + "\n"})
    assert jobs("a") != first
