"""Command lines in their words, held against bash itself."""

import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xnagent.core.shell_words import DYNAMIC, read_script

BASH = shutil.which("bash")
TELL = """
exec 9>&1
command_not_found_handle() { printf '%s\\0' "$#" "$@" >&9; return 0; }
PATH=/nonexistent
set -f
"""


def argv_of_bash(command: str) -> list[list[str]] | None:
    """What bash would run, in order; None if it refuses the text."""
    done = subprocess.run([BASH, "-c", TELL + command], capture_output=True, timeout=30, check=False, env={}, cwd="/")
    words = done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]
    found = []
    while words:
        count = int(words.pop(0))
        found.append(words[:count])
        words = words[count:]
    return None if b"syntax error" in done.stderr or b"unexpected" in done.stderr else found


def words_of(command: str) -> list[list[str]]:
    return [[word.text for word in one.words] for one in read_script(command).commands if one.words]


safe = st.text(alphabet="abc-./=:@%+,^~_0\u00e9 \t", min_size=0, max_size=6)
bare = st.text(alphabet="abc-./:@%+,^_0\u00e9", min_size=1, max_size=5)
piece = st.one_of(
    bare,
    safe.map(lambda text: f"'{text}'"),
    safe.map(lambda text: f'"{text}"'),
    st.sampled_from(
        ['"\\$x"', '"\\\\"', "\\ ", "\\$", "\\'", '\\"', '"\\a"', "'\\'", "a#b", "\\\n", '"a\\\nb"', "'a\nb'", "$"]
    ),
)
word = st.lists(piece, min_size=1, max_size=3).map("".join)
simple = st.lists(word, max_size=3).map(lambda words: " ".join(["zz", *words]))
joint = st.sampled_from(["; ", "\n", " ;\n", " && ", ";  # a comment 'x\n"])
line = st.lists(st.tuples(simple, joint), min_size=1, max_size=3).map(
    lambda parts: "".join(command + after for command, after in parts[:-1]) + parts[-1][0]
)


@pytest.mark.skipif(BASH is None, reason="bash is missing")
@given(line)
@example("zz a'b'\"c\"\\d")
@example("zz '' \"\" a")
@example("zz a\\\nb")
@example("zz # no\nzz b")
@example("zz a#b")
@example('zz "a\\\nb" "\\\\\nx"')
@settings(max_examples=150, deadline=None)
def test_words_are_those_of_bash(command: str):
    script = read_script(command)
    if script.problems:
        return
    if any(DYNAMIC in word.text for one in script.commands for word in one.words):
        return
    assert argv_of_bash(command) == words_of(command)


@pytest.mark.skipif(BASH is None, reason="bash is missing")
@pytest.mark.parametrize(
    "command",
    [
        "zz a <<'E'\n$(x) `y`\nE\nzz b",
        "zz a <<-E\n\tb\n\tE\nzz c",
        "zz <<A <<B\n1\nA\n2\nB\nzz d",
        "zz a >&2 2>/dev/null b",
        "zz 2>/dev/null a",
        "zz 2 >/dev/null",
        "zz a2>/dev/null",
        "X=1 zz a",
        "X=1 Y='a b' zz a; Z=2",
        "zz a=b",
        "zz {} \\; {a}",
        "zz a&\nwait",
        "zz '{a,b}' \\{a,b}",
        "zz <<<'a b' c",
    ],
)
def test_redirections_and_assignments_are_no_words(command: str):
    script = read_script(command)
    assert not script.problems
    assert [one for one in words_of(command) if one[0] == "zz"] == [
        one for one in argv_of_bash(command) if one[0] == "zz"
    ]


@given(st.text(alphabet="ab '\"\\$`(){};&|<>#\n=*~[]!-,.\t", max_size=24))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read(command: str):
    script = read_script(command)
    assert script == read_script(command)
    for one in script.commands:
        assert one.words or one.assignments or one.redirects


@pytest.mark.skipif(BASH is None, reason="bash is missing")
@given(st.text(alphabet="z '\"\\$;&|<>#\n={,}", max_size=12).map(lambda text: f"zz {text}"))
@settings(max_examples=200, deadline=None)
def test_what_is_read_without_a_problem_bash_reads_alike(command: str):
    script = read_script(command)
    words = [word for one in script.commands for word in one.words]
    redirects = any(one.redirects for one in script.commands)
    is_plain = not any(DYNAMIC in word.text for word in words) and "||" not in command and "|" not in command
    if script.problems or redirects or not is_plain or "&" in command.replace("&&", ""):
        return
    argv = argv_of_bash(command)
    if argv is not None:
        assert argv == words_of(command)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("a $(b)", "substitution"),
        ("a `b`", "substitution"),
        ('a "$(b)"', "substitution"),
        ('a "`b`"', "substitution"),
        ("a ${b:-$(c)}", "substitution"),
        ("a $((1))", "substitution"),
        ("diff <(a) <(b)", "process substitution"),
        ("a > >(b)", "without a target"),
        ("(a)", "subshell"),
        ("f() { a; }", "subshell"),
        ("if a; then b; fi", "compound"),
        ("{ a; }", "compound"),
        ("! a", "compound"),
        ("time a", "compound"),
        ("a 'b", "not closed"),
        ('a "b', "not closed"),
        ("a {b,c}", "brace"),
        ("a {1..3}", "brace"),
        ("a <<E\n$(b)\nE", "heredoc"),
        ("a <<E\nb", "without its end"),
        ("a >", "without a target"),
        ("a[0]=b c", "array"),
        ("a {fd}>b", "variable"),
        ("a \\", "cannot be read"),
        ("a\0b", "cannot be read"),
    ],
)
def test_what_cannot_be_told_is_a_problem(command: str, problem: str):
    assert any(problem in told for told in read_script(command).problems), read_script(command)
