"""Exports of made logs: what each format must hold, whatever the log holds."""

import html
import json
import os
import subprocess
from pathlib import Path

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.export.atif_schema import Trajectory
from tests.inspect import test_report as made
from tests.inspect.long import long_reading
from xnagent.core import events as ev
from xnagent.core import spine_events as sp
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, CallId, RunId, SessionId, TaskId
from xnagent.core.items import AssistantText, Reasoning, ToolCall, UserText
from xnagent.core.masking import Secret, mask_of
from xnagent.core.record import final_record
from xnagent.core.tokens import Usage
from xnagent.export import atif, github, otlp
from xnagent.export import conventions as names
from xnagent.export.spans import Span
from xnagent.export.swebench import prediction, source_patch
from xnagent.export.tracer import Tracer, spans_of
from xnagent.export.trajectory import readable
from xnagent.inspect.reading import Reading
from xnagent.lab import atif as lab_atif
from xnagent.lab import logs as lab_logs

HARBOR = os.environ.get("XNAGENT_HARBOR_PYTHON", "")
VALIDATE = "import sys; from harbor.models.trajectories import Trajectory as T; T.model_validate_json(sys.stdin.read())"
MANIFEST = sp.ManifestRecorded(
    manifest="m",
    role="planner",
    wire="chat",
    model="a-model",
    system="You plan.",
    tools='[{"name":"delegate","description":"d","parameters":{"type":"object"}}]',
    max_output_tokens=100,
    window_tokens=1_000,
)


def log(*events: ev.Event, is_live: bool = False) -> Reading:
    stored = tuple(
        ev.Stored(seq=seq, at=f"2026-01-01T00:00:{seq:02}.000Z", event=event) for seq, event in enumerate(events, 1)
    )
    state = fold_all(one.event for one in stored)
    return Reading(session=SessionId("s-1"), state=state, events=stored, records=(), is_live=is_live)


def delegating() -> tuple[ev.Event, ...]:
    call = ToolCall(call_id=CallId("c1"), name="delegate", arguments='{"task":"one"')
    return (
        ev.SessionStarted(session=SessionId("s-1"), objective="do it", version="9.9"),
        MANIFEST,
        sp.SpineExtended(agent=PLANNER, kind="objective", items=(UserText(text="do it", origin="user"),)),
        made.started(1),
        sp.ReplyReceived(
            agent=PLANNER,
            request=1,
            items=(Reasoning(wire="chat", payload="Hmm."), AssistantText(text="I delegate."), call),
            usage=Usage(input_tokens=100, cached_tokens=40, cache_write_tokens=10, output_tokens=7, reasoning_tokens=2),
            cost_usd=0.5,
            finish="tool_calls",
            duration_seconds=0.5,
        ),
        ev.TaskAdded(task=TaskId("one"), title="One", objective="x"),
        ev.RunStarted(run=RunId("r1"), task=TaskId("one"), brief="do one"),
        sp.ToolFinished(agent=PLANNER, call_id=CallId("c1"), tool="delegate", text='{"run":"r1"}'),
        ev.RunLaunched(run=RunId("r1"), base="c0"),
    )


def test_a_long_session_is_a_valid_trajectory_with_one_sub_trajectory_for_each_run():
    reading = long_reading(200)
    made_of = atif.document(reading)
    checked = Trajectory.model_validate(made_of)
    assert [child.extra["run"] for child in checked.subagent_trajectories] == list(reading.state.board.runs)
    totals = [one.final_metrics for one in (checked, *checked.subagent_trajectories)]
    whole = final_record(reading.state)["usage"]
    assert sum(one.total_prompt_tokens or 0 for one in totals) == whole["input_tokens"]
    assert sum(one.total_cached_tokens or 0 for one in totals) == whole["cached_tokens"]
    assert sum(one.total_completion_tokens or 0 for one in totals) == whole["output_tokens"]
    assert checked.final_metrics.total_cost_usd == whole["cost_usd"]
    assert atif.document(reading) == made_of


def test_the_laboratory_reads_the_same_numbers_from_the_trajectory_as_from_the_log():
    reading = long_reading(200)
    told = json.loads(json.dumps(atif.document(reading)))
    ours, theirs = lab_logs.run_of(reading.events, name="s"), lab_atif.run_of(told, name="s")
    kept = [[(step.recorded, step.is_compacted, len(step.results)) for step in one.steps] for one in ours.threads]
    read = [[(step.recorded, step.is_compacted, len(step.results)) for step in one.steps] for one in theirs.threads]
    assert sorted(map(str, read)) == sorted(map(str, kept))
    assert len(kept) > 2


@pytest.mark.skipif(not HARBOR, reason="scripts/check-peers says with which Python Harbor's own models are asked")
def test_harbors_own_models_take_the_trajectory():
    for reading in (long_reading(200), log(*delegating()), made.reading(), log(delegating()[0])):
        document = json.dumps(atif.document(reading))
        done = subprocess.run([HARBOR, "-c", VALIDATE], input=document, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2_000:]


def test_a_step_holds_what_the_model_said_and_what_it_cost():
    document = atif.document(log(*delegating()))
    checked = Trajectory.model_validate(document)
    system, objective, step = checked.steps
    assert (system.source, system.message, objective.source) == ("system", "You plan.", "user")
    assert (step.message, step.reasoning_content, step.model_name) == ("I delegate.", "Hmm.", "a-model")
    assert step.metrics.model_dump(exclude={"extra"}) == {
        "prompt_tokens": 100,
        "cached_tokens": 40,
        "completion_tokens": 7,
        "cost_usd": 0.5,
    }
    assert step.metrics.extra["cache_write_tokens"] == 10
    (call,) = step.tool_calls
    assert (call.arguments, call.extra) == ({}, {"raw_arguments": '{"task":"one"'})
    (result,) = step.observation.results
    assert result.subagent_trajectory_ref[0].trajectory_id == "s-1/r1"
    (child,) = checked.subagent_trajectories
    assert [one.message for one in child.steps] == ["do one"]
    assert child.agent.extra["role"] == "worker"
    assert checked.agent.tool_definitions[0]["function"]["name"] == "delegate"


def test_an_unknown_number_is_left_out_and_an_empty_log_is_a_trajectory_too():
    document = atif.document(made.reading())
    checked = Trajectory.model_validate(document)
    (child,) = checked.subagent_trajectories
    assert child.final_metrics.total_cost_usd is None
    assert "total_cost_usd" not in document["final_metrics"]
    notes = [step.message for step in checked.steps if step.extra["kind"] == "note"]
    assert notes == ["Request 3 failed (authentication): no"]
    (only,) = Trajectory.model_validate(atif.document(log(delegating()[0]))).steps
    assert (only.source, only.message) == ("user", "do it")


@pytest.mark.parametrize(
    ("wire", "payload", "expected"),
    [
        ("chat", "plain", "plain"),
        ("messages", '{"type":"thinking","thinking":"so","signature":"sealed"}', "so"),
        (
            "responses",
            '{"type":"reasoning","summary":[{"type":"summary_text","text":"short"}],"encrypted_content":"x"}',
            "short",
        ),
        ("messages", '{"type":"redacted_thinking","data":"sealed"}', ""),
        ("chat:extra_content", '[{"thought":{"text":"signature"}}]', ""),
        ("responses", "no JSON", ""),
    ],
)
def test_only_the_readable_part_of_reasoning_goes_out(wire: str, payload: str, expected: str):
    assert readable([Reasoning(wire=wire, payload=payload)]) == expected


def test_secrets_are_masked_in_trajectories_and_spans():
    secret = "sk-0123456789-do-not-tell"
    mask = mask_of([Secret(name="A_KEY", value=secret)])
    told = sp.SpineExtended(agent=PLANNER, kind="message", items=(UserText(text=f"use {secret}", origin="user"),))
    reading = log(*delegating(), told, made.started(2), made.reply(2, Usage(input_tokens=1)))
    for document in (
        atif.document(reading, mask=mask),
        otlp.document(otlp.masked(span, mask) for span in spans_of(reading.events, has_content=True)),
    ):
        text = json.dumps(document)
        assert secret not in text
        assert "[secret:A_KEY]" in text


def named(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def test_spans_have_the_shape_of_the_session_and_its_numbers():
    end = ev.SessionSettled(outcome="completed", exit_code=0)
    spans = list(spans_of(log(*delegating(), ev.RunSettled(run=RunId("r1"), status="failed"), end).events))
    (root,) = named(spans, "invoke_agent planner")
    (worker,) = named(spans, "invoke_agent worker")
    (chat,) = named(spans, "chat a-model")
    (call,) = named(spans, "execute_tool delegate")
    assert root.parent is None
    assert {one.parent for one in (worker, chat, call)} == {root.span}
    assert worker.links == (call.span,)
    assert len({span.trace for span in spans}) == 1
    assert (root.error, worker.error, chat.kind) == (None, "failed", "client")
    wanted = {
        names.OPERATION: "chat",
        names.CONVERSATION: "s-1",
        names.REQUEST_MODEL: "a-model",
        names.INPUT_TOKENS: 100,
        names.OUTPUT_TOKENS: 7,
        names.CACHE_READ: 40,
        names.CACHE_WRITE: 10,
        names.CACHE_CREATION: 10,
        names.REASONING_TOKENS: 2,
        names.FINISH_REASONS: ["tool_calls"],
    }
    assert {name: chat.attributes[name] for name in wanted} == wanted
    assert worker.attributes[names.ERROR] == "failed"
    assert not {name for span in spans for name in span.attributes} & {names.INPUT_MESSAGES, names.OUTPUT_MESSAGES}
    assert "I delegate." not in str(spans)


def test_content_goes_into_spans_only_if_it_is_asked_for_and_each_message_once():
    spans = list(spans_of(log(*delegating(), made.started(2)).events, has_content=True))
    first, second = named(spans, "chat a-model")
    assert "do it" in first.attributes[names.INPUT_MESSAGES]
    assert "I delegate." in first.attributes[names.OUTPUT_MESSAGES]
    assert "do it" not in second.attributes[names.INPUT_MESSAGES]
    assert "tool_call_response" in second.attributes[names.INPUT_MESSAGES]
    assert named(spans, "execute_tool delegate")[0].attributes[names.TOOL_RESULT] == '{"run":"r1"}'


def test_a_process_that_goes_on_gives_out_what_the_one_before_did_not():
    asked = sp.ReplyReceived(
        agent=AgentId("r1"),
        request=2,
        items=(ToolCall(call_id=CallId("c9"), name="bash", arguments="{}"),),
        usage=Usage(),
        cost_usd=None,
        finish="tool_calls",
        duration_seconds=0.5,
    )
    begun = sp.ToolStarted(agent=AgentId("r1"), call_id=CallId("c9"), tool="bash", effect="opaque")
    killed = log(*delegating(), made.started(2, "r1"), asked, begun)
    whole = (
        *(one.event for one in killed.events),
        ev.SessionResumed(epoch=2),
        sp.ToolFinished(agent=AgentId("r1"), call_id=CallId("c9"), tool="bash", text="?", code="INTERRUPTED"),
        ev.RunSettled(run=RunId("r1"), status="completed"),
        ev.SessionSettled(outcome="completed", exit_code=0),
    )
    first, second = Tracer(), Tracer()
    sent = [span for one in killed.events for span in first.take(one)]
    events = log(*whole).events
    for one in killed.events:
        second.take(one)
    more = [span for one in events[len(killed.events) :] for span in second.take(one)]
    assert [*sent, *more] == list(spans_of(events))
    assert sent
    assert len({span.span for span in [*sent, *more]}) == len(sent) + len(more)
    before, after = named(more, "invoke_agent planner")
    assert (before.error, before.parent, after.parent, after.error) == ("interrupted", None, before.span, None)
    assert [span.error for span in named(more, "execute_tool bash")] == ["interrupted", "INTERRUPTED"]
    assert {span.trace for span in sent} == {span.trace for span in more}


def test_errors_and_retries_stand_at_their_requests():
    spans = list(spans_of(made.reading(made.SETTLED).events))
    failed = [span for span in spans if span.error == "authentication"]
    assert [span.attributes["xnagent.request"] for span in failed] == [3]
    retried = [moment for span in spans for moment in span.moments if moment.name == "xnagent.retry"]
    assert [moment.attributes[names.ERROR] for moment in retried] == ["overloaded"]
    (root,) = named(spans, "invoke_agent planner")
    assert root.error == "x"
    assert {"xnagent.rebase"} <= {moment.name for moment in root.moments}


def test_otlp_json_is_what_a_collector_reads():
    spans = list(spans_of(long_reading(100).events))
    document = otlp.document(spans)
    request = json_format.ParseDict(document, ExportTraceServiceRequest())
    (scope,) = request.resource_spans[0].scope_spans
    assert len(scope.spans) == len(spans)
    ids = {span["spanId"] for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]}
    assert all(span.parent is None or span.parent in ids for span in spans)
    assert all(span.start <= span.end for span in spans)


PATCH = b"""\
diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1 +1,2 @@
-a = 1
+a = 2
+diff --git a/tests/x b/tests/x
diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -1 +1 @@
-1
+2
diff --git a/pic.png b/pic.png
index 1..2 100644
GIT binary patch
literal 1
Ic

diff --git a/django/test/client.py b/django/test/client.py
new file mode 100644
--- /dev/null
+++ b/django/test/client.py
@@ -0,0 +1 @@
+x
diff --git a/odd.py b/odd.py
--- a/odd.py
+++ b/odd.py
@@ -1 +1 @@
-\xff
+1
diff --git a/old name.py b/new name.py
similarity index 100%
rename from old name.py
rename to new name.py
diff --git a/pkg.egg-info/PKG b/pkg.egg-info/PKG
--- a/pkg.egg-info/PKG
+++ b/pkg.egg-info/PKG
@@ -1 +1 @@
-1
+2
"""


def test_a_prediction_holds_source_files_whole_and_nothing_else():
    kept = source_patch(PATCH).decode()
    heads = [line for line in kept.splitlines() if line.startswith("diff --git")]
    assert heads == [
        "diff --git a/src/a.py b/src/a.py",
        "diff --git a/django/test/client.py b/django/test/client.py",
        "diff --git a/old name.py b/new name.py",
    ]
    assert "+diff --git a/tests/x b/tests/x\n" in kept
    assert prediction("o__n-1", model="m", patch=None) == {
        "instance_id": "o__n-1",
        "model_name_or_path": "xnagent/m",
        "model_patch": "",
    }


HOSTILE = (
    "</td><script>x</script> [a](javascript:b) ![i](//c) `d` **e** | f @g #1 :h: \x1b[31m \u202e __init__ $x$"
    "\n::error::i\n# j"
)


@given(st.text(max_size=80) | st.just(HOSTILE))
def test_hostile_text_is_inert_in_a_summary_and_reads_the_same(text: str):
    shown = github.inert(text, 400)
    assert not set(shown.replace("&#", "").replace(";", "")) & set("<>[]!`*|@:_$\\{}~\n\r\x1b\u202e#")
    assert html.unescape(shown).isprintable() or not text.isprintable()


def test_a_summary_of_hostile_words_holds_no_markup_of_theirs_and_is_bounded():
    session = ev.SessionStarted(session=SessionId("s-1"), objective=HOSTILE)
    task = ev.TaskAdded(task=TaskId("one"), title=HOSTILE, objective="x")
    applied = ev.ResultApplied(is_applied=True, branch="b", changed_files=tuple(f"{n}{HOSTILE}" for n in range(3_000)))
    settled = ev.SessionSettled(outcome="error", exit_code=1, error=HOSTILE * 900, error_class="X", summary=HOSTILE)
    state = log(session, task, applied, settled).state
    text = github.summary(final_record(state), state)
    assert len(text.encode()) <= github.SUMMARY_BYTES
    assert "<script" not in text
    assert "](" not in text
    assert "3000 changed files" in text


def test_a_command_and_outputs_can_not_be_left():
    settled = ev.SessionSettled(outcome="failed", exit_code=3, error="100%\r\n::set-output name=a::b", error_class="X")
    record = final_record(log(delegating()[0], settled).state)
    note = github.annotation(record)
    assert note == "::error title=xnagent::failed (exit code 3): 100%25%0D%0A::set-output name=a::b".replace(
        "%0D", "\\r"
    )
    assert github.command("error", "x", title="a:b,c\nd") == "::error title=a%3Ab%2Cc%0Ad::x"
    text = github.output_text({"a": "1\nb=2", "c": ""}, "END")
    assert text == "a<<END\n1\nb=2\nEND\nc<<END\n\nEND\n"
    assert set(github.outputs(record)) == {
        "session",
        "outcome",
        "exit_code",
        "verified",
        "branch",
        "applied",
        "changed_files",
        "requests",
        "cost_usd",
    }


def test_the_documented_workflow_names_what_there_is():
    root = Path(__file__).resolve().parents[2]
    workflow = (root / "configs/github-workflow.yml").read_text()
    known = set(github.outputs(final_record(log(*delegating()).state)))
    used = {part.split("}")[0].split()[0] for part in workflow.split("steps.agent.outputs.")[1:]}
    assert used
    assert used <= known
