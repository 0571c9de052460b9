"""Whole sessions through the command line: what is on which stream, and how they end."""

import json
import os
import signal
import subprocess
import time

import pytest

from tests.cli.harness import SECONDS, XNAGENT, Shell, call, finishing, hanging, model, working
from tests.cli.test_usage import RECORD_KEYS
from xnagent.testing.server import ScriptedServer

FAULTS = {
    "authentication": ({"status": 401, "body": {"error": {"message": "bad key"}}}, "provider_error", 9),
    "overloaded": ({"status": 529, "body": {"error": {"message": "busy"}}}, "provider_error", 8),
}
QUICK = ("-s", "retry.max_attempts=2", "-s", "retry.first_wait_seconds=0.01", "-s", "retry.max_total_seconds=5")


def faulty(fault: dict[str, object]) -> dict[str, object]:
    return {"planner": [{"fault": fault, "times": 0}]}


def test_B058_text_mode_has_the_answer_alone_on_stdout(shell: Shell):
    with ScriptedServer(working(summary="Ready: ä 漢 😀")) as server:
        done = shell.with_variables(LC_ALL="C", PYTHONUTF8="0").run("run", "set a to 2", *model(server.base_url))
        server.check()
    assert (done.code, done.out) == (0, "Ready: ä 漢 😀\n")
    assert done.err.count("commands run ") == 1
    for told in (
        "session s-",
        "rebase at 60%",
        "task one: One",
        "run r1 completed",
        "completed and verified",
        "cached",
    ):
        assert told in done.err
    assert (shell.repository / "cfg.py").read_text() == "a = 2\n"


def test_B058_json_mode_has_one_object_whatever_else_is_printed(shell: Shell):
    noisy = ["echo on-stdout; echo on-stderr >&2; grep -q 2 cfg.py"]
    with ScriptedServer(working(checks=noisy)) as server:
        done = shell.with_variables(PYTHONWARNINGS="always").run(
            "run", "set a to 2", *model(server.base_url), "--output", "json", "-v", "--check", noisy[0]
        )
    assert done.code == 0
    assert set(done.record) == set(RECORD_KEYS)
    assert (done.record["outcome"], done.record["verified"], done.record["error"]) == ("completed", True, None)
    assert "reply_received" in done.err
    assert "planner request 1: tool_calls, in " in done.err


def test_M53_M54_the_budget_is_a_choice_and_is_shown_at_the_start(shell: Shell):
    """4,000 tokens of room: at 60 % of it the Planner's history is rebased."""
    with ScriptedServer(working()) as server:
        done = shell.run("run", "set a to 2", *model(server.base_url), "--budget", "4000")
    assert "room for 4,000 tokens, rebase at 60% of it (2,400)" in done.err


def test_M120_jsonl_is_the_log_and_then_the_final_record(shell: Shell):
    with ScriptedServer(working()) as server:
        done = shell.run("run", "set a to 2", *model(server.base_url), "--output", "jsonl", "-q")
    *events, final = done.lines
    assert done.err == ""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "session_started"
    assert events[-1]["type"] == "session_settled"
    assert (final["type"], final["exit_code"]) == ("final", done.code)
    reply = next(event for event in events if event["type"] == "reply_received")
    assert {"finish", "usage", "cost_usd"} <= set(reply)
    assert "sk-" not in done.out


@pytest.mark.parametrize("name", sorted(FAULTS))
@pytest.mark.parametrize("output", ["text", "json"])
def test_B057_provider_faults_have_codes_of_their_own(shell: Shell, name: str, output: str):
    fault, outcome, code = FAULTS[name]
    with ScriptedServer(faulty(fault)) as server:
        done = shell.run("run", "x", *model(server.base_url), *QUICK, "--output", output)
    assert done.code == code
    assert "Traceback" not in done.err
    if output == "text":
        assert done.out == ""
        assert "error" in done.err
    else:
        assert (done.record["outcome"], done.record["exit_code"]) == (outcome, code)
        assert done.record["error"]["class"]
        assert done.record["error"]["message"]


def test_M118_a_limit_is_an_outcome_of_its_own(shell: Shell):
    script = {"planner": [{**call("record_fact", text="again"), "times": 0}]}
    with ScriptedServer(script) as server:
        done = shell.run("run", "x", *model(server.base_url), "--max-steps", "3", "--output", "json")
    assert (done.code, done.record["outcome"], done.record["exit_code"]) == (6, "limit", 6)
    assert done.record["steps"]["planner"] == 3


def test_B057_failure_puts_nothing_on_stdout_that_looks_like_an_answer(shell: Shell):
    with ScriptedServer(finishing("I could not do it.", "failed")) as server:
        done = shell.run("run", "x", *model(server.base_url))
    assert (done.code, done.out) == (3, "")
    assert "I could not do it." in done.err


def test_a_question_is_told_with_the_way_to_answer_it(shell: Shell):
    script = {
        "planner": [
            call("finish", outcome="blocked", summary="Unclear.", question="Which one?"),
            {**call("finish", outcome="completed", summary="The blue one."), "when": "blue"},
        ]
    }
    with ScriptedServer(script, strict=False) as server:
        asked = shell.run("run", "x", *model(server.base_url))
        session = asked.err.split("session ")[1].split()[0]
        answered = shell.run("resume", session, "--message", "blue", "--output", "jsonl")
    assert (asked.code, asked.out) == (5, "")
    assert f"xnagent resume {session} --message" in asked.err
    assert "Which one?" in asked.err
    assert answered.code == 0
    assert answered.lines[0]["type"] == "session_resumed"
    assert answered.lines[-1]["summary"] == "The blue one."


def wait_for_request(server: ScriptedServer) -> None:
    end = time.monotonic() + SECONDS
    while not server.exchanges and time.monotonic() < end:
        time.sleep(0.02)
    assert server.exchanges


@pytest.mark.parametrize(("number", "times", "code"), [(signal.SIGTERM, 1, 143), (signal.SIGINT, 2, 130)])
def test_B060_a_signal_ends_with_a_record_and_can_be_resumed(shell: Shell, number: int, times: int, code: int):
    with (
        ScriptedServer(hanging()) as server,
        shell.started("run", "x", *model(server.base_url), "--output", "jsonl") as process,
    ):
        wait_for_request(server)
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.2)
        out, err = process.communicate(timeout=SECONDS)
    final = json.loads(out.splitlines()[-1])
    assert (process.returncode, final["type"], final["outcome"], final["exit_code"]) == (
        code,
        "final",
        "interrupted",
        code,
    )
    assert b"Traceback" not in err
    with ScriptedServer(finishing("Now it is done."), strict=False) as server:
        done = shell.run("resume", final["session"], "--base-url", server.base_url)
    assert (done.code, done.out) == (0, "Now it is done.\n")


def test_B058_a_reader_that_goes_away_changes_nothing_but_the_output(shell: Shell):
    reader, writer = os.pipe()
    os.close(reader)
    with ScriptedServer(finishing()) as server:
        done = subprocess.run(
            [*XNAGENT, "run", "x", *model(server.base_url), "--output", "jsonl"],
            cwd=shell.repository,
            env=shell.environ,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            check=False,
        )
    os.close(writer)
    assert done.returncode == 0
    assert b"BrokenPipe" not in done.stderr


def test_the_objective_comes_from_stdin_or_a_file_and_is_cleaned(shell: Shell):
    (shell.repository / "task.md").write_bytes(b"\xef\xbb\xbffrom a file \xff\n")
    for arguments, stdin, told in (
        (["-"], b"from stdin", "from stdin"),
        (["-f", "task.md"], None, "from a file \ufffd"),
    ):
        with ScriptedServer(finishing()) as server:
            done = shell.run("run", *arguments, *model(server.base_url), "--ephemeral", "-q", stdin=stdin)
            assert done.code == 0
            assert told in server.bodies[0].decode()
    assert not (shell.home / "sessions").exists()


def test_an_ephemeral_session_leaves_only_its_result(shell: Shell):
    temporary = shell.folder / "tmp"
    temporary.mkdir()
    with ScriptedServer(working()) as server:
        done = shell.with_variables(TMPDIR=str(temporary)).run("run", "x", *model(server.base_url), "--ephemeral")
    assert (done.code, (shell.repository / "cfg.py").read_text()) == (0, "a = 2\n")
    assert list(temporary.iterdir()) == []
    assert not (shell.home / "sessions").exists()


def test_an_error_in_the_middle_is_one_record_too(shell: Shell):
    (shell.home).mkdir()
    (shell.home / "sessions").write_text("in the way")
    with ScriptedServer(finishing()) as server:
        done = shell.run("run", "x", *model(server.base_url), "--output", "json")
    assert done.code == 1
    assert done.record["outcome"] == "error"
    assert done.record["error"]["class"] == "StoreWriteError"
    assert "Traceback" not in done.err
