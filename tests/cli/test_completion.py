"""Completion as a shell does it, and the manual page as its readers take it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.harness import ROOT, Shell
from xnagent.cli.arguments import COMMANDS
from xnagent.cli.completion import completion

COMPLETE = """
source "$1"; shift
for line in "$@"; do
    COMP_WORDS=($line); [[ $line == *' ' ]] && COMP_WORDS+=(""); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    _shtab_xnagent; echo "${COMPREPLY[*]}"
done
"""


def completed(shell: Shell, *lines: str, **environ: str) -> list[set[str]]:
    """What bash offers for each line, pressing Tab at its end."""
    script = shell.folder / "script"
    script.write_text(completion("bash"))
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", str(script), *lines],
        cwd=shell.repository,
        env={"PATH": "/nowhere", "HOME": str(shell.folder), **environ},
        executable=shutil.which("bash"),
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert done.stderr == ""
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_bash_completes_commands_options_choices_files_and_sessions_without_a_program(shell: Shell):
    sessions = shell.home / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "s-one.db").touch()
    (sessions / "s-two.db").touch()
    (sessions / "s-two.db-wal").touch()
    (shell.repository / "plans").mkdir()
    (shell.repository / "plan.toml").touch()
    commands, part, options, words, formats, files, folders, ids, begun = completed(
        shell,
        "xnagent ",
        "xnagent re",
        "xnagent run --max-",
        "xnagent run --sandbox ",
        "xnagent export --format ",
        "xnagent run --config pla",
        "xnagent run -C pla",
        "xnagent inspect ",
        "xnagent resume s-t",
        XNAGENT_HOME=str(shell.home),
    )
    assert commands == set(COMMANDS)
    assert part == {name for name in COMMANDS if name.startswith("re")}
    assert options == {"--max-usd", "--max-tokens", "--max-steps", "--max-runs", "--max-denials"}
    assert words == {"required", "auto", "external", "off"}
    assert "atif" in formats
    assert (files, folders) == ({"plan.toml", "plans"}, {"plans"})
    assert (ids, begun) == ({"s-one", "s-two"}, {"s-two"})


def test_sessions_are_looked_for_where_they_usually_are_and_none_is_no_error(shell: Shell):
    usual = shell.folder / ".local" / "state" / "xnagent" / "sessions"
    assert completed(shell, "xnagent inspect s-") == [set()]
    usual.mkdir(parents=True)
    (usual / "s-here.db").touch()
    assert completed(shell, "xnagent inspect s-") == [{"s-here"}]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish", "tcsh"])
def test_each_shell_takes_its_script(name: str, tmp_path: Path):
    script = tmp_path / "script"
    script.write_text(completion(name))
    assert "xnagent" in script.read_text()
    if shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    check = {"tcsh": ["-f", str(script)]}.get(name, ["-n", str(script)])
    done = subprocess.run([name, *check], capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_prints_the_script_and_refuses_another_shell(shell: Shell):
    printed, other = shell.many(["completion", "bash"], ["completion", "cmd"])
    assert (printed.code, printed.out.strip(), printed.err) == (0, completion("bash").strip(), "")
    assert other.code == 2
    assert "invalid choice: 'cmd'" in other.err


def test_the_manual_page_is_current():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "man-page", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "manual page: fits\n")


@pytest.mark.parametrize(
    "reader",
    [["man", "--warnings", "-l"], ["groff", "-man", "-ww", "-Tutf8"], ["mandoc", "-T", "lint", "-W", "warning"]],
    ids=["man", "groff", "mandoc"],
)
def test_readers_of_manual_pages_have_nothing_to_say(reader: list[str]):
    if shutil.which(reader[0]) is None:
        pytest.skip(f"no {reader[0]} here")
    environ = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "PAGER": "cat"}
    done = subprocess.run(
        [*reader, ROOT / "man" / "xnagent.1"], env=environ, capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stderr) == (0, "")
    if reader[0] == "man":
        assert all(f"xnagent {name}" in done.stdout for name in COMMANDS)
