"""A fork goes on from a point in another session's log: with its bytes, its trees and its artifacts, and without it."""

import copy
import shutil

import anyio
import pytest

from tests.e2e.bench import (
    Bench,
    Ended,
    call,
    delegate,
    finish,
    on,
    plan,
    reply,
    scripted,
    start,
    submit,
    task,
    until,
    write,
)
from xnagent.app.forking import Fork, fork_session
from xnagent.app.replay import replay_session, request_bytes
from xnagent.cli.request import difference
from xnagent.core.events import PatchMerged, RunSettled, SessionSettled, SessionStarted, Stored, UserMessageAdded
from xnagent.core.fold import fold_all
from xnagent.core.fork_events import SessionForked
from xnagent.core.forking import Cut, Obstacle, cut_at
from xnagent.core.spine_events import ReplyReceived, RequestStarted, SpineExtended, ToolFinished
from xnagent.core.tree_events import RunTreeRestored, RunTreeSaved
from xnagent.errors import UsageError
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec, Script
from xnagent.testing.server import ScriptedServer

SCRIPT = scripted(
    start(task("one"), task("two", depends_on=["one"])),
    finish("r2 settled"),
    workers={
        "one": [on(calls=[call("note", text="one is easy"), call("write", path="one.txt", content="1\n")]), submit()],
        "two": [write("two.txt", "2\n"), on(calls=[call("bash", command="cat one.txt two.txt")]), submit()],
    },
)


def of_fork(bench: Bench, fork: Fork) -> Bench:
    """The same place, with the fork as its session."""
    other = copy.copy(bench)
    other.session = fork.session
    return other


def at(ended: Ended, kind: type, **fields: object) -> int:
    """Number of the first such event."""
    return next(
        stored.seq
        for stored in ended.events
        if isinstance(stored.event, kind) and all(getattr(stored.event, name) == fields[name] for name in fields)
    )


async def run(bench: Bench, script: Script = SCRIPT, **settings: object) -> Ended:
    with ScriptedServer(script) as server:
        return await bench.run(server, **settings)


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
async def test_the_first_request_of_a_fork_extends_what_the_origin_sent(bench: Bench, wire: str):
    script = scripted(on(calls=[call("record_fact", text="A fact.")], text="Hm.", times=3), finish())
    origin = await run(bench, script, planner__model__wire=wire)
    fork = await fork_session(bench.host, bench.session, at=at(origin, RequestStarted, request=3) - 1)
    other = of_fork(bench, fork)
    with ScriptedServer(scripted(finish())) as server:
        ended = await other.resume(server, planner__model__wire=wire)
    assert (ended.code, ended.state.breaks) == (0, ())
    (body,) = server.bodies
    assert body == request_bytes(origin.events, 3)
    assert difference(request_bytes(origin.events, 2), body)["is_extension"]
    assert replay_session(other.host, other.session).first is None


async def test_a_session_that_runs_is_forked_and_does_not_notice(bench: Bench):
    def brain(view: RequestView) -> ReplySpec:
        return reply(call("record_fact", text=f"fact {view.number}")) if view.number < 4 else finish().reply

    forks: list[Fork] = []

    async def disturb() -> None:
        place = bench.host.place(bench.session)
        await until(lambda: place.exists() and any(isinstance(one.event, RequestStarted) for one in place.events()))
        seq = next(one.seq for one in place.events() if isinstance(one.event, RequestStarted))
        forks.append(await fork_session(bench.host, bench.session, at=seq))

    with ScriptedServer(brain=brain) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(disturb)
            origin = await bench.run(server)
    assert origin.code == 0
    (fork,) = forks
    assert replay_session(bench.host, fork.session).first is None


async def test_a_request_without_its_reply_is_sent_again_as_it_was(bench: Bench):
    origin = await run(bench)
    fork = await fork_session(bench.host, bench.session, at=at(origin, RequestStarted))
    other = of_fork(bench, fork)
    with ScriptedServer(scripted(finish("<state>", summary="Otherwise."))) as server:
        ended = await other.resume(server)
    assert server.bodies == [request_bytes(origin.events, 1)]
    assert ended.record["summary"] == "Otherwise."
    assert (ended.record["session"], ended.state.board.tasks) == (fork.session, {})


async def test_a_fork_needs_neither_the_origin_nor_its_folders(bench: Bench):
    origin = await run(bench, apply=False)
    before = bench.path.read_bytes()
    fork = await fork_session(bench.host, bench.session, at=at(origin, RunSettled, run="r1"), messages=["Add three."])
    assert bench.path.read_bytes() == before
    shutil.rmtree(bench.host.work_folder(bench.session))
    bench.host.place(bench.session).forget()
    (merged,) = [one.event for one in origin.events[: fork.cut] if isinstance(one.event, PatchMerged)]
    other = of_fork(bench, fork)
    again = scripted(
        on("Add three.", calls=[plan(task("three")), *delegate("three")]),
        finish("r3 settled"),
        workers={"two": [write("two.txt", "II\n"), submit()], "three": [write("three.txt", "3\n"), submit()]},
    )
    with ScriptedServer(again) as server:
        ended = await other.resume(server)
    assert (ended.outcome, ended.state.merges[0].commit) == ("completed", merged.commit)
    assert [bench.read(name) for name in ("one.txt", "two.txt", "three.txt")] == ["1\n", "II\n", "3\n"]
    assert [event.text for event in ended.of(UserMessageAdded)] == ["Add three."]
    (patch,) = [run.patch for run in ended.state.board.runs.values() if run.run == "r1"]
    assert bench.host.place(fork.session).artifact(patch) is not None
    assert replay_session(other.host, other.session).first is None


async def test_the_log_is_a_copy_but_for_its_name_and_what_was_spent_counts(bench: Bench):
    origin = await run(bench)
    cut = at(origin, RunSettled, run="r1")
    fork = await fork_session(bench.host, bench.session, at=cut)
    events = tuple(bench.host.place(fork.session).events())
    assert events[1:cut] == origin.events[1:cut]
    assert isinstance(events[0].event, SessionStarted)
    assert events[0].event.session == fork.session
    (forked,) = events[cut:]
    assert isinstance(forked.event, SessionForked)
    assert (forked.event.origin, forked.event.cut) == (bench.session, cut)
    answered = sum(isinstance(one.event, ReplyReceived) for one in events)
    assert forked.event.requests == answered == fork.forked.requests > 0
    state = fold_all(one.event for one in events)
    assert (state.session, state.forked) == (fork.session, forked.event)
    again = await fork_session(bench.host, fork.session, at=cut + 1)
    assert again.origin == fork.session
    (row,) = [row for row in bench.host.sessions.rows() if row.session == again.session]
    assert row.created == events_at(bench, again)[-1].at > origin.events[0].at


def events_at(bench: Bench, fork: Fork) -> tuple[Stored, ...]:
    return tuple(bench.host.place(fork.session).events())


async def test_a_whole_session_is_opened_again_only_by_a_message(bench: Bench):
    origin = await run(bench)
    over = await fork_session(bench.host, bench.session, at=len(origin.events))
    told = await fork_session(bench.host, bench.session, at=len(origin.events), messages=["One more.", "And this."])
    with ScriptedServer(scripted(finish("One more.", summary="Then."))) as server:
        ended = await of_fork(bench, told).resume(server)
        assert len(server.bodies) == 1
        assert "And this." in server.bodies[0].decode()
    assert ended.record["summary"] == "Then."
    state = fold_all(one.event for one in events_at(bench, over))
    assert (state.settled is not None, isinstance(events_at(bench, over)[-2].event, SessionSettled)) == (True, True)


async def test_a_tree_that_only_the_later_log_holds_comes_along_and_what_it_does_not_hold_is_told(bench: Bench):
    origin = await run(bench)
    handed_in = at(origin, ToolFinished, agent="r2", tool="submit")
    fork = await fork_session(bench.host, bench.session, at=handed_in)
    assert fork.lost == {}
    assert [type(one.event) for one in events_at(bench, fork)[handed_in:]] == [RunTreeSaved, SessionForked]
    other = of_fork(bench, fork)
    with ScriptedServer(scripted(finish("r2 settled"))) as server:
        ended = await other.resume(server)
    assert (ended.outcome, bench.read("two.txt")) == ("completed", "2\n")
    early = await fork_session(bench.host, bench.session, at=at(origin, ToolFinished, agent="r2", tool="write"))
    assert early.lost == {"r2": (1,)}
    other = of_fork(bench, early)
    redone = scripted(finish("r2 settled"), workers={"two": [write("two.txt", "22\n", "may be missing"), submit()]})
    with ScriptedServer(redone) as server:
        ended = await other.resume(server, apply=False)
    assert ended.of(RunTreeRestored)[0].lost == (1,)
    assert ended.outcome == "completed"


async def test_no_session_goes_on_from_inside_a_call_or_a_transaction(bench: Bench):
    origin = await run(bench)
    for seq in (at(origin, PatchMerged, run="r1"), at(origin, ToolFinished, agent="r1", tool="note")):
        found = cut_at(origin.events, seq)
        assert isinstance(found, Obstacle)
        assert found.before < seq < found.after
        assert all(isinstance(cut_at(origin.events, near), Cut) for near in (found.before, found.after))
        with pytest.raises(UsageError, match=f"FORK_POINT: .* event {seq}: .*; use --at {found.before} or --at"):
            await fork_session(bench.host, bench.session, at=seq)
    with pytest.raises(UsageError, match=r"FORK_POINT: there is no event 9999; session s-bench has \d+"):
        await fork_session(bench.host, bench.session, at=9999)
    assert [row.session for row in bench.host.sessions.rows()] == [bench.session]


async def test_every_point_of_a_session_with_rebases_either_forks_clean_or_names_its_neighbours(bench: Bench):
    def brain(view: RequestView) -> ReplySpec:
        if view.number > 12:
            return finish().reply
        return reply(call("record_fact", text=f"{view.number} " + "word " * 60), text="So. " * 40)

    with ScriptedServer(brain=brain) as server:
        origin = await bench.run(server, planner__model__window=9_000, planner__model__max_output_tokens=500)
    assert origin.state.rebases
    valid = [one.seq for one in origin.events if isinstance(cut_at(origin.events, one.seq), Cut)]
    assert len(valid) > len(origin.events) / 2
    for seq in valid[:: len(valid) // 8]:
        fork = await fork_session(bench.host, bench.session, at=seq)
        assert replay_session(bench.host, fork.session).first is None
        kinds = [type(one.event) for one in events_at(bench, fork)]
        assert kinds.count(SpineExtended) == sum(isinstance(one.event, SpineExtended) for one in origin.events[:seq])
