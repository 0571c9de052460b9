"""Where sessions are kept is the host's choice; what is wrong with it is told without a password."""

import json
from pathlib import Path

import pytest

from tests.cli.harness import ROOT, Shell
from xnagent.app.stores import sessions_at
from xnagent.config import StoreSettings

SECRET = "hunter-22"
NOWHERE = f"postgresql://me:{SECRET}@127.0.0.1:9/db"


def test_without_the_extra_one_line_says_what_to_install(shell: Shell, tmp_path: Path):
    hidden = tmp_path / "hidden" / "psycopg"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'psycopg'\", name='psycopg')\n")
    bare = shell.with_variables(PYTHONPATH=f"{hidden.parent}:{ROOT}", XNAGENT_STORE__URL=NOWHERE)
    for done in bare.many(["sessions"], ["inspect", "s-1"], ["run", "x", "--model", "m"], ["doctor"]):
        assert done.code == 2
        assert "pip install 'xnagent[postgres]'" in done.out + done.err
        assert "Traceback" not in done.err
        assert SECRET not in done.out + done.err
    assert bare.with_variables(XNAGENT_STORE__URL="").run("sessions").code == 0, "files need no extra"


def test_an_unreachable_server_is_told_without_the_password(shell: Shell):
    model = ["--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    store = ["-s", f"store.url={NOWHERE}"]
    commands = [
        ["sessions", *store],
        ["inspect", "s-1", *store, "--output", "json"],
        ["request", "s-1", "1", *store],
        ["replay", "s-1", *store],
        ["resume", "s-1", *store, *model],
        ["run", "x", *store, *model, "-v", "--output", "jsonl"],
        ["doctor", *store, *model],
    ]
    for command, done in zip(commands, shell.many(*commands), strict=True):
        assert done.code == (2 if command[0] == "doctor" else 1), (command, done)
        assert "STORE_UNREACHABLE: postgresql://127.0.0.1:9/db: " in done.err + done.out, command
        assert SECRET not in done.out + done.err, command
    assert not list(shell.home.glob("work/*")), "nothing was made"
    final = json.loads(shell.run(*commands[5]).out.splitlines()[-1])
    assert (final["type"], final["exit_code"], final["error"]["class"]) == ("final", 1, "StoreError")


@pytest.mark.parametrize("url", [f"mysql://me:{SECRET}@h/d", f"postgresql://me:{SECRET}%zz@h/d", f"{SECRET}.db"])
def test_a_wrong_address_is_refused_and_not_repeated(shell: Shell, url: str):
    for done in shell.many(["sessions", "-s", f"store.url={url}"], ["run", "x", "-s", f"store.url={url}"]):
        assert done.code == 2
        assert "store.url" in done.err
        assert SECRET not in done.err + done.out


def test_a_batch_whose_store_is_unreachable_gives_no_job_a_result(shell: Shell):
    jobs = shell.repository / "jobs.jsonl"
    jobs.write_text('{"objective": "x"}\n')
    model = ["--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    done = shell.run("batch", str(jobs), "--out", "results.jsonl", "-s", f"store.url={NOWHERE}", *model)
    assert done.code == 1
    assert "STORE_UNREACHABLE" in done.err
    assert SECRET not in done.err
    assert not (shell.repository / "results.jsonl").exists()


def test_an_ephemeral_session_is_kept_nowhere(shell: Shell):
    model = ["--model", "m", "--base-url", "http://[::1]:9/v1", "-s", "retry.max_attempts=1"]
    done = shell.run("run", "x", "--ephemeral", "-s", f"store.url={NOWHERE}", *model)
    assert "STORE_UNREACHABLE" not in done.err
    assert done.code == 8


def test_no_address_means_files():
    assert sessions_at(StoreSettings(), home=Path("/")) is None
