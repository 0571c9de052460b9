"""What inspect shows of a log: tables, JSON, and what it must not make up."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core import events as ev
from xnagent.core import spine_events as sp
from xnagent.core.board import Evidence
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, FactId, RunId, SessionId, TaskId, Ticket
from xnagent.core.items import AssistantText, UserText
from xnagent.core.tokens import Usage
from xnagent.inspect.parts import PARTS
from xnagent.inspect.plain import count, line, money, seconds, share, table, visible
from xnagent.inspect.reading import Reading, final_of, run_status, status_of
from xnagent.inspect.report import COLUMNS, document, overview_text, part_text
from xnagent.inspect.requests import request_rows, shares_of

SESSION = SessionId("s-1")
R1 = RunId("r1")
EVIL = "\x1b[31mred\u202etxt\x07"


def started(number: int, agent: str = PLANNER) -> sp.RequestStarted:
    return sp.RequestStarted(
        agent=AgentId(agent),
        request=number,
        manifest="m",
        items=1,
        estimate_tokens=100,
        predicted_cached_tokens=None,
        sha256="0" * 64,
        size_bytes=400,
    )


def reply(number: int, usage: Usage, *, agent: str = PLANNER, cost: float | None = 0.5) -> sp.ReplyReceived:
    return sp.ReplyReceived(
        agent=AgentId(agent),
        request=number,
        items=(AssistantText(text=EVIL),),
        usage=usage,
        cost_usd=cost,
        finish="stop",
        duration_seconds=1.25,
    )


def rebased(agent: str = PLANNER) -> sp.SpineRebased:
    return sp.SpineRebased(
        agent=AgentId(agent),
        items=(UserText(text="o", origin="user"), UserText(text="c", origin="state")),
        cursor=0,
        cause="soft",
        tokens_before=900,
        tokens_after=90,
        items_dropped=3,
        checkpoint_tokens=50,
    )


EVENTS: tuple[ev.Event, ...] = (
    ev.SessionStarted(session=SESSION, objective=f"do {EVIL}", base="c0"),
    sp.SpineExtended(agent=PLANNER, kind="objective", items=(UserText(text="o", origin="user"),)),
    sp.SpineExtended(agent=PLANNER, kind="baseline", items=(UserText(text="{}", origin="state"),)),
    started(1),
    reply(1, Usage(input_tokens=100, cached_tokens=40, output_tokens=7)),
    ev.TaskAdded(task=TaskId("one"), title=EVIL, objective="x", checks=("true",)),
    ev.RunStarted(run=R1, task=TaskId("one"), checks=("true",)),
    ev.RunLaunched(run=R1, base="c0"),
    started(2, "r1"),
    sp.RequestRetried(agent=AgentId("r1"), request=2, attempt=1, fault="overloaded", detail="d", wait_seconds=1.0),
    reply(2, Usage(input_tokens=50, output_tokens=1), agent="r1", cost=None),
    ev.CheckFinished(
        run=R1,
        evidence=Evidence(command="true", exit_code=0, duration_seconds=0.1, output=Ticket("artifact:0"), tail=""),
    ),
    ev.FactRecorded(fact=FactId("f1"), text="it is", value="7", source="r1", is_pinned=True),
    sp.SpineExtended(agent=PLANNER, kind="delta", items=(UserText(text="[]", origin="state"),), cursor=2),
    rebased(),
    sp.RebaseRefused(agent=PLANNER, cause="soft", tokens_before=90, tokens_after=85, detail="too little"),
    started(3),
    sp.RequestFailed(agent=PLANNER, request=3, fault="authentication", detail="no"),
)
SETTLED = ev.SessionSettled(outcome="provider_error", exit_code=9, error_class="x", error="bad key", duration_seconds=2)


def reading(*more: ev.Event, is_live: bool = False) -> Reading:
    events = tuple(
        ev.Stored(seq=seq, at="2026-01-01T00:00:00.000Z", event=event) for seq, event in enumerate((*EVENTS, *more), 1)
    )
    records = [{"type": one.event.type, "session": SESSION, "seq": one.seq, "at": one.at, "x": EVIL} for one in events]
    state = fold_all(stored.event for stored in events)
    return Reading(session=SESSION, state=state, events=events, records=records, is_live=is_live)


def test_M33_a_share_counts_only_requests_that_report_it():
    rows = request_rows(reading().events)
    assert [(row.request, row.agent, row.generation) for row in rows] == [
        (1, "planner", 0),
        (2, "r1", 0),
        (3, "planner", 1),
    ]
    assert [(row.retries, row.fault) for row in rows] == [(0, None), (1, "overloaded"), (0, "authentication")]
    planner, worker = shares_of(reading().events)
    assert (planner.cached_tokens, planner.input_tokens, planner.reported) == (40, 100, 1)
    assert (worker.cached_tokens, worker.input_tokens, worker.requests) == (None, None, 1)
    cost = document(reading(), ["cost"])["cost"]
    assert cost["by_role"]["planner"]["cached_share"] == 0.4
    assert cost["by_role"]["worker"]["cached_share"] is None
    assert cost["total_usd"] is None
    assert {part["estimate_ratio"] for part in cost["by_model"].values()} == {None}
    text = part_text(reading(), "cost")
    assert "40.0 %" in text
    assert "?" in text
    assert "total ?" in text


def test_M33_the_cause_of_a_cache_miss_stands_at_its_request():
    drift = sp.CacheDrifted(agent=PLANNER, request=1, predicted_tokens=9_000, reported_tokens=40, cause="lifetime")
    assert [row.cache_miss for row in request_rows(reading(drift).events)] == ["lifetime", None, None]
    assert "lifetime" in part_text(reading(drift), "requests")
    assert document(reading(drift), ["requests"])["requests"][0]["cache_miss"] == "lifetime"
    unknown = sp.CacheDrifted(agent=PLANNER, request=99, predicted_tokens=9_000, reported_tokens=40, cause="unknown")
    assert [row.cache_miss for row in request_rows(reading(unknown).events)] == [None] * 3


def test_M63_an_estimate_is_held_against_the_report_of_the_same_request():
    answered, unpriced, failed = document(reading(), ["requests"])["requests"]
    assert answered["estimate_error_share"] == round(100 / answered["estimate_tokens"] - 1, 4)
    assert unpriced["estimate_error_share"] == round(50 / unpriced["estimate_tokens"] - 1, 4)
    assert failed["estimate_error_share"] is None
    own = reading(reply(3, Usage(input_tokens=9, output_tokens=1, is_estimated=True)))
    assert document(own, ["requests"])["requests"][2]["estimate_error_share"] is None


def test_B048_what_nobody_runs_is_interrupted():
    gone, live, ended = reading(), reading(is_live=True), reading(SETTLED)
    run = gone.state.board.runs[R1]
    assert (status_of(gone), status_of(live), status_of(ended)) == ("interrupted", "running", "provider_error")
    assert (run_status(gone, run), run_status(live, run)) == ("interrupted", "working")
    assert (final_of(gone)["outcome"], final_of(live)["outcome"], final_of(ended)["outcome"]) == (
        "interrupted",
        None,
        "provider_error",
    )
    assert final_of(gone)["exit_code"] is None
    assert document(gone, ["runs"])["runs"][0]["status"] == "interrupted"


@pytest.mark.parametrize("part", sorted(PARTS))
def test_every_part_is_a_table_and_json_without_what_a_terminal_would_obey(part: str):
    text = part_text(reading(SETTLED), part)
    assert text.startswith(part)
    assert not set(text) & {"\x1b", "\u202e", "\x07"}
    whole = document(reading(SETTLED), [part])
    assert list(whole) == ["session", part, "final"]
    json.dumps(whole)


def test_all_of_it_has_every_part():
    whole = document(reading(SETTLED), [])
    assert list(whole) == ["session", "overview", *PARTS, "final"]
    assert whole["overview"]["cached_share"] == {"planner": 0.4, "worker": None}
    assert len(whole["rebases"]) == 2
    assert whole["rebases"][0]["tokens_before"] == 900
    assert [row["kind"] for row in whole["deltas"]] == ["baseline", "delta"]


def test_the_overview_names_what_matters():
    text = overview_text(reading(SETTLED))
    for told in (
        "provider_error (exit code 9)",
        "bad key",
        "planner 40.0 %, worker ?",
        "rebases (2)",
        "too little",
        "900",
    ):
        assert told in text
    assert "\x1b" not in text
    empty = Reading(session=SESSION, state=fold_all([]), events=())
    assert "interrupted" in overview_text(empty)
    assert document(empty, [])["overview"]["begun"] is None


def test_every_part_but_two_has_columns():
    assert set(PARTS) - set(COLUMNS) == {"cost", "events"}


@given(st.text())
def test_visible_text_obeys_nobody_and_can_be_printed(text: str):
    shown = visible(text)
    shown.encode()
    assert all(c.isprintable() or ord(c) > 0x9F for c in shown)
    assert visible(shown) == shown
    assert "\n" not in line(text)


@given(st.lists(st.tuples(st.text(max_size=8), st.text("漢aä\u0301", max_size=8)), max_size=4))
def test_a_table_has_one_line_for_each_row(rows: list[tuple[str, str]]):
    assert table(("a", "b"), rows).count("\n") == len(rows)


def test_numbers():
    assert [count(None), count(1234)] == ["?", "1,234"]
    assert [money(None), money(0.01), money(1234.5)] == ["?", "$0.0100", "$1,234.50"]
    assert [money(-0.25), money(-0.0)] == ["-$0.2500", "$0.0000"]
    assert table(("n",), [("-$1.50",), ("+4%",)]) == "     n\n-$1.50\n   +4%"
    assert [share(None, 1), share(1, 0), share(1, 4)] == ["?", "?", "25.0 %"]
    assert [seconds(None), seconds(1.26)] == ["?", "1.3 s"]
    assert table(("n", "what"), [("1", "x"), ("1,000", "y")]) == "    n  what\n    1  x\n1,000  y"
    assert visible("a\tb\nc", keep="\n") == "a\\tb\nc"
