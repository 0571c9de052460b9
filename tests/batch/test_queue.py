"""The queue's file under several processes, dead owners and damage (B048, B053)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.harness import ROOT
from xnagent.batch.engine import EngineError, JobLost, JobOrder, JobSettled
from xnagent.batch.queue import Queue, Terms, is_alive, owner_name

CLAIM_ALL = """
import json, os, sys, time
from pathlib import Path
from xnagent.batch.queue import Queue, owner_name
queue, mine = Queue(path=Path(sys.argv[1])), []
print("ready", flush=True)
sys.stdin.readline()
while leases := queue.claim(owner_name(os.getpid()), count=3, now=time.monotonic()):
    for lease in leases:
        assert queue.renew(lease, progress=1, now=time.monotonic()) is None
        assert queue.settle(lease, "done")
        mine.append(lease.order.job)
print(json.dumps(mine), flush=True)
sys.stdin.readline()
"""


def started(queue: Queue) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLAIM_ALL, str(queue.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def made(folder: Path, count: int, **terms: float) -> Queue:
    queue = Queue(path=folder / "queues" / "q.db", terms=Terms(**terms))
    queue.create()
    queue.submit([JobOrder(job=f"j{number}", payload="x") for number in range(count)])
    return queue


def test_B053_several_processes_share_the_jobs_and_none_is_given_twice(tmp_path: Path):
    queue = made(tmp_path, 120)
    workers = [started(queue) for _ in range(4)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    claimed = [json.loads(worker.stdout.readline()) for worker in workers]
    for worker in workers:
        worker.communicate("\n", timeout=30)
    assert sorted(job for jobs in claimed for job in jobs) == sorted(f"j{number}" for number in range(120))
    assert len(queue.collect(now=0)) == 120


def test_B048b_the_jobs_of_a_killed_process_are_free_at_once(tmp_path: Path):
    queue = made(tmp_path, 2, lease_seconds=1e6)
    with subprocess.Popen(["sleep", "60"]) as owner:
        name = owner_name(owner.pid)
        assert [lease.order.job for lease in queue.claim(name, count=1, now=0)] == ["j0"]
        assert is_alive(name)
        assert [lease.order.job for lease in queue.claim(owner_name(os.getpid()), count=9, now=0)] == ["j1"]
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert not is_alive(name)
    (lease,) = queue.claim(owner_name(os.getpid()), count=9, now=0)
    assert (lease.order.job, lease.epoch) == ("j0", 2)


def test_a_process_number_that_is_used_again_is_another_owner():
    mine = owner_name(os.getpid())
    assert is_alive(mine)
    assert is_alive(f"{mine}-2")
    assert not is_alive(f"{os.getpid()}-1")


def test_a_lease_that_ran_out_and_that_nobody_took_can_be_renewed(tmp_path: Path):
    queue = made(tmp_path, 1, lease_seconds=10)
    (lease,) = queue.claim(owner_name(os.getpid()), count=1, now=0)
    assert queue.renew(lease, progress=None, now=100) is None
    assert queue.claim(owner_name(os.getpid()), count=1, now=109) == ()
    (other,) = queue.claim(owner_name(os.getpid()), count=1, now=111)
    assert not queue.settle(lease, "late")
    with pytest.raises(LookupError):
        queue.renew(lease, progress=None, now=112)
    queue.put_back(lease, not_before=0)
    assert queue.settle(other, "good")
    assert queue.collect(now=112) == (JobSettled(job="j0", result="good"),)


def test_a_job_that_is_lost_too_often_is_given_up(tmp_path: Path):
    queue, now = made(tmp_path, 1, lease_seconds=10, most_losses=2), 0.0
    for _ in range(3):
        assert len(queue.claim(owner_name(os.getpid()), count=1, now=now)) == 1
        now += 11
    assert queue.claim(owner_name(os.getpid()), count=1, now=now) == ()
    (lost,) = queue.collect(now=now)
    assert isinstance(lost, JobLost)
    assert "3 times" in lost.detail


def test_a_damaged_queue_says_that_nothing_is_lost(tmp_path: Path):
    queue = made(tmp_path, 1)
    queue.path.write_bytes(b"no database, but long enough to be read as one" * 100)
    with pytest.raises(EngineError, match="nothing is lost"):
        queue.collect(now=0)
    queue.create()
    assert queue.collect(now=0) == ()
