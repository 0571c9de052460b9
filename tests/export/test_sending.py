"""Spans of real sessions to a real collector, and collectors that are none; what GitHub's runner is told."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.harness import SECONDS, Done, Shell, call, finishing, make_shell, model, working
from tests.export.atif_schema import Trajectory
from tests.export.collecting import Collected, attributes, collector
from xnagent.cli.actions import within_actions
from xnagent.cli.console import Console
from xnagent.cli.tracing import new_trace
from xnagent.export import conventions as names
from xnagent.lab import atif as lab_atif
from xnagent.lab import logs as lab_logs
from xnagent.lab.threads import Recorded, Run
from xnagent.store.files import FileSessions
from xnagent.testing.server import ScriptedServer

SECRET = "sk-0123456789-do-not-tell"
FORMATS = ("atif", "otel", "swebench", "jsonl")
HOSTILE = f"Done <script>alert(1)</script>\n::error::gotcha {SECRET}"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return make_shell(tmp_path)


def in_actions(shell: Shell, **more: str) -> Shell:
    return shell.with_variables(
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(shell.folder / "summary.md"),
        GITHUB_OUTPUT=str(shell.folder / "output"),
        **more,
    )


def session_of(done: Done) -> str:
    return done.err.split("session ")[1].split()[0]


def outputs(shell: Shell) -> dict[str, str]:
    lines = (shell.folder / "output").read_text().splitlines()
    return {lines[n].partition("<<")[0]: lines[n + 1] for n in range(0, len(lines), 3)}


def test_a_session_is_told_to_a_collector_to_the_runner_and_to_every_format(shell: Shell):
    with ScriptedServer(working(summary=HOSTILE)) as server, collector() as (url, collected):
        told = in_actions(shell, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_SERVICE_NAME="mine", SOME_API_KEY=SECRET)
        done = told.run("run", "do it", *model(server.base_url))
    assert done.code == 0, done.err
    assert "OTEL" not in done.err
    session = session_of(done)
    check_spans(collected, session)
    check_runner(told, done, session=session)
    calls = [["export", session, "--format", name, "-o", f"out.{name}"] for name in FORMATS]
    refused = told.many(
        *calls,
        ["export", session, session, "--format", "atif"],
        ["export", session, "--format", "swebench", "--instance", "a", "--instance", "b"],
        ["export", session, "--format", "atif", "--content"],
        ["export", session, "--format", "atif", "--output", "json"],
        ["export", "s-unknown", "--format", "atif"],
        ["export", session, "--format", "html"],
    )[len(calls) :]
    assert [one.code for one in refused] == [2] * 6
    assert not [one for one in refused if one.out and "final" not in one.out]
    read = {name: (shell.repository / f"out.{name}").read_text() for name in FORMATS}
    assert not [name for name, text in read.items() if SECRET in text]
    checked = Trajectory.model_validate_json(read["atif"])
    assert [child.trajectory_id for child in checked.subagent_trajectories] == [f"{session}/r1"]
    offline = json.loads(read["otel"])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    live = {(span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()) for span in collected.spans}
    assert {(one["name"], one["traceId"], one["spanId"], one.get("parentSpanId", "")) for one in offline} == live
    prediction = json.loads(read["swebench"])
    assert (prediction["instance_id"], prediction["model_name_or_path"]) == (session, "xnagent/scripted")
    assert prediction["model_patch"].startswith("diff --git a/cfg.py b/cfg.py")
    assert json.loads(read["jsonl"].splitlines()[-1])["type"] == "final"
    events = FileSessions(shell.home).place(session).events()
    theirs = lab_atif.run_of(json.loads(read["atif"]), name=session)
    assert recorded(theirs) == recorded(lab_logs.run_of(events, name=session))


def recorded(run: Run) -> list[list[Recorded | None]]:
    return sorted(([step.recorded for step in thread.steps] for thread in run.threads), key=str)


def check_spans(collected: Collected, session: str) -> None:
    assert set(collected.paths) == {"/v1/traces"}
    assert collected.resource["service.name"] == "mine"
    (root,) = collected.named("invoke_agent planner")
    (worker,) = collected.named("invoke_agent worker")
    (edit,) = collected.named("execute_tool edit")
    assert root.parent_span_id == b""
    assert worker.parent_span_id == root.span_id
    assert edit.parent_span_id == worker.span_id
    assert {span.trace_id for span in collected.spans} == {root.trace_id}
    assert len({span.span_id for span in collected.spans}) == len(collected.spans)
    chats = [attributes(span.attributes) for span in collected.named("chat scripted")]
    assert {chat[names.CONVERSATION] for chat in chats} == {session}
    assert all(chat[names.INPUT_TOKENS] > 0 and chat[names.FINISH_REASONS] for chat in chats)
    assert names.OUTPUT_MESSAGES not in chats[0]
    assert SECRET not in str(collected.spans)


def check_runner(shell: Shell, done: Done, *, session: str) -> None:
    summary = (shell.folder / "summary.md").read_text()
    assert "completed and verified" in summary
    assert "<script" not in summary
    assert SECRET not in summary
    given = outputs(shell)
    assert (given["session"], given["outcome"], given["exit_code"], given["changed_files"]) == (
        session,
        "completed",
        "0",
        "1",
    )
    assert given["branch"] == f"xnagent/{session}"
    lines = done.err.splitlines()
    stopped = next(n for n, line in enumerate(lines) if line.startswith("::stop-commands::"))
    token = lines[stopped].removeprefix("::stop-commands::")
    assert lines[-1] == f"::{token}::"
    assert not [line for line in lines[stopped + 1 : -1] if token in line]


def test_a_collector_that_hangs_costs_one_warning_and_a_runner_that_can_not_write_another(shell: Shell):
    with ScriptedServer(finishing()) as server, collector(hangs=True) as (url, collected):
        told = in_actions(shell, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{url}/here")
        (shell.folder / "summary.md").mkdir()
        done = told.run("run", "do it", *model(server.base_url))
    assert (done.code, done.out) == (0, "All done.\n")
    assert done.err.count("OTEL_FAILED") == 1
    assert done.err.count("GITHUB_FAILED") == 1
    assert "Traceback" not in done.err
    assert set(collected.paths) <= {"/here"}


def test_a_resumed_session_goes_on_in_the_same_trace_and_a_failure_is_annotated(shell: Shell):
    script = {
        "planner": [
            call("finish", outcome="blocked", summary="Unclear.", question="Which one?"),
            {**call("finish", outcome="completed", summary="The blue one."), "when": "blue"},
        ]
    }
    with ScriptedServer(script, strict=False) as server, collector() as (url, collected):
        told = in_actions(shell, OTEL_EXPORTER_OTLP_ENDPOINT=url)
        asked = told.run("run", "x", *model(server.base_url))
        first = len(collected.spans)
        answered = told.run("resume", session_of(asked), "--message", "blue")
    assert (asked.code, answered.code) == (5, 0)
    assert asked.err.splitlines()[-1].startswith("::warning title=xnagent::blocked (exit code 5)")
    before, after = collected.named("invoke_agent planner")
    assert first > 0
    assert after.trace_id == before.trace_id
    assert after.parent_span_id == before.span_id
    assert len({span.span_id for span in collected.spans}) == len(collected.spans)
    assert attributes(before.attributes)["xnagent.outcome"] == "blocked"
    assert outputs(shell)["exit_code"] == "0"


def instances(shell: Shell, *lines: dict[str, object]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (shell.folder / "instances.jsonl").write_text(text)


def test_instances_of_swe_bench_become_predictions_once_each_whatever_is_lost(shell: Shell):
    head = shell.git("rev-parse", "HEAD").strip()
    (shell.folder / "repos").mkdir()
    (shell.folder / "repos" / "o__n").symlink_to(shell.repository)
    gold = {"patch": "GOLD-PATCH", "test_patch": "GOLD-TESTS", "hints_text": "GOLD-HINT"}
    line = {"repo": "o/n", "problem_statement": "a should be 2", **gold}
    instances(
        shell,
        {"instance_id": "o__n-1", "base_commit": head, **line},
        {"instance_id": "o__n-2", "base_commit": "f" * 40, **line},
    )
    place = shell.folder / "predictions.jsonl"
    batch = [
        "batch",
        "../instances.jsonl",
        "--format",
        "swebench",
        "--out",
        "../predictions.jsonl",
        "--repos",
        "../repos",
    ]
    with ScriptedServer(working()) as server, collector() as (url, collected):
        told = in_actions(shell, OTEL_EXPORTER_OTLP_ENDPOINT=url)
        done = told.run(*batch, *model(server.base_url))
        sent = str([exchange.request.body for exchange in server.exchanges])
    assert done.code == 4, done.err
    lines = [json.loads(line) for line in place.read_text().splitlines()]
    found = {line["instance_id"]: line for line in lines}
    assert set(found) == {"o__n-1", "o__n-2"}
    assert "+a = 2" in found["o__n-1"]["model_patch"]
    assert found["o__n-2"]["model_patch"] == ""
    assert {tuple(line) for line in lines} == {("instance_id", "model_name_or_path", "model_patch")}
    assert "a should be 2" in sent
    assert "GOLD" not in sent
    assert shell.git("status", "--porcelain") == ""
    results = (shell.folder / "predictions.results.jsonl").read_text()
    assert len(results.splitlines()) == 2
    assert len(collected.named("invoke_agent planner")) == 1
    assert "1 of 2 jobs completed" in (shell.folder / "summary.md").read_text()
    assert outputs(shell)["completed"] == "1"

    first, second = sorted(place.read_bytes().splitlines(keepends=True))
    place.write_bytes(second + first[:20])
    again, wrong, nowhere, other = shell.many(
        [*batch, *model("http://127.0.0.1:9")],
        [*batch[:5], "../predictions.json", *model("http://127.0.0.1:9")],
        [*batch[:-1], "../nowhere", *model("http://127.0.0.1:9")],
        ["batch", "../instances.jsonl", "--out", "../r.jsonl", "--repos", "../repos", *model("http://127.0.0.1:9")],
    )
    assert again.code == 4, again.err
    assert sorted(place.read_bytes().splitlines(keepends=True)) == [first, second]
    assert (shell.folder / "predictions.results.jsonl").read_text() == results
    assert [one.code for one in (wrong, nowhere, other)] == [2, 2, 2]
    assert "NO_FOLDER" in nowhere.err


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "TRUE"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_no_spans_are_sent_where_the_environment_wants_none(environ: dict[str, str], capfd: pytest.CaptureFixture[str]):
    assert new_trace(environ, Console(1)) is None
    assert capfd.readouterr().err.count("OTEL_FAILED") == ("OTEL_EXPORTER_OTLP_PROTOCOL" in environ)


def test_opentelemetry_is_loaded_only_with_an_endpoint_and_its_absence_is_one_warning(shell: Shell):
    """In a Python whose path lacks the extra."""
    program = """
import os, sys
from xnagent.cli.console import Console
import xnagent.cli.run, xnagent.cli.batch, xnagent.cli.tracing as tracing
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
sys.modules["opentelemetry"] = None
trace = tracing.new_trace({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, Console(1))
trace.close()
trace.close()
"""
    done = run_python(shell, program)
    assert done.code == 0, done.err
    assert done.err.count("pip install 'xnagent[otel]'") == 1


def run_python(shell: Shell, program: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-c", program], env=shell.environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)


def test_nothing_is_told_outside_of_actions(capfd: pytest.CaptureFixture[str]):
    with within_actions({"GITHUB_ACTIONS": "false"}, Console(1)) as actions:
        assert actions is None
    assert capfd.readouterr().err == ""
