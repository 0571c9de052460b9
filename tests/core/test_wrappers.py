"""Commands that run commands."""

import pytest

from xnagent.core.shell_words import DYNAMIC
from xnagent.core.wrappers import read_command


def judged(command: str) -> list[str]:
    """The commands that need a rule, if it is known what runs."""
    reading = read_command(command)
    assert not reading.problems, reading
    return [" ".join(part.texts).replace(DYNAMIC, "…") for part in reading.parts if part.is_judged]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("timeout 5 npm test", ["npm test"]),
        ("timeout -k 3 --signal=TERM 5m npm test", ["npm test"]),
        ("nohup nice -n 5 npm test &", ["npm test"]),
        ("nice -n5 npm test", ["npm test"]),
        ("env -i CI=1 npm test", ["npm test"]),
        ("env -u X npm test", ["npm test"]),
        ("env", ["env"]),
        ("stdbuf -oL npm test", ["npm test"]),
        ("command -v git", ["command -v git"]),
        ("command git log", ["git log"]),
        ("exec npm test", ["npm test"]),
        ("CI=1 npm test", ["npm test"]),
        ("sh -c 'a b; c'", ["a b", "c"]),
        ("bash -euxo pipefail -c 'a | b'", ["a", "b"]),
        ("bash -lc \"sh -c 'a'\"", ["a"]),
        ("bash script.sh x", ["bash script.sh x"]),
        ("sudo -u me apt-get install x", ["sudo -u me apt-get install x", "apt-get install x"]),
        ("xargs -0 -n 1 rm -f", ["xargs -0 -n 1 rm -f", "rm -f …"]),
        ("find . -name '*.o' -exec rm {} + -print", ["find . -name *.o -exec rm {} + -print", "rm …"]),
        ("find . -execdir sh -c 'a' \\; -ok b \\;", ["find . -execdir sh -c a ; -ok b ;", "a", "b"]),
        ("./timeout 5 npm test", ["./timeout 5 npm test", "npm test"]),
        ("/usr/bin/timeout 5 npm test", ["npm test"]),
        ("cd src && make > ../log.txt 2>&1 || true", None),
        ("cd src && make > log.txt 2>&1", ["cd src", "make"]),
    ],
)
def test_what_runs_in_the_end(command: str, expected: list[str] | None):
    if expected is None:
        assert read_command(command).problems
    else:
        assert judged(command) == expected


@pytest.mark.parametrize(
    "command",
    [
        "eval a",
        "trap a EXIT",
        "alias a=b",
        "echo a | sh",
        "bash",
        "bash -s x",
        "sh <<'E'\na\nE",
        'sh -c "$X"',
        "sh -c",
        "env -S 'a b'",
        "env PATH=/x a",
        "LD_PRELOAD=x a",
        "GIT_SSH_COMMAND=x git fetch",
        "PATH=/x; a",
        "NODE_OPTIONS=x a",
        "$X a",
        "/bin/r? a",
        "~/a",
        "timeout --odd 5 a",
        "xargs --odd a",
        "xargs sh -c",
        "find . -exec sh -c '{}' \\;",
        "find $X -exec a \\;",
        "watch a",
        "a > /etc/x",
        "a > ../x",
        "a > $X",
        "a > ~/x",
        "a < /etc/x",
        "cd /tmp && a > x",
        "cd && a > x",
        "cd - && a > x",
        'sh -c \'sh -c "sh -c \\"sh -c \\\\\\"sh -c \\\\\\\\\\\\\\"sh -c a\\\\\\\\\\\\\\"\\\\\\"\\""\'',
    ],
)
def test_what_cannot_be_resolved_is_a_problem(command: str):
    assert read_command(command).problems


@pytest.mark.parametrize("place", ["/dev/null", "/dev/stderr", "out.txt", "./a/b", "'a b'"])
def test_redirections_inside_are_none(place: str):
    assert judged(f"a > {place} 2>&1") == ["a"]
