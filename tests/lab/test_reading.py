"""Recordings of all kinds become the same threads, in sizes that follow what the provider reported."""

import gzip
import json
from pathlib import Path

import pytest

from xnagent.core.tokens import PER_MESSAGE, estimate_text
from xnagent.errors import UsageError
from xnagent.lab.reading import read_runs
from xnagent.lab.threads import Thread

FILE = "x" * 1_000


def usage(prompt: int, cached: int = 0, written: int = 0) -> dict[str, int]:
    return {"input": prompt - cached - written, "cached_read": cached, "cache_write": written, "output": 50}


def call(name: str, number: int, **arguments: str) -> dict[str, object]:
    return {"id": f"c{number}", "name": name, "arguments": json.dumps(arguments)}


MESSAGES = [
    {"role": "user", "content": "port it"},
    {
        "role": "assistant",
        "content": "",
        "usage": usage(10_000),
        "timestamp": "2026-01-01T00:00:00.000Z",
        "tool_calls": [call("Read", 1, file_path="a.py"), call("Bash", 2, command="ls -la src")],
    },
    {"role": "tool", "tool_call_id": "c1", "content": FILE},
    {"role": "tool", "tool_call_id": "c2", "content": "a.py"},
    {"role": "marker", "event": "model_change"},
    {
        "role": "assistant",
        "content": "now",
        "usage": usage(11_000, 10_000),
        "timestamp": "2026-01-01T00:01:00.000Z",
        "tool_calls": [call("Read", 3, file_path="a.py"), call("Edit", 4, file_path="b.py")],
    },
    {"role": "tool", "tool_call_id": "c3", "content": FILE},
    {"role": "tool", "tool_call_id": "c4", "content": "done"},
    {"role": "marker", "event": "compaction", "pre_tokens": 11_000},
    {"role": "user", "kind": "compaction_summary", "content": "y" * 9_000},
    {"role": "user", "kind": "attachment:file", "content": FILE},
    {"role": "assistant", "content": "the end", "usage": usage(9_500, 9_000), "timestamp": "2026-01-01T00:02:00.000Z"},
    {"role": "user", "agent_id": "sub", "content": "look"},
    {"role": "assistant", "agent_id": "sub", "content": "seen"},
    {"role": "assistant", "agent_id": "acompact-1", "content": "a summary"},
    {"role": "user", "agent_id": "idle", "content": "nobody answered"},
]
RUN = {"id": "one", "agent": "claude-code", "messages": MESSAGES}


def threads(path: Path) -> list[Thread]:
    return [thread for run in read_runs(path) for thread in run.threads]


def corpus(folder: Path, *runs: object, name: str = "runs.jsonl") -> Path:
    text = "".join(json.dumps(run) + "\n" for run in runs)
    file = folder / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return file


def test_a_corpus_run_becomes_one_thread_for_each_agent(tmp_path: Path):
    main, sub = threads(corpus(tmp_path, RUN))
    assert [thread.name for thread in (main, sub)] == ["one", "one/sub"]
    assert [len(thread.steps) for thread in (main, sub)] == [3, 1]
    assert [step.at - main.steps[0].at for step in main.steps] == [0.0, 60.0, 120.0]


def test_M59_sizes_follow_the_growth_of_the_reported_prompts(tmp_path: Path):
    main, _sub = threads(corpus(tmp_path, RUN))
    first, second, _last = main.steps
    assert first.reply_tokens + second.new_tokens == pytest.approx(1_000, abs=3)
    assert second.results[0].tokens > 10 * second.results[1].tokens


def test_the_head_is_what_the_first_prompt_holds_besides_its_text_and_older_history_is_told_apart(tmp_path: Path):
    main, _sub = threads(corpus(tmp_path, RUN))
    assert main.head_tokens == 9_500
    assert main.head_tokens + main.steps[0].new_tokens == pytest.approx(10_000, abs=3)
    whole = [*MESSAGES[:8]]
    (plain,) = threads(corpus(tmp_path, {**RUN, "messages": whole}, name="plain.jsonl"))
    assert plain.head_tokens + plain.steps[0].user_tokens == 10_000


def test_a_compaction_takes_its_summary_and_attachments_out_of_the_work(tmp_path: Path):
    main, _sub = threads(corpus(tmp_path, RUN))
    last = main.steps[-1]
    assert last.is_compacted
    assert last.user_tokens == 0
    assert last.result_tokens < 1_500


def test_calls_that_only_look_are_told_from_those_that_change(tmp_path: Path):
    main, _sub = threads(corpus(tmp_path, RUN))
    shown = [(result.path, result.is_read_only) for step in main.steps for result in step.results]
    assert shown[-4:] == [("a.py", True), ("", True), ("a.py", True), ("b.py", False)]
    same = [result.digest for step in main.steps for result in step.results if result.path == "a.py"]
    assert len(set(same)) == 1


def test_without_reports_the_estimates_stand(tmp_path: Path):
    bare = [{key: value for key, value in message.items() if key != "usage"} for message in MESSAGES[:6]]
    (plain,) = threads(corpus(tmp_path, {"id": "two", "system": "s" * 100, "messages": bare}))
    assert plain.head_tokens == PER_MESSAGE + 30
    assert plain.steps[1].results[0].tokens == PER_MESSAGE + estimate_text(FILE)


def test_compressed_files_and_folders_are_read_in_order(tmp_path: Path):
    corpus(tmp_path, {**RUN, "id": "b"}, name="2.jsonl.gz")
    corpus(tmp_path, {**RUN, "id": "a"}, name="1.jsonl")
    (tmp_path / "README.md").write_text("no runs")
    assert [run.name for run in read_runs(tmp_path)] == ["a", "b"]


def test_an_ATIF_trajectory_becomes_threads_with_its_sub_agents(tmp_path: Path):
    steps = [
        {"step_id": 1, "source": "system", "message": "s" * 100},
        {"step_id": 2, "source": "user", "message": "port it"},
        {
            "step_id": 3,
            "source": "agent",
            "message": "I look",
            "timestamp": "2026-01-01T00:00:00Z",
            "tool_calls": [{"tool_call_id": "c", "function_name": "read", "arguments": {"path": "a.py"}}],
            "observation": {"results": [{"source_call_id": "c", "content": FILE}]},
            "metrics": {"prompt_tokens": 400, "completion_tokens": 20, "cached_tokens": 0},
        },
        {"step_id": 4, "source": "agent", "message": "", "llm_call_count": 0},
        {"step_id": 5, "source": "agent", "message": "done", "metrics": {"prompt_tokens": 800, "cached_tokens": 384}},
    ]
    child = {"trajectory_id": "child", "agent": {"name": "x"}, "steps": steps[1:3]}
    whole = {"schema_version": "ATIF-v1.8", "session_id": "s-1", "agent": {"name": "x"}, "steps": steps}
    file = tmp_path / "one.json"
    file.write_text(json.dumps({**whole, "subagent_trajectories": [child]}))
    main, sub = threads(file)
    assert [(thread.name, len(thread.steps)) for thread in (main, sub)] == [("s-1", 2), ("s-1/child", 1)]
    assert main.steps[1].results[0].path == "a.py"
    assert main.steps[0].reply_tokens + main.steps[1].new_tokens == pytest.approx(400, abs=3)
    assert main.steps[1].recorded is not None
    assert main.steps[1].recorded.cached == 384


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl", b"{}\n", "a.jsonl:1: no run in the corpus' schema"),
        ("a.jsonl", b'\n{"messages": []}\n{oh\n', "a.jsonl:3: no JSON"),
        ("a.jsonl.gz", b"plain", "a.jsonl.gz: Not a gzipped file"),
        ("a.jsonl.gz", gzip.compress(b"x" * 999, mtime=0)[:-9], "a.jsonl.gz: Compressed file ended"),
        ("a.json", b"[]", "a.json: no ATIF trajectory"),
        ("a.json", b"[" * 99_999, "a.json: no JSON"),
        ("a.json", b"\xff\xfe", "a.json: it is no UTF-8 text"),
    ],
    ids=["another schema", "broken line", "not compressed", "cut short", "a list", "nested deeply", "no text"],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path: Path, name: str, content: bytes, reason: str):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"^RUN_UNREADABLE: ") as caught:
        list(read_runs(file))
    assert reason in str(caught.value)


def test_a_folder_without_runs_is_told(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no \.jsonl"):
        list(read_runs(tmp_path))


@pytest.mark.parametrize("broken", [None, 3, "text", [], [3], {"role": "assistant", "tool_calls": [{"id": 3}]}])
def test_fields_of_another_type_are_taken_for_empty(tmp_path: Path, broken: object):
    odd = {"role": "assistant", "content": broken, "usage": broken, "tool_calls": broken, "timestamp": broken}
    run = {"id": broken, "tools": broken, "system": broken, "messages": [odd, broken, {"role": "tool"}, odd]}
    (found,) = read_runs(corpus(tmp_path, run))
    assert found.steps == 2 + isinstance(broken, dict)


def test_numbers_without_end_and_half_surrogate_pairs_of_others_do_not_stop_the_lab(tmp_path):
    reply = {"role": "assistant", "content": "\ud800", "usage": {"input": float("inf"), "output": float("nan")}}
    odd = {"id": "one\ud800", "agent": "c", "messages": [{"role": "user", "content": "go"}, reply]}
    (tmp_path / "odd.jsonl").write_text(json.dumps(odd) + "\n")
    (run,) = read_runs(tmp_path / "odd.jsonl")
    assert run.name == "one\ufffd"
    assert [thread.steps[0].recorded for thread in run.threads] == [None]
