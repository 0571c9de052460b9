"""The commands that only read: after a whole session, and after one that was killed."""

import hashlib
import json
import signal
import time
from pathlib import Path

import pytest

from tests.cli.harness import SECONDS, Done, Shell, hanging, make_shell, model, working
from xnagent.testing.server import ScriptedServer

PARTS = ("spine", "deltas", "rebases", "requests", "runs", "tasks", "facts", "cost", "events")


def session_of(done: Done) -> str:
    return done.err.split("session ")[1].split()[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, str, list[bytes]]:
    shell = make_shell(tmp_path_factory.mktemp("whole"))
    with ScriptedServer(working()) as server:
        done = shell.run("run", "set a to 2", *model(server.base_url))
        assert done.code == 0, done.err
        return shell, session_of(done), server.bodies


def test_a_session_can_be_read_in_every_way(whole: tuple[Shell, str, list[bytes]]):
    shell, session, bodies = whole
    overview, tables, everything, one, request, against, same, missing, replay, forecast, sessions = shell.many(
        ["inspect", session],
        ["inspect", session, *(f"--{part}" for part in PARTS)],
        ["inspect", session, "--json"],
        ["inspect", session, "--output", "json", "--cost"],
        ["request", session, "1"],
        ["request", session, "2", "--against", "1"],
        ["request", session, "2", "--against", "2", "--output", "json"],
        ["request", session, "99"],
        ["replay", session, "--output", "json"],
        ["resume", session, "--dry-run"],
        ["sessions", "--output", "jsonl"],
    )
    assert "completed (exit code 0)" in overview.out
    assert all(f"{part} (" in tables.out or part == "cost" for part in PARTS)
    assert set(everything.record) == {"session", "overview", *PARTS, "final"}
    assert everything.record["final"]["type"] == "final"
    assert set(one.record) == {"session", "cost", "final"}
    assert request.out.encode() == bodies[0]
    digest = everything.record["requests"][0]["sha256"]
    assert digest == hashlib.sha256(bodies[0]).hexdigest()
    assert "request 2 extends request 1" in against.out
    assert "\nlineage: planner.0\nkept " in against.out
    assert "breaks at" not in against.out
    assert same.record["item"] is None
    told = {key: same.record[key] for key in ("is_same_lineage", "segment", "lost_tokens", "declared", "reported")}
    assert told == {
        "is_same_lineage": True,
        "segment": None,
        "lost_tokens": 0,
        "declared": None,
        "reported": None,
    }
    assert (missing.code, missing.out) == (2, "")
    assert (replay.code, replay.record["problems"], replay.record["requests"]) == (0, [], len(bodies))
    assert "over" in forecast.out
    assert [(row["session"], row["status"]) for row in sessions.lines] == [(session, "completed")]
    assert {done.code for done in (overview, tables, everything, one, request, against, same, forecast, sessions)} == {
        0
    }


def test_M27_another_agents_request_shares_no_lineage_and_breaks_at_the_tools(whole: tuple[Shell, str, list[bytes]]):
    shell, session, bodies = whole
    number = next(n for n, body in enumerate(bodies, 1) if b"<task id" in body)
    (worker,) = shell.many(["request", session, str(number), "--against", "1"])
    assert f"request {number} does not extend request 1" in worker.out
    assert "lineage: r1.0, not planner.0" in worker.out
    assert "breaks at: tools (it reads tools, system, messages): tool 1: " in worker.out
    assert "more than from the cache" in worker.out


def test_a_rebase_is_shown_before_it_is_made_and_never_made(whole: tuple[Shell, str, list[bytes]]):
    shell, session, _ = whole
    before, text, record, run, forced, unknown, after = shell.many(
        ["inspect", session, "--json"],
        ["rebase", session, "--dry-run"],
        ["rebase", session, "--dry-run", "--output", "json"],
        ["rebase", session, "--dry-run", "--agent", "r1", "--output", "json"],
        ["rebase", session],
        ["rebase", session, "--dry-run", "--agent", "r9"],
        ["inspect", session, "--json"],
    )
    assert "planner would not be rebased now: " in text.out
    (planner,), (worker,) = record.record["agents"], run.record["agents"]
    assert (record.record["type"], record.record["session"]) == ("rebase", session)
    assert (planner["agent"], worker["agent"]) == ("planner", "r1")
    for row in (planner, worker):
        assert (row["would_rebase"], row["cause"]) == (False, None)
        assert row["why"]
        assert sum(part["items"] for part in row["dropped"]) == row["items_dropped"]
        assert row["tokens_before"] > 0
        assert row["tokens_after"] > row["checkpoint_tokens"] > 0
    assert (forced.code, forced.out) == (2, "")
    assert "--dry-run` shows what it would do now" in forced.err
    assert (unknown.code, "r1" in unknown.err) == (2, True)
    assert before.out == after.out


def test_B048_a_killed_session_is_interrupted_and_its_next_step_has_a_price(shell: Shell):
    with ScriptedServer(hanging()) as server, shell.started("run", "x", *model(server.base_url)) as process:
        end = time.monotonic() + SECONDS
        while not server.exchanges and time.monotonic() < end:
            time.sleep(0.02)
        (path,) = (shell.home / "sessions").glob("*.db")
        (running,) = shell.many(["inspect", path.stem, "--json"])
        (busy,) = shell.many(["resume", path.stem])
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=SECONDS)
    listed, inspected, dry = shell.many(
        ["sessions", "--json"],
        ["inspect", path.stem, "--json"],
        ["resume", path.stem, "--dry-run", "--output", "json"],
    )
    assert running.record["overview"]["status"] == "running"
    assert (busy.code, busy.out) == (2, "")
    assert "SESSION_BUSY" in busy.err
    assert listed.record["sessions"][0]["status"] == "interrupted"
    assert inspected.record["final"]["outcome"] == "interrupted"
    assert inspected.record["final"]["exit_code"] is None
    (planner,) = dry.record["requests"]
    assert planner["agent"] == "planner"
    assert planner["fresh_tokens"] + planner["cached_tokens"] > 0
    assert planner["price_without_cache_usd"] >= planner["price_usd"] > 0


def test_a_file_that_is_no_session_is_listed_and_left_alone(shell: Shell):
    folder = shell.home / "sessions"
    folder.mkdir(parents=True)
    (folder / "s-broken.db").write_bytes(b"not a database")
    listed, inspected = shell.many(["sessions"], ["inspect", "s-broken", "--json"])
    assert "damaged" in listed.out
    assert (inspected.code, json.loads(inspected.out)["error"]["class"]) == (1, "StoreDamagedError")
    assert (Path(folder) / "s-broken.db").read_bytes() == b"not a database"
