"""The file of jobs is checked whole, and the file of results survives whatever happens to it."""

import json
import os
from pathlib import Path

import pytest

from xnagent.app.host import Host
from xnagent.batch.dispatch import BatchEnd
from xnagent.batch.failure import TerminatedError, exit_code_of, failure_record, message_of
from xnagent.batch.jobs import Defaults, Job, read_jobs
from xnagent.batch.plan import session_of
from xnagent.batch.results import open_results
from xnagent.config import Settings
from xnagent.core.record import final_record
from xnagent.core.state import SessionState
from xnagent.errors import Caught, ModelError, PrefixBrokenError, StoreBusyError, UsageError, first_cause

SETTINGS = Settings.model_validate({"planner": {"model": {"name": "scripted"}}, "checks": ["true"]})


def jobs_of(folder: Path, *lines: str | dict[str, object] | bytes) -> list[Job]:
    path = folder / "jobs.jsonl"
    encoded = [
        line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode()
        for line in lines
    ]
    path.write_bytes(b"\n".join(encoded))
    return read_jobs(path, Host(home=folder, environ={}), defaults=Defaults(repository=folder, settings=SETTINGS))


def test_a_job_needs_only_an_objective(tmp_path: Path):
    first, second = jobs_of(
        tmp_path,
        b'\xef\xbb\xbf{"objective":"a"}\r',
        "",
        {"id": "two", "repo": "sub", "objective": "b", "checks": ["x"], "model": "gpt", "limits": {"usd": 2}}
        | {"model": "scripted"},
    )
    assert first.job.startswith("j-")
    assert len(first.job) == 14
    assert (first.repository, first.settings) == (str(tmp_path), SETTINGS)
    assert (second.job, second.repository) == ("two", str(tmp_path / "sub"))
    assert (second.settings.limits.usd, second.settings.checks) == (2.0, ("true", "x"))
    assert second.settings.worker.model.name == "scripted"
    assert jobs_of(tmp_path, '{"objective":"a"}')[0].job == first.job


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"objective": "a"', "no JSON"),
        ("[]", "not an object"),
        ("\x00" * 20, "no JSON"),
        (b"\xff", "no JSON"),
        ('{"objective": "a", "objective": "b"}', "twice"),
        ('{"objective": NaN}', "NaN"),
        ("{}", '"objective" is missing'),
        ({"objective": " "}, '"objective"'),
        ({"objective": 5}, '"objective"'),
        ({"objectiv": "a"}, 'did you mean "objective"'),
        ({"objective": "a", "id": ""}, '"id"'),
        ({"objective": "a", "id": 5}, '"id"'),
        ({"objective": "a", "checks": "x"}, '"checks"'),
        ({"objective": "a", "limits": 5}, '"limits"'),
        ({"objective": "a", "limits": {"uds": 5}}, 'did you mean "limits.usd"'),
        ({"objective": "a", "limits": {"usd": "x"}}, '"limits.usd"'),
        ({"objective": "a", "model": "nobody"}, "nobody"),
        ({"objective": "a", "model": "gpt-5"}, "OPENAI_API_KEY"),
        ({"objective": "a", "repo": "ext::sh -c id"}, "ADDRESS_REFUSED"),
        ({"objective": "a", "repo": "https://example.invalid/x.git?token=1"}, "ADDRESS_REFUSED"),
        ({"objective": "a", "repo": "https://me:secret@example.invalid/x.git"}, "GIT_LOGIN"),
        ({"objective": "a", "commit": 5}, "must be a text"),
        ({"objective": "a", "id": "good"}, "JOB_TWICE"),
    ],
)
def test_B061_a_wrong_line_is_told_with_file_and_line(tmp_path: Path, line: str | dict[str, object] | bytes, told: str):
    with pytest.raises(UsageError) as caught:
        jobs_of(tmp_path, {"objective": "fine", "id": "good"}, line)
    assert f"{tmp_path / 'jobs.jsonl'}:2" in str(caught.value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_jobs_and_no_file_are_errors(tmp_path: Path):
    for wrong in ("missing.jsonl", "."):
        with pytest.raises(UsageError):
            read_jobs(
                tmp_path / wrong,
                Host(home=tmp_path, environ={}),
                defaults=Defaults(repository=tmp_path, settings=SETTINGS),
            )
    with pytest.raises(UsageError, match="no jobs"):
        jobs_of(tmp_path, "", "  ")


TORN = {
    "a fragment": (b'{"id":"1"}\n{"id":"2"}\n{"id":"3","tex', ["1", "2"], 1),
    "a block of zeros": (b'{"id":"1"}\n' + b"\x00" * 300 + b'\n{"id":"3"}\n', ["1", "3"], 1),
    "glued": (b'{"id":"1"}\n{"id":"2","t{"id":"3"}\n', ["1"], 1),
    "only the newline is missing": (b'{"id":"1"}\n{"id":"2"}', ["1", "2"], 0),
    "zeros at the end": (b'{"id":"1"}\n' + b"\x00" * 300, ["1"], 1),
}


@pytest.mark.parametrize("name", sorted(TORN))
def test_B052_a_damaged_file_of_results_goes_on(tmp_path: Path, name: str):
    content, readable, problems = TORN[name]
    path = tmp_path / "results.jsonl"
    path.write_bytes(content)
    with open_results(path) as results:
        assert list(results.done) == readable
        assert len(results.problems) == problems
        assert all(str(path) in problem for problem in results.problems)
        results.append("4", {"text": "😀 \ud83d", "exit_code": 0})
    lines = path.read_bytes().split(b"\n")
    assert json.loads(lines[-2]) == {"id": "4", "text": "😀 \ufffd", "exit_code": 0}
    with open_results(path) as again:
        assert list(again.done) == [*readable, "4"]
    aside = path.with_name("results.jsonl.torn")
    assert aside.exists() == (name in {"a fragment", "zeros at the end"})
    if aside.exists():
        assert content.endswith(aside.read_bytes().removesuffix(b"\n"))


def test_one_batch_at_a_time_writes_to_a_file(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    with open_results(path), pytest.raises(StoreBusyError):
        open_results(path)
    with open_results(path):
        pass


def test_a_place_that_cannot_hold_results_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "missing" / "x.jsonl", tmp_path / "pipe"):
        with pytest.raises(UsageError, match="RESULTS_UNWRITABLE"):
            open_results(place)


def test_a_batch_finds_its_sessions_again_until_its_results_are_removed(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    with open_results(path) as first, pytest.raises(StoreBusyError):
        open_results(path)
    with open_results(path) as second:
        assert second.seed == first.seed
    path.unlink()
    with open_results(path) as third:
        assert third.seed != first.seed
        third.forget_seed()
    (job,) = jobs_of(tmp_path, {"objective": "a"})
    assert session_of(job, first.seed) == session_of(job, second.seed) != session_of(job, third.seed)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (BatchEnd(total=2, completed=2, failed=0, unfinished=0, signal=None), 0),
        (BatchEnd(total=2, completed=1, failed=1, unfinished=0, signal=None), 4),
        (BatchEnd(total=2, completed=0, failed=2, unfinished=0, signal=None), 3),
        (BatchEnd(total=2, completed=1, failed=0, unfinished=1, signal="SIGINT"), 130),
        (BatchEnd(total=2, completed=0, failed=0, unfinished=2, signal="SIGTERM"), 143),
        (BatchEnd(total=2, completed=2, failed=0, unfinished=0, signal="SIGTERM"), 0),
    ],
)
def test_B057_the_exit_code_of_a_batch(end: BatchEnd, code: int):
    assert end.exit_code == code


def test_any_error_is_a_whole_record():
    cases: list[tuple[BaseException, str, int]] = [
        (UsageError("x"), "error", 2),
        (PrefixBrokenError("x"), "prefix_broken", 10),
        (ModelError("x", fault="quota"), "provider_error", 9),
        (KeyboardInterrupt(), "interrupted", 130),
        (TerminatedError(), "interrupted", 143),
        (MemoryError(), "error", 1),
        (ValueError("a\nb \ud800"), "error", 1),
    ]
    for error, outcome, code in cases:
        record = failure_record(error)
        assert list(record) == list(final_record(SessionState()))
        assert (record["outcome"], record["exit_code"], exit_code_of(error)) == (outcome, code, code)
        assert "\n" not in message_of(error)
        json.dumps(record).encode()


def test_of_many_errors_ours_is_told():
    ours = UsageError("ours")
    group = BaseExceptionGroup("g", [ValueError("first"), ExceptionGroup("h", [ours])])
    assert first_cause(group) is ours
    with Caught(BaseException) as caught:
        raise group
    assert caught.error is ours
    with pytest.raises(KeyboardInterrupt), Caught(Exception):
        raise KeyboardInterrupt
