"""`--dry-run` says what a command is going to cost; it sends nothing and leaves nothing behind."""

import json
from pathlib import Path

from tests.cli.harness import Shell, model, working
from xnagent.testing.server import ScriptedServer

NOWHERE = model("http://127.0.0.1:9/v1")
"""Nobody listens there."""


def in_order(forecast: dict[str, dict[str, float]]) -> bool:
    ends = [forecast[name] for name in ("low", "likely", "high")]
    costs = [one["cost_usd"] for one in ends]
    return costs == sorted(costs) and [one["requests"] for one in ends] == sorted(one["requests"] for one in ends)


def left(shell: Shell) -> list[str]:
    """Everything in the folder but the repository's own files."""
    return sorted(str(path.relative_to(shell.folder)) for path in shell.folder.rglob("*") if ".git" not in path.parts)


def test_run_dry_run_prints_the_forecast_and_keeps_nothing(shell: Shell):
    before = left(shell)
    text, record, limited, unknown, wrong = shell.many(
        ["run", "Do it.", "--dry-run", *NOWHERE],
        ["run", "Do it.", "--dry-run", "--output", "json", *NOWHERE],
        ["run", "Do it.", "--dry-run", "--max-usd", "0.001", *NOWHERE],
        ["run", "Do it.", "--dry-run", "--output", "json", *NOWHERE, "--model", "unheard-of"],
        ["run", "--dry-run", *NOWHERE],
    )
    assert [done.code for done in (text, record, limited, unknown, wrong)] == [0, 0, 0, 0, 2]
    assert [line.split()[0] for line in text.out.splitlines()[1:4]] == ["low", "likely", "high"]
    assert "assumed: nothing like it was seen yet" in text.out
    assert record.record["type"] == "forecast"
    assert in_order(record.record["forecast"])
    assert "limit $0.0010: not enough even if all goes well" in limited.out
    assert unknown.record["forecast"]["likely"]["cost_usd"] is None
    assert unknown.record["forecast"]["likely"]["uncached_tokens"] > 0
    assert left(shell) == before


def test_batch_dry_run_is_the_sum_of_the_jobs_that_are_left(shell: Shell):
    jobs, out = shell.folder / "jobs.jsonl", shell.folder / "out.jsonl"
    jobs.write_text("".join(json.dumps({"id": f"j{n}", "objective": "Do it. " * 200 * n}) + "\n" for n in (1, 2, 3)))
    out.write_text(json.dumps({"id": "j1", "exit_code": 0, "usage": {}}) + "\n")
    before = left(shell)
    words = ["batch", str(jobs), "--out", str(out), "--dry-run", *NOWHERE]
    text, record, fresh = shell.many(
        words,
        [*words, "--output", "json", "--batch-usd", "900"],
        [*words[:3], f"{out}.new", *words[4:], "--output", "json"],
    )
    assert (text.code, record.code, fresh.code) == (0, 0, 0)
    assert text.out.startswith("2 of 3 jobs to do\n")
    found = record.record
    assert [job["id"] for job in found["jobs"]] == ["j2", "j3"]
    assert found["limits"] == {"usd": 900.0, "tokens": None}
    for end in ("low", "likely", "high"):
        total = sum(job[end]["cost_usd"] for job in found["jobs"])
        assert abs(found["forecast"][end]["cost_usd"] - total) < 1e-9
    assert found["jobs"][0]["likely"]["cost_usd"] < found["jobs"][1]["likely"]["cost_usd"]
    assert (fresh.record["todo"], fresh.record["total"]) == (3, 3)
    assert left(shell) == before


def test_history_replaces_assumptions_and_the_error_is_told(shell: Shell, tmp_path: Path):
    """Run, look at the error, resume with a message as a forecast, and foresee the next session from this one."""
    with ScriptedServer(working()) as server:
        words = [*model(server.base_url)]
        done = shell.run("run", "Set it.", "-v", *words)
        (path,) = (shell.home / "sessions").glob("*.db")
        sent = len(server.bodies)
        cost, runs, record, over, more, text, again = shell.many(
            ["inspect", path.stem, "--cost"],
            ["inspect", path.stem, "--runs"],
            ["inspect", path.stem, "--json"],
            ["resume", path.stem, "--dry-run"],
            ["resume", path.stem, "--dry-run", "--message", "And now?", "--output", "json"],
            ["resume", path.stem, "--dry-run", "--message", "And now?"],
            ["run", "Set it.", "--dry-run", "--output", "json", *words],
        )
        assert len(server.bodies) == sent
    assert done.code == 0
    (line,) = [text for text in done.err.splitlines() if text.startswith("forecast: ")]
    assert line in cost.out
    assert "than likely" in line
    assert "off by" in runs.out
    foreseen = record.record["cost"]["forecast"]
    assert foreseen["cost_usd"] == record.record["cost"]["total_usd"]
    assert foreseen["runs"][0]["error_share"] == record.record["runs"][0]["error_share"]
    assert "nothing would be sent" in over.out
    assert in_order(more.record["forecast"])
    assert [row["agent"] for row in more.record["requests"]] == ["planner"]
    assert "from here to the end" in text.out
    assert again.record["forecast"]["samples"] == 2
    assert in_order(again.record["forecast"])


def test_dry_run_of_an_ephemeral_run_is_the_same(shell: Shell):
    (done,) = shell.many(["run", "x", "--ephemeral", "--dry-run", *NOWHERE])
    assert done.code == 0
    assert not shell.home.exists()
