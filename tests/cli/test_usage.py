"""What is wrong before work begins: exit code 2, one line on stderr, and one object where JSON is asked for."""

import json
import subprocess

import pytest

from tests.cli.harness import SECONDS, XNAGENT, Done, Shell

RECORD_KEYS = {
    "type": str,
    "session": type(None),
    "outcome": str,
    "exit_code": int,
    "verified": type(None),
    "summary": str,
    "question": type(None),
    "error": {"class", "message"},
    "tasks": {"total", "completed", "failed", "dropped"},
    "runs": {"total", "completed", "failed", "cancelled"},
    "steps": {"planner", "worker"},
    "spine": {"items", "tokens", "deltas", "rebases", "breaks"},
    "usage": {
        "requests",
        "input_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
        "cost_usd",
        "by_role",
    },
    "workspace": {"base", "branch", "patch", "applied", "changed_files"},
    "duration_seconds": float,
}

SCRIPTED = ("--model", "scripted")
NAMED = ("-s", "planner.model.name=scripted")
MISTAKES = {
    "no objective": (["run"], "no objective"),
    "empty objective": (["run", "  "], "empty"),
    "empty stdin": (["run", "-"], "empty"),
    "missing file": (["run", "-f", "missing.md"], "missing.md"),
    "two objectives": (["run", "x", "-f", "cfg.py"], "one of them"),
    "unknown option": (["run", "x", "--bogus"], "--bogus"),
    "abbreviated option": (["run", "x", "--work", "y"], "--work"),
    "unknown command": (["runn", "x"], "runn"),
    "no command": ([], "which command"),
    "missing folder": (["run", "x", "-C", "nowhere"], "nowhere"),
    "folder is a file": (["run", "x", "-C", "cfg.py"], "cfg.py"),
    "no model": (["run", "x"], "no model is configured"),
    "unknown model": (["run", "x", "--model", "foo"], "foo"),
    "no key": (["run", "x", "--model", "deepseek-flash"], "DEEPSEEK_API_KEY"),
    "no key for the worker": (["run", "x", "--model", "scripted", "--worker-model", "gpt-5"], "OPENAI_API_KEY"),
    "no key for a fallback": (["run", "x", *SCRIPTED, "-s", 'planner.model.fallback=["kimi-k3"]'], "MOONSHOT_API_KEY"),
    "a fallback that nobody knows": (
        ["run", "x", "--model", "scripted", "-s", "planner.model.fallback=foo"],
        "models.",
    ),
    "the model as its own fallback": (["run", "x", *NAMED, "-s", "planner.model.fallback=scripted"], "leave it out"),
    "a fallback twice": (["run", "x", *SCRIPTED, "-s", 'planner.model.fallback=["a", "a"]'], "twice"),
    "unknown key": (["run", "x", "-s", "paralel=2"], '"parallel"'),
    "key without value": (["run", "x", "-s", "parallel"], "parallel=VALUE"),
    "bad number": (["run", "x", "--max-usd", "much"], "--max-usd"),
    "negative number": (["run", "x", "--max-steps", "-1"], "steps"),
    "bad choice": (["run", "x", "--prefix", "loud"], "--prefix"),
    "missing config": (["run", "x", "--config", "nope.toml"], "nope.toml"),
    "unknown sandbox": (["run", "x", "--sandbox", "tight"], "required"),
    "allow": (["run", "x", "--allow", "bash(a && b)"], "this can never match"),
    "deny": (["run", "x", "--deny", "bahs"], 'did you mean "Bash"'),
    "max-denials": (["run", "x", "--max-denials", "0"], "permissions.max_denials"),
    "secret-env": (["run", "x", "--secret-env", "A B"], "secrets.env"),
    "a Planner's summary": (["run", "x", "-s", "planner.context.strategy=summary"], "the Planner's spine has only"),
    "unknown strategy": (["run", "x", "-s", "worker.context.strategy=forget"], "worker.context.strategy"),
    "no such session": (["inspect", "s-nope"], "s-nope"),
    "a path as session": (["resume", "../x"], "../x"),
    "empty message": (["resume", "s-nope", "--message", " "], "empty"),
    "nobody to tell": (["tell", "s-nope", "x"], "s-nope"),
    "nothing to tell": (["tell", "s-nope", " "], "empty"),
    "nothing to tell on stdin": (["tell", "s-nope", "-"], "empty"),
    "nobody to cancel": (["cancel", "../x"], "../x"),
    "request zero": (["request", "s-nope", "0"], "0"),
    "empty home": (["sessions", "--home", ""], "--home"),
    "unwritable log": (["run", "x", "--model", "scripted", "--log-file", "no/where.log"], "no/where.log"),
    "bad output": (["run", "x", "--output", "xml"], "xml"),
}


def is_one_line(done: Done) -> bool:
    return done.err.startswith("xnagent: ") and done.err.count("\n") == 1 and "Traceback" not in done.err


def test_B057_B059_every_mistake_is_told_at_once(shell: Shell):
    results = shell.many(*(argv for argv, _ in MISTAKES.values()))
    wrong = {
        name: done
        for (name, (_, told)), done in zip(MISTAKES.items(), results, strict=True)
        if (done.code, done.out) != (2, "") or told not in done.err or not is_one_line(done)
    }
    assert wrong == {}


def test_B057_in_json_mode_a_mistake_is_one_whole_record(shell: Shell):
    calls = [[*argv, "--output", "json"] for name, (argv, _) in MISTAKES.items() if name != "bad output"]
    for done in shell.many(*calls, ["run", "--output=jsonl"], ["--output", "json", "run"]):
        assert done.code == 2
        assert is_one_line(done)
        record = done.record
        assert list(record) == list(RECORD_KEYS)
        for key, wanted in RECORD_KEYS.items():
            if isinstance(wanted, set):
                assert set(record[key]) >= wanted
            else:
                assert isinstance(record[key], wanted)
        assert (record["type"], record["outcome"], record["exit_code"]) == ("final", "error", 2)
        assert record["error"]["class"] == "UsageError"
        assert record["error"]["message"] in done.err


def test_a_key_in_the_environment_leads_to_a_model(shell: Shell):
    (done,) = shell.with_variables(DEEPSEEK_API_KEY="sk-secret-123").many(["run", "x"])
    assert "--model deepseek-flash" in done.err
    assert "sk-secret" not in done.err


def test_B059_no_objective_does_not_wait_for_a_silent_pipe(shell: Shell):
    with subprocess.Popen(
        [*XNAGENT, "run", "--output", "json"],
        cwd=shell.repository,
        env=shell.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.wait(timeout=SECONDS) == 2
        assert json.loads(process.stdout.read())["exit_code"] == 2


@pytest.mark.parametrize("closing", ["<&-", "<&- >&- 2>&-"])
def test_B059_closed_streams_are_fine(shell: Shell, closing: str):
    command = f'"$0" -m xnagent run --output json {closing}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, XNAGENT[0]],
        cwd=shell.repository,
        env=shell.environ,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    if ">&-" not in closing.replace("2>&-", ""):
        assert json.loads(done.stdout)["exit_code"] == 2


def test_version_and_help_load_nothing_heavy(shell: Shell):
    code = (
        "import sys, contextlib\n"
        "from xnagent.cli.main import run\n"
        "with contextlib.suppress(SystemExit): run(sys.argv[1:])\n"
        "heavy = {'anyio', 'asyncio', 'httpx', 'pydantic', 'sqlite3', 'jsonpatch'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    for option, told in (("--version", "xnagent "), ("--help", "resume")):
        done = subprocess.run(
            [XNAGENT[0], "-c", code, option],
            env=shell.environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        assert told in done.stdout
        assert "heavy: []" in done.stdout


def test_verbose_shows_where_an_error_came_from(shell: Shell):
    quiet, loud = shell.many(["inspect", "s-nope"], ["inspect", "s-nope", "-v"])
    assert "Traceback" not in quiet.err
    assert "Traceback" in loud.err


def test_sessions_models_and_doctor_answer(shell: Shell):
    calls = (
        ["sessions"],
        ["sessions", "--json"],
        ["models"],
        ["models", "--output", "json"],
        ["doctor", "--output", "json"],
        ["doctor", "--model", "scripted", "--base-url", "http://127.0.0.1:9"],
    )
    empty, listed, table, models, doctor, refused = shell.many(*calls)
    assert (empty.code, empty.out) == (0, "")
    assert listed.record == {"type": "sessions", "sessions": []}
    assert "deepseek-flash" in table.out
    assert {"scripted", "deepseek-flash"} <= {entry["name"] for entry in models.record["models"]}
    assert (doctor.code, doctor.record["is_ready"]) == (2, False)
    findings = {finding["what"]: finding["detail"] for finding in doctor.record["findings"]}
    assert findings.keys() >= {"sandbox", "limits", "git", "ripgrep", "home", "model"}
    assert (
        "open files" in findings["limits"]
        or "without a box" in findings["limits"]
        or "no sandbox" in findings["limits"]
    )
    assert refused.code == 2
    assert "a run could not start" in refused.out
    assert not shell.home.exists()


def test_a_users_own_model_is_listed_and_used(shell: Shell):
    folder = shell.folder / ".config" / "xnagent"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[models."mine"]\nbase_url = "https://models.example.invalid/v1"\n')
    models, run = shell.many(["models"], ["run", "x", "--model", "mine", "--config", "nope.toml"])
    assert "mine" in models.out
    assert "nope.toml" in run.err


def test_B058_logs_go_to_stderr_or_a_file_and_never_hold_headers(shell: Shell):
    code = (
        "import logging, warnings, sys, pathlib\n"
        "from xnagent.telemetry import set_up_logging\n"
        "set_up_logging(verbosity=1, file=pathlib.Path(sys.argv[1]) if sys.argv[1:] else None)\n"
        "assert 'structlog' not in sys.modules\n"
        "logging.getLogger('own').warning('said')\n"
        "assert 'structlog' in sys.modules\n"
        "logging.getLogger('httpcore.http11').debug('Authorization: secret')\n"
        "logging.getLogger('other').info('heard')\n"
        "warnings.warn('old', DeprecationWarning)\n"
    )
    file = shell.folder / "x.log"
    for arguments in ([], [str(file)]):
        done = subprocess.run(
            [XNAGENT[0], "-W", "always", "-c", code, *arguments],
            env=shell.environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        assert done.stdout == ""
        logs = file.read_text() if arguments else done.stderr
        assert all(word in logs for word in ("said", "heard", "old"))
        assert "secret" not in logs
    assert all(json.loads(line)["level"] for line in file.read_text().splitlines())
