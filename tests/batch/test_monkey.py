"""A slice of `scripts/monkey-campaign` (M91, M92, B048, B061)."""

import subprocess
import sys

import pytest

from tests import temporal_server
from tests.cli.harness import ROOT


def play(*options: str) -> None:
    line = [sys.executable, str(ROOT / "scripts" / "monkey-campaign"), "--seed", "7", *options]
    done = subprocess.run(line, capture_output=True, text=True, timeout=390, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 faults" in done.stdout


@pytest.mark.timeout(400)
def test_M92_B048_killed_workers_lose_nothing_and_double_nothing():
    play("--kills", "20", "--jobs", "16")


@pytest.mark.timeout(400)
def test_M92_B048_nor_do_workers_over_a_temporal_server_that_is_killed_as_well():
    if (reason := temporal_server.why_not()) is not None:
        pytest.skip(reason)
    play("--engine", "temporal", "--kills", "4", "--jobs", "6")
