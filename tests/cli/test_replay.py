"""`replay` and `fork` as people and scripts call them."""

import shutil
from functools import partial
from pathlib import Path

import anyio
import pytest

import xnagent
from tests.cli.harness import Shell, finishing
from tests.e2e.bench import Bench, call, finish, on, scripted, start, submit, task
from xnagent.config.places import shipped
from xnagent.core.events import RunLaunched, RunSettled, Stored
from xnagent.core.spine_events import RequestStarted, ToolStarted
from xnagent.store.reading import read_events
from xnagent.store.sessions import session_path
from xnagent.testing.server import ScriptedServer

SCRIPT = scripted(
    start(task("one", checks=["grep -q 2 a.py"])),
    finish("settled"),
    workers={"one": [on(calls=[call("edit", path="a.py", old="x = 1", new="x = 2")]), submit()]},
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, str, list[bytes]]:
    bench = Bench(tmp_path_factory.mktemp("whole"))
    with ScriptedServer(SCRIPT) as server:
        assert anyio.run(partial(bench.run, server, apply=False)).code == 0
    return Shell(folder=bench.folder, extra={}), bench.session, server.bodies


def events_of(shell: Shell, session: str) -> list[Stored]:
    return list(read_events(session_path(shell.home, session)))


def number_of(shell: Shell, session: str, kind: type, **fields: object) -> int:
    """Of the first such event."""
    return next(
        stored.seq
        for stored in events_of(shell, session)
        if isinstance(stored.event, kind) and all(getattr(stored.event, name) == fields[name] for name in fields)
    )


def test_a_replay_stops_at_an_event_and_shows_how_the_session_stood(whole: tuple[Shell, str, list[bytes]]):
    shell, session, bodies = whole
    seq = number_of(shell, session, RunLaunched)
    last = len(events_of(shell, session))
    text, stood, end, beyond, both = shell.many(
        ["replay", session, "--at", str(seq)],
        ["replay", session, "--at", str(seq), "--json"],
        ["replay", session, "--at", str(last), "--json"],
        ["replay", session, "--at", str(last + 1)],
        ["replay", session, "--at", "1", "--diff", session],
    )
    assert (text.code, stood.code, end.code) == (0, 0, 0)
    assert f"after event {seq} (run_launched)" in text.out
    assert "fork here yes" in text.out
    assert "all the same, byte for byte" in text.out
    told = stood.record
    assert (told["type"], told["at"], told["event"], told["next"]) == ("state", seq, "run_launched", "spine_extended")
    assert told["view"]["tasks"]["one"]["status"] == "active"
    assert told["view"]["runs"]["r1"]["status"] == "working"
    assert told["workspace"]["head"] == told["workspace"]["base"]
    assert told["replay"]["requests"] == told["usage"]["requests"] < len(bodies)
    assert [row["agent"] for row in told["agents"]] == ["planner"]
    assert (end.record["next"], end.record["outcome"], end.record["workspace"]["merged"]) == (None, "completed", ["r1"])
    assert (beyond.code, beyond.out) == (2, "")
    assert f"there is no event {last + 1}; session {session} has {last}" in beyond.err
    assert (both.code, both.out) == (2, "")


def test_a_fork_is_made_run_and_compared_with_its_origin(whole: tuple[Shell, str, list[bytes]]):
    """It is cut behind a request, so the model is asked the same again, and answers otherwise."""
    shell, session, bodies = whole
    before = (shell.home / "sessions" / f"{session}.db").read_bytes()
    seq = str(number_of(shell, session, RequestStarted))
    later = str(number_of(shell, session, RunSettled))
    with ScriptedServer(finishing("Other end.", outcome="failed")) as server:
        words = ["fork", session, "--at", seq, "--run", "--base-url", server.base_url]
        ran = shell.run(*words, "--no-apply", "--output", "json")
        assert (ran.code, server.bodies) == (3, [bodies[0]]), ran.err
    other = ran.record["session"]
    assert (ran.record["summary"], other in ran.err) == ("Other end.", True)
    made, record, text, diff, same = shell.many(
        ["fork", session, "--at", seq],
        ["fork", session, "--at", later, "--json", "--message", "One.", "--message", "Two."],
        ["replay", session, "--diff", other],
        ["replay", session, "--diff", other, "--json"],
        ["replay", session, "--diff", session],
    )
    fork = made.out.strip()
    assert made.out == f"{fork}\n"
    assert f"go on with it: xnagent resume {fork}" in made.err
    assert (record.record["type"], record.record["origin"], record.record["at"]) == ("fork", session, int(later))
    assert (record.record["messages"], record.record["inherited"]["requests"] > 3) == (2, True)
    assert [done.code for done in (text, diff, same)] == [3, 3, 0]
    assert "1 decision is the same (user 1)" in text.out
    assert "both were asked the same, byte for byte" in text.out
    first = diff.record["first"]
    assert (first["agent"], first["number"], diff.record["common"]["decisions"]) == ("planner", 1, 1)
    assert [first[side]["kind"] for side in ("session", "other")] == ["plan", "finish"]
    assert [first[side]["request"] for side in ("session", "other")] == [1, 1]
    assert first["asked"]["is_same"]
    assert "and there are no others" in same.out
    assert (shell.home / "sessions" / f"{session}.db").read_bytes() == before


def test_a_fork_that_cannot_be_is_refused_and_leaves_nothing(whole: tuple[Shell, str, list[bytes]]):
    shell, session, _ = whole
    inside = number_of(shell, session, ToolStarted)
    there = sorted((shell.home / "sessions").iterdir())
    refused = shell.many(
        ["fork", session, "--at", str(inside)],
        ["fork", session, "--at", "9999"],
        ["fork", session, "--at", "1", "--model", "x"],
        ["fork", session, "--at", "5", "--message", " "],
        ["fork", "s-none", "--at", "1"],
        ["fork", session, "--at", "5", "--run", "--api-key-env", "NO_SUCH_KEY"],
    )
    told = (
        "the call edit of r1 has no result yet; use --at",
        "there is no event 9999",
        "add --run, or give it to `xnagent resume`",
        "MESSAGE_EMPTY",
        "SESSION_NOT_FOUND",
        "KEY_MISSING",
    )
    for done, text in zip(refused, told, strict=True):
        assert (done.code, text in done.err) == (2, True), done.err
    assert sorted((shell.home / "sessions").iterdir()) == there


def test_M42_a_changed_prompt_file_is_the_first_difference(whole: tuple[Shell, str, list[bytes]], tmp_path: Path):
    shell, session, bodies = whole
    package = Path(xnagent.__file__).parent
    shutil.copytree(package, tmp_path / "xnagent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(shipped("demo").parent, tmp_path / "configs")
    prompt = tmp_path / "xnagent" / "agents" / "prompts" / "worker.md"
    prompt.write_text(prompt.read_text() + "\nBe brief.\n")
    changed = Shell(folder=shell.folder, extra={"PYTHONPATH": str(tmp_path)})
    record, text = changed.many(["replay", session, "--json"], ["replay", session])
    assert (record.code, record.record["problems"], record.record["requests"]) == (3, [], len(bodies))
    worker = next(number for number, body in enumerate(bodies, 1) if b"<task id" in body)
    first = record.record["first"]
    assert (first["request"], first["agent"], first["segment"]) == (worker, "r1", "system")
    assert first["source"] == "prompts/worker.md"
    assert text.code == 3
    assert f"first difference: request {worker} of r1, in system: prompts/worker.md is another: " in text.out
    assert "all the same, byte for byte, as recorded; a new session would begin otherwise here" in text.out
