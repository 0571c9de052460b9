"""Limits of jobs and of whole batches, with real sessions (M118): what can't be paid is not started."""

from pathlib import Path

import pytest

from tests.batch.scenes import HANG, OK, batch, results, script, sessions, write_jobs
from tests.cli.harness import Shell, call, make_shell
from xnagent.testing.server import ScriptedServer


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return make_shell(tmp_path)


def spent(shell: Shell) -> float:
    return sum(line["usage"]["cost_usd"] for line in results(shell))


@pytest.mark.timeout(180)
def test_M118_money_of_the_whole_batch_is_never_passed_and_more_of_it_goes_on(shell: Shell):
    """A request may cost $0.03 and costs about $0.0005: one loan after the other has to come back."""
    write_jobs(shell, *({"id": f"j{number}", "objective": f"job {number}"} for number in range(6)))
    with ScriptedServer(OK, strict=False) as server:
        short = shell.run(*batch(shell, server.base_url, "--batch-usd", "0.0001", "--output", "json"))
        assert (short.code, short.record["stopped_by"], short.record["unfinished"]) == (3, "usd", 6)
        assert server.exchanges == []
        tight = shell.run(*batch(shell, server.base_url, "--batch-usd", "0.0312", "-j", "3", "--output", "json"))
        assert tight.code == 4
        assert 0 < tight.record["completed"] < 6
        assert tight.record["cost_usd"] == pytest.approx(spent(shell))
        assert "--batch-usd is used up" in tight.err
        ample = shell.run(*batch(shell, server.base_url, "--batch-usd", "0.2", "-j", "3", "--output", "json"))
    assert (ample.code, ample.record["completed"], ample.record["stopped_by"]) == (0, 6, None)
    assert spent(shell) < 0.0312
    assert len(sessions(shell)) == 6


def test_M118_a_jobs_own_limit_is_its_outcome_and_tokens_are_lent_alike(shell: Shell):
    write_jobs(shell, {"id": "small", "objective": "x", "limits": {"tokens": 1}}, {"id": "b", "objective": "y"})
    with ScriptedServer(OK, strict=False) as server:
        done = shell.run(*batch(shell, server.base_url, "--batch-tokens", "20000", "--output", "json"))
    assert {line["id"]: (line["outcome"], line["exit_code"]) for line in results(shell)} == {
        "small": ("limit", 6),
        "b": ("completed", 0),
    }
    assert (done.code, done.record["stopped_by"], done.record["unfinished"]) == (4, None, 0)
    assert done.record["tokens"] <= 20000


def test_a_limit_in_money_needs_prices(shell: Shell):
    write_jobs(shell, {"objective": "x"}, {"id": "odd", "objective": "y", "model": "nobody-knows"})
    with ScriptedServer(OK, strict=False) as server:
        done = shell.run(*batch(shell, server.base_url, "--batch-usd", "1"))
        assert server.exchanges == []
    assert done.code == 2
    assert "odd: the price of nobody-knows is not known" in done.err
    assert results(shell) == []


def test_the_batchs_deadline_stops_what_is_under_way_and_it_can_go_on(shell: Shell):
    write_jobs(shell, {"id": "a", "objective": "apple"}, {"id": "b", "objective": "pear"})
    with ScriptedServer(script(apple=HANG, pear=HANG), strict=False) as server:
        late = shell.run(*batch(shell, server.base_url, "--batch-deadline", "2", "--output", "json"))
    assert late.record["stopped_by"] == "deadline"
    assert (late.record["signal"], late.record["unfinished"], late.code) == (None, 2, 3)
    assert results(shell) == []
    with ScriptedServer(OK, strict=False) as server:
        assert shell.run(*batch(shell, server.base_url)).code == 0
    assert len(sessions(shell)) == 2


def test_a_price_that_rises_above_what_was_reserved_stops_at_the_jobs_under_way(shell: Shell):
    """The provider reports far more tokens than the request may use: what was not begun does not begin."""
    write_jobs(shell, *({"id": f"j{number}", "objective": f"job {number}"} for number in range(5)))
    dear = {**call("finish", outcome="completed", summary="done"), "times": 0}
    dear["usage"] = {"prompt_tokens": 100_000, "completion_tokens": 4_000, "total_tokens": 104_000}
    with ScriptedServer({"planner": [dear]}, strict=False) as server:
        done = shell.run(*batch(shell, server.base_url, "--batch-usd", "0.15", "--output", "json"))
    assert done.record["stopped_by"] == "usd"
    assert spent(shell) == pytest.approx(done.record["cost_usd"])
    assert spent(shell) <= 0.15 + 0.116
    assert done.record["unfinished"] > 0
