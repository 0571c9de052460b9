"""A slice of `scripts/chaos-campaign`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.timeout(150)
def test_a_slice_of_the_chaos_campaign_ends_as_it_should():
    line = [
        sys.executable,
        str(ROOT / "scripts" / "chaos-campaign"),
        "--seed",
        "5000",
        "--sessions",
        "9",
        "--jobs",
        "1",
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=140, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 of 9 sessions as they should be" in done.stdout
