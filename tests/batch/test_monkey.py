"""A slice of `scripts/monkey-campaign` (M91, M92, B048, B061)."""

import subprocess
import sys

import pytest

from tests.cli.harness import ROOT


@pytest.mark.timeout(400)
def test_M92_B048_killed_workers_lose_nothing_and_double_nothing():
    line = [sys.executable, str(ROOT / "scripts" / "monkey-campaign"), "--seed", "7", "--kills", "20", "--jobs", "16"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=390, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 faults" in done.stdout
