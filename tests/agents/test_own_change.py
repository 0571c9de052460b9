"""Which changed files judge the run that changed them."""

import pytest

from xnagent.agents.own_change import judged_by_own_change


@pytest.mark.parametrize(
    ("check", "path", "verb"),
    [
        ("pytest tests/test_a.py", "tests/test_a.py", "names"),
        ("pytest tests/test_a.py::test_x", "tests/test_a.py", "names"),
        ("pytest tests", "tests/test_a.py", "names"),
        ("pytest -q tests/unit/", "tests/unit/deep/test_a.py", "names"),
        ("pytest ./tests/test_a.py", "tests/test_a.py", "names"),
        ("pytest tests/*.py", "tests/helper.py", "names"),
        ("sh check.sh", "check.sh", "names"),
        ("FLAG=1 ./check.sh && true", "check.sh", "names"),
        ("python tools/script.py --fast", "tools/script.py", "names"),
        ("python3 -m unittest -q tests.test_money", "tests/test_money.py", "names"),
        ("python -m checks", "checks/__main__.py", "names"),
        ("cd tools && sh run.sh", "tools/run.sh", "reads"),
        ("make test", "Makefile", "reads"),
        ("make -C sub test", "sub/Makefile", "reads"),
        ("npm test", "package.json", "reads"),
        ("pnpm -r test", "packages/a/package.json", "reads"),
        ("pytest -q", "tests/test_a.py", "reads"),
        ("pytest -q", "conftest.py", "reads"),
        ("python -m pytest", "tests/conftest.py", "reads"),
        ("/usr/bin/env pytest", "pyproject.toml", "reads"),
        ("go test ./...", "pkg/a_test.go", "reads"),
        ("cargo test", "Cargo.toml", "reads"),
        ("./gradlew check", "gradlew", "names"),
        ("tox -e py", "tox.ini", "reads"),
    ],
)
def test_what_a_check_runs_is_flagged_when_it_was_changed(check: str, path: str, verb: str):
    assert judged_by_own_change([check], ["src/a.c", path]) == (f"changed {path}, which the check `{check}` {verb}",)


@pytest.mark.parametrize(
    ("check", "path"),
    [
        ("pytest tests/test_a.py", "src/a.py"),
        ("make test", "a"),
        ("npm test", "src/index.js"),
        ("pytest data.py", "a.py"),
        ("go test ./...", "pkg/a.go"),
        ("true", "true.py"),
        ("ls *", "a.py"),
        ("test -e . && grep -q x src/a.py", "src/b.py"),
    ],
)
def test_what_is_judged_is_no_judge(check: str, path: str):
    assert judged_by_own_change([check], [path]) == ()


def test_a_flag_is_one_line_however_many_files():
    [flag] = judged_by_own_change(["pytest tests", "pytest tests"], [f"tests/test_{n}.py" for n in range(900)])
    assert flag.endswith("tests/test_4.py and 895 more, which the check `pytest tests` names")
    assert judged_by_own_change(["pytest tests"], []) == ()
