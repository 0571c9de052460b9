"""What inspect tells beyond tables: patches, histories, courses of runs, costs, caches, chosen events."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inspect.long import EVIL, long_reading
from tests.inspect.test_report import EVENTS, R1, SESSION, SETTLED, reading, reply, started
from xnagent.core import events as ev
from xnagent.core import spine_events as sp
from xnagent.core.board import Board, Task
from xnagent.core.delta import delta
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, CallId, FactId, TaskId
from xnagent.core.items import ToolCall, UserText
from xnagent.core.masking import Secret, mask_of
from xnagent.core.messages import state_message
from xnagent.core.state import SessionState
from xnagent.core.tokens import Usage
from xnagent.inspect.blocks import plain
from xnagent.inspect.filters import Wanted, event_kinds, find_events
from xnagent.inspect.history import fact_histories, told_by
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document, part_blocks, part_text
from xnagent.inspect.segments import served

F1 = FactId("f1")


def of(*events: ev.Event) -> Reading:
    stored = tuple(
        ev.Stored(seq=seq, at=f"2026-01-01T00:00:{seq:02d}.000Z", event=event) for seq, event in enumerate(events, 1)
    )
    records = [
        {"type": one.event.type, "session": SESSION, "seq": one.seq, "at": one.at}
        | {name: getattr(one.event, name) for name in ("agent", "run", "task") if hasattr(one.event, name)}
        for one in stored
    ]
    return Reading(session=SESSION, state=fold_all(one.event for one in stored), events=stored, records=records)


def finished(agent: str, call: str = "c1", **more: object) -> sp.ToolFinished:
    return sp.ToolFinished(agent=AgentId(agent), call_id=CallId(call), tool="bash", text="out", **more)


def test_a_fact_has_its_whole_history_and_who_changed_it():
    told = of(
        ev.FactRecorded(fact=F1, text="it is", value="7", source="r1"),
        ev.FactCorrected(fact=F1, text="it was", value="8", source="planner"),
        ev.FactRetracted(fact=F1, reason="nobody knows"),
        ev.FactRetracted(fact=FactId("f2"), reason="nothing of this is in the log"),
    )
    (fact,) = document(told, ["facts"])["facts"]
    assert [(row["seq"], row["change"], row["by"], row["text"], row["value"]) for row in fact["history"]] == [
        (1, "recorded", "r1", "it is", "7"),
        (2, "corrected", "planner", "it was", "8"),
        (3, "retracted", None, "nobody knows", None),
    ]
    result = ev.Stored(seq=5, at="2026-01-01T00:00:05.000Z", event=finished("planner"))
    assert fact_histories([*told.events, result])[F1][-1]["by"] == "planner"
    text = part_text(told, "facts")
    assert "f1 [retracted]\n  1 2026-01-01T00:00:01.000Z recorded by r1: it is = 7\n" in text
    assert "3 2026-01-01T00:00:03.000Z retracted: nobody knows" in text


@given(st.text(max_size=40), st.text(max_size=40))
def test_I2_the_operations_of_a_delta_are_those_that_were_computed(title: str, objective: str):
    before = Board()
    task = Task(task=TaskId("one"), title=title, objective=objective)
    state = SessionState(board=Board(tasks={TaskId("one"): task}))
    spine = sp.SpineExtended(agent=PLANNER, kind="baseline", items=(UserText(text="{}", origin="state"),))
    based = fold_all([ev.SessionStarted(session=SESSION, objective="o"), spine])
    message = state_message(replace(state, spines=based.spines))
    assert message is not None
    assert told_by(message)["patch"] == list(delta(before, state.board))
    assert told_by(replace(message, kind="baseline")) == {"patch": [], "causes": []}


def test_a_run_has_its_steps_with_what_their_calls_came_to():
    asked = ToolCall(call_id=CallId("c1"), name="bash", arguments='{"command":"true"}')
    waiting = ToolCall(call_id=CallId("c2"), name="read", arguments='{"path":"a"}')
    answer = sp.ReplyReceived(
        agent=AgentId("r1"),
        request=4,
        items=(asked, waiting),
        usage=Usage(input_tokens=60, cached_tokens=50, output_tokens=3),
        cost_usd=0.25,
        finish="tool_calls",
        duration_seconds=1.0,
    )
    told = reading(started(4, "r1"), answer, finished("r1", label="true → exit 0", exit_code=0))
    (run,) = document(told, ["runs"])["runs"]
    first, second = run["course"]
    assert (first["step"], first["request"], first["cost_usd"], first["calls"]) == (1, 2, None, [])
    assert (second["step"], second["input_tokens"], second["cached_tokens"], second["cost_usd"]) == (2, 60, 50, 0.25)
    assert [(call["tool"], call["code"], call["label"]) for call in second["calls"]] == [
        ("bash", "ok", "true → exit 0"),
        ("read", None, ""),
    ]
    text = part_text(told, "runs")
    for line in (
        "  r1: 2 steps, ?",
        "    step 2: request 4, 60 in (50 cached), 3 out, $0.2500",
        "      bash: true → exit 0 [ok]",
        '      read: {"path":"a"} [no result]',
        "    check true, exit code 0, 0.1 s, artifact:0 [passed]",
    ):
        assert line in text


def test_of_a_long_run_the_tree_shows_the_ends():
    steps = [event for number in range(4, 60) for event in (started(number, "r1"), reply(number, Usage(), agent="r1"))]
    text = part_text(reading(*steps), "runs")
    assert "    17 more steps; --json has them all\n" in text
    assert "step 20: " in text
    assert "step 21: " not in text
    assert "step 57: " in text


def test_M33_a_sum_with_an_unknown_cost_is_unknown_and_says_what_is_known():
    cost = document(reading(), ["cost"])["cost"]
    assert (cost["total_usd"], cost["known_usd"], cost["unpriced_requests"]) == (None, 0.5, 1)
    assert cost["by_task"] == {"one": {**cost["by_task"]["one"], "runs": ["r1"], "requests": 1, "cost_usd": None}}
    assert cost["by_role"]["planner"]["known_usd"] == cost["by_role"]["planner"]["cost_usd"] == 0.5
    assert "total ?: $0.5000 and 1 requests of unknown price" in part_text(reading(), "cost")


def test_the_costs_of_tasks_and_of_the_planner_are_all():
    cost = document(long_reading(100), ["cost"])["cost"]
    tasks = sum(part["cost_usd"] for part in cost["by_task"].values())
    assert tasks + cost["by_role"]["planner"]["cost_usd"] == pytest.approx(cost["total_usd"])
    assert tasks == pytest.approx(cost["by_role"]["worker"]["cost_usd"])
    assert cost["unpriced_requests"] == 0
    assert cost["known_usd"] == pytest.approx(cost["total_usd"])


@given(st.lists(st.integers(0, 500), max_size=9), st.none() | st.integers(0, 5_000), st.none() | st.integers(0, 5_000))
def test_what_a_cache_served_of_the_parts_adds_up(estimates: list[int], reported: int | None, cached: int | None):
    parts = served(estimates, reported=reported, cached=cached)
    whole = sum(estimates) if reported is None else reported
    assert sum(part.tokens for part in parts) == (whole if sum(estimates) else 0)
    if cached is None:
        assert {part.cache for part in parts} <= {"unknown"}
        return
    assert sum(part.cached_tokens or 0 for part in parts) == (min(cached, whole) if sum(estimates) else 0)
    order = [part.cache for part in parts if part.tokens]
    assert order == sorted(order, key=["cached", "partly", "fresh"].index)
    assert order.count("partly") <= 1


def test_events_are_chosen_by_kind_agent_task_place_and_time():
    told = of(
        ev.SessionStarted(session=SESSION, objective="o"),
        ev.TaskAdded(task=TaskId("one"), title="t", objective="x"),
        ev.RunStarted(run=R1, task=TaskId("one")),
        started(1),
        started(2, "r1"),
        started(3, "r1:summary"),
        ev.TaskAdded(task=TaskId("two"), title="t", objective="x"),
    )

    def chosen(**more: object) -> list[int]:
        return [row["seq"] for row in find_events(told, Wanted(**more)).rows]

    assert chosen() == [1, 2, 3, 4, 5, 6, 7]
    assert chosen(kinds=frozenset({"task_added", "run_started"})) == [2, 3, 7]
    assert chosen(agent="planner") == [4]
    assert chosen(agent="r1") == [3, 5, 6]
    assert chosen(task="one") == [2, 3, 5, 6]
    assert chosen(first_seq=3, last_seq=5) == [3, 4, 5]
    assert chosen(since=datetime(2026, 1, 1, 0, 0, 6, tzinfo=UTC)) == [6, 7]
    assert chosen(until=datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC), kinds=frozenset({"task_added"})) == [2]
    found = find_events(told, Wanted(task="one", limit=2))
    assert ([row["seq"] for row in found.rows], found.matching, found.whole) == ([2, 3], 4, 7)
    assert "events (2 of 7; 4 match)" in plain(part_blocks(told, "events", wanted=Wanted(task="one", limit=2)))
    assert {event.type for event in EVENTS} <= set(event_kinds())


def test_a_secret_is_masked_before_it_is_cut():
    secret = "correct-horse-battery-staple-" * 4
    told = of(
        ev.SessionStarted(session=SESSION, objective="o"),
        ev.FactRecorded(fact=F1, text=f"the key is {secret}", source="planner"),
    )
    mask = mask_of([Secret(name="KEY", value=secret)])
    for part in ("facts", "events"):
        text = plain(part_blocks(told, part, mask=mask))
        assert "horse" not in text, part
    assert "[secret:KEY]" in plain(part_blocks(told, "facts", mask=mask))


def test_nothing_that_a_terminal_obeys_is_in_a_tree():
    told = long_reading(100)
    assert "\x1b" in EVIL
    for part in ("runs", "deltas", "facts", "cost", "events", "spine"):
        assert not set(part_text(told, part)) & {"\x1b", "\u202e", "\x07"}, part
    assert SETTLED.error_class == "x"
