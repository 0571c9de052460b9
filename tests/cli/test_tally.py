"""How a batch is shown: rate, money and time left; a bar where a person watches."""

import os
import pty
import subprocess

import pytest

from tests.batch.scenes import OK, batch, results, write_jobs
from tests.cli.harness import SECONDS, XNAGENT, Shell
from xnagent.cli.tally import Tally, duration, told
from xnagent.testing.server import ScriptedServer


def record(code: int = 0, cost: float | None = 0.5) -> dict[str, object]:
    outcome, error = ("completed", None) if code == 0 else ("error", {"class": "E", "message": "no\x1b[2J folder"})
    return {"id": "a", "exit_code": code, "outcome": outcome, "error": error, "usage": {"cost_usd": cost}}


def test_a_tally_tells_rate_money_and_time_left():
    tally = Tally(total=10, done=2, began=100.0)
    assert tally.standing(100.0) == "2/10"
    tally.count(record())
    tally.count(record(3))
    assert tally.standing(130.0) == "4/10, 1 not completed, 4.0 a minute, $1.0000, 90 s left"
    assert told(record(1), tally, now=130.0).endswith("a: error, $0.5000: no\\x1b[2J folder")
    tally.count(record(cost=None))
    assert "?" in tally.standing(131.0)
    done = Tally(total=1, done=0, began=0.0)
    done.count(record())
    assert done.standing(0.0) == "1/1, 60,000.0 a minute, $0.5000"


@pytest.mark.parametrize(("seconds", "text"), [(3, "3 s"), (119.6, "120 s"), (600, "10 min"), (11_100, "3 h 05 min")])
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


def test_a_terminal_gets_a_bar_and_every_line(shell: Shell):
    write_jobs(shell, {"id": "a", "objective": "x"}, {"id": "b", "objective": "y"})
    outer, inner = pty.openpty()
    with ScriptedServer(OK, strict=False) as server:
        process = subprocess.Popen(
            [*XNAGENT, *batch(shell, server.base_url, "--output", "json")],
            cwd=shell.repository,
            env={**shell.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=inner,
        )
        os.close(inner)
        shown = b""
        try:
            while piece := os.read(outer, 65536):
                shown += piece
        except OSError:
            pass
        out, _ = process.communicate(timeout=SECONDS)
        os.close(outer)
    text = shown.decode()
    assert process.returncode == 0
    assert out.count(b"\n") == 1
    assert "━" in text
    for name in ("a", "b"):
        assert f"{name}: completed" in text
    assert "2 of 2 jobs completed" in text
    assert len(results(shell)) == 2
