"""Which jobs are run, in which order, in which session."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from xnagent.batch.jobs import Job
from xnagent.batch.plan import make_plan, session_of
from xnagent.batch.results import open_results
from xnagent.batch.turns import fair_order
from xnagent.config import Settings

SETTINGS = Settings()


def job(name: str, *, line: str = "", repository: str = "r", priority: int = 0) -> Job:
    return Job(
        job=name,
        digest=(line or name).ljust(64, "0"),
        objective="x",
        repository=Path(repository),
        commit=None,
        settings=SETTINGS,
        priority=priority,
    )


def names(jobs: list[Job] | tuple[Job, ...]) -> list[str]:
    return [one.job for one in jobs]


def test_repositories_take_turns_within_a_priority():
    jobs = [job("a1", repository="a"), job("a2", repository="a"), job("a3", repository="a"), job("b1", repository="b")]
    assert names(fair_order([*jobs, job("late", priority=1)])) == ["late", "a1", "b1", "a2", "a3"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=30))
def test_the_order_is_fair(given_jobs: list[tuple[str, int]]):
    jobs = [job(f"j{n}", repository=place, priority=level) for n, (place, level) in enumerate(given_jobs)]
    order = fair_order(jobs)
    assert sorted(names(order)) == sorted(names(jobs))
    assert [one.priority for one in order] == sorted((one.priority for one in jobs), reverse=True)
    for number, one in enumerate(order):
        before = [other for other in order[:number] if other.priority == one.priority]
        own = sum(other.repository == one.repository for other in before)
        for place in {other.repository for other in before} - {one.repository}:
            assert sum(other.repository == place for other in before) <= own + 1


def test_changed_lines_begin_anew_removed_ones_are_told_and_failed_ones_wait_for_a_word(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    old = [job("same"), job("changed", line="old"), job("failed"), job("gone")]
    with open_results(path) as results:
        results.remember({one.job: one.digest for one in [*old, job("begun", line="old")]})
        for one, code in zip(old, (0, 0, 3, 0), strict=True):
            results.append(
                one.job, {"exit_code": code, "usage": {"cost_usd": 0.5, "input_tokens": 10}}, digest=one.digest
            )
    jobs = [job("same"), job("changed", line="new"), job("failed"), job("begun", line="new"), job("new")]
    with open_results(path) as results:
        assert (results.spent_usd, results.spent_tokens) == (2.0, 40)
        plan = make_plan(jobs, results, may_retry=False)
        again = make_plan(jobs, results, may_retry=True)
        results.remember({one.job: one.digest for one in jobs})
    assert names(plan.todo) == ["changed", "begun", "new"]
    assert (plan.changed, plan.removed, plan.retried) == (("changed", "begun"), ("gone",), ())
    assert (names(again.todo), again.retried) == (["changed", "failed", "begun", "new"], ("failed",))
    with open_results(path) as results:
        assert make_plan(jobs, results, may_retry=False).changed == ("changed",)


def test_the_last_line_of_a_job_counts(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps({"id": "a", "exit_code": code}) + "\n" for code in (3, 0)))
    with open_results(path) as results:
        assert (results.done, results.lines["a"]) == ({"a": 0}, 2)


def test_a_job_that_is_run_again_gets_another_session():
    one = job("a")
    sessions = {session_of(one, seed, results_so_far=count) for seed in ("s", "t") for count in range(3)}
    assert len(sessions) == 6
    assert session_of(one, "s") == session_of(one, "s", results_so_far=0)
