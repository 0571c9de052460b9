"""What is to be done: the jobs of the file held against the results that there are. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from xnagent.batch.jobs import Job
from xnagent.batch.results import DIGEST_DIGITS, Results
from xnagent.batch.turns import fair_order
from xnagent.core.ids import SessionId
from xnagent.core.values import dataclass

SESSION_DIGITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which jobs to run, and what is odd about the files."""

    todo: tuple[Job, ...]
    """In the order in which they begin."""
    changed: tuple[str, ...]
    """Jobs whose line is not what it was: they begin anew, and a new result supersedes the old one."""
    removed: tuple[str, ...]
    """Jobs that are known from before and have no line any more: their results stay."""
    retried: tuple[str, ...]
    """Jobs that failed and are run again."""


def make_plan(jobs: Sequence[Job], results: Results, *, may_retry: bool) -> Plan:
    """With `may_retry`, jobs whose last result is not exit code 0 are run again, each in a new session."""
    changed = tuple(job.job for job in jobs if _is_changed(job, results))
    failed = {job for job, code in results.done.items() if code != 0}
    ids = {job.job for job in jobs}
    retried = tuple(job.job for job in jobs if may_retry and job.job in failed and job.job not in changed)
    wanted = {*changed, *retried, *(ids - results.done.keys())}
    return Plan(
        todo=tuple(fair_order(job for job in jobs if job.job in wanted)),
        changed=changed,
        removed=tuple(sorted((results.done.keys() | results.known.keys()) - ids)),
        retried=retried,
    )


def _is_changed(job: Job, results: Results) -> bool:
    known = results.known.get(job.job)
    return known is not None and known[:DIGEST_DIGITS] != job.digest[:DIGEST_DIGITS]


def session_of(job: Job, seed: str, *, results_so_far: int = 0) -> SessionId:
    """The job's session: the same one whenever the batch goes on, another one if a job with a result is run again."""
    again = f"\0{results_so_far}" if results_so_far else ""
    digest = sha256(f"{seed}\0{job.job}\0{job.digest}{again}".encode()).hexdigest()
    return SessionId(f"s-{digest[:SESSION_DIGITS]}")
