"""Rules on patches, as pure functions."""

import pytest

from xnagent.agents.judging import is_in_scope, left_behind, refusal
from xnagent.agents.verifier import failed_checks
from xnagent.core.board import Evidence, Run
from xnagent.core.commits import Taken
from xnagent.core.ids import RunId, TaskId, Ticket


@pytest.mark.parametrize(
    ("path", "scope", "is_inside"),
    [
        ("a.py", ("a.py",), True),
        ("b.py", ("a.py",), False),
        ("src/a.py", ("src",), True),
        ("src/a.py", ("src/",), True),
        ("src/deep/a.py", ("src/",), True),
        ("srcs/a.py", ("src",), False),
        ("src/a.py", ("src/*.py",), True),
        ("src/a.txt", ("src/*.py",), False),
        ("src/deep/a.py", ("src/**/*.py",), True),
        ("src/a.py", ("src/**/*.py",), True),
        ("src/deep/er/a.py", ("src/**",), True),
        ("other/a.py", ("src/**",), False),
        ("a.py", ("**/*.py",), True),
        ("deep/a.py", ("**/*.py",), True),
        ("a.py", ("docs/**", "a.py"), True),
        ("a.py", ("./a.py",), True),
        ("src/a.py", ("./src",), True),
        ("A.py", ("a.py",), False),
        ("src", ("src/**",), False),
        ("x/src/a.py", ("src",), False),
        ("a[1].py", ("a[1].py",), True),
        ("anything", ("**",), True),
        ("deep/anything", ("**",), True),
        ("deep/anything", ("*",), True),
    ],
)
def test_scope_rules_are_paths_folders_and_globs(path: str, scope: tuple[str, ...], is_inside):
    assert is_in_scope(path, scope) is is_inside


def taken(*changed: str, problems: tuple[str, ...] = ()) -> Taken:
    return Taken(commit="c", patch=b"", changed_files=changed, problems=problems)


def test_a_patch_is_refused_for_its_problems_before_its_scope():
    run = Run(run=RunId("r1"), task=TaskId("t"), scope=("a.py",))
    assert refusal(run, taken("a.py")) == ""
    assert refusal(run, taken("b.py", "a.py")) == "out of scope: changed b.py; allowed: a.py"
    assert refusal(run, taken("b.py", problems=("LINK: x leads out",))) == "refused: LINK: x leads out"
    assert refusal(Run(run=RunId("r1"), task=TaskId("t")), taken("b.py")) == ""


def test_many_paths_out_of_scope_are_not_all_listed():
    run = Run(run=RunId("r1"), task=TaskId("t"), scope=("a.py",))
    text = refusal(run, taken(*(f"f{number}" for number in range(500))))
    assert len(text) < 200


def evidence(command: str, code: int | None) -> Evidence:
    return Evidence(command=command, exit_code=code, duration_seconds=0.1, output=Ticket("artifact:0"), tail="")


def test_failed_checks_are_named_in_one_line():
    assert failed_checks([evidence("true", 0)]) == ""
    found = [evidence("true", 0), evidence("make", 2), evidence("sleep 9", None)]
    assert failed_checks(found) == "check failed: `make` exited with 2; `sleep 9` did not end by itself"


def test_what_git_ignores_is_named_with_a_failed_check():
    assert left_behind(taken("a")) == ""
    found = Taken(commit="c", patch=b"", changed_files=("a",), ignored=("built/", "x.log"))
    assert left_behind(found).endswith("because git ignores them: built/, x.log)")
