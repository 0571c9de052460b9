"""Which job comes next. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, zip_longest

from xnagent.batch.jobs import Job


def fair_order(jobs: Iterable[Job]) -> list[Job]:
    """Higher priorities first; within one, the repositories take turns; within a repository, the order of the file.

    Nobody starves: a batch is finite, and a repository with many jobs delays another one's next job by one at most for
    each repository.
    """
    by_priority = sorted(jobs, key=lambda job: -job.priority)
    groups = (list(group) for _, group in groupby(by_priority, key=lambda job: job.priority))
    return list(chain.from_iterable(_round_robin(group) for group in groups))


def _round_robin(jobs: Sequence[Job]) -> Iterable[Job]:
    lanes: dict[str, list[Job]] = {}
    for job in jobs:
        lanes.setdefault(str(job.repository), []).append(job)
    return (job for turn in zip_longest(*lanes.values()) for job in turn if job is not None)
