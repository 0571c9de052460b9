"""Two sessions part where one decides otherwise; names, times, order and spelling are no decisions."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.board import Evidence
from xnagent.core.events import CheckFinished, Event, RunSettled, SessionSettled, SessionStarted, Stored
from xnagent.core.fork_events import SessionForked
from xnagent.core.ids import AgentId, CallId, RunId, SessionId, Ticket
from xnagent.core.items import AssistantText, ToolCall
from xnagent.core.spine_events import ReplyReceived, SpineRebased, ToolFinished
from xnagent.core.tokens import Usage
from xnagent.inspect.decisions import decisions, part


def stored(events: Iterable[Event], *, minute: int = 0) -> list[Stored]:
    return [
        Stored(seq=seq, at=f"2026-11-30T10:{minute:02}:00.000Z", event=event) for seq, event in enumerate(events, 1)
    ]


def started(session: str = "s-a", objective: str = "Do it.", repository: str = "/srv/a/repo") -> SessionStarted:
    return SessionStarted(session=SessionId(session), objective=objective, repository=repository)


def replied(agent: str, *calls: ToolCall, text: str = "", request: int = 1) -> ReplyReceived:
    items = (*((AssistantText(text=text),) if text else ()), *calls)
    return ReplyReceived(
        agent=AgentId(agent),
        request=request,
        items=items,
        usage=Usage(),
        cost_usd=None,
        finish="tool_calls" if calls else "stop",
        duration_seconds=1.0,
    )


def called(agent: str, name: str, arguments: str, *, number: int = 1, text: str = "ok") -> list[Event]:
    """A reply with one call, and the call's result."""
    call_id = CallId(f"{agent}-{number}")
    call = ToolCall(call_id=call_id, name=name, arguments=arguments)
    return [
        replied(agent, call, text="Well.", request=number),
        ToolFinished(agent=AgentId(agent), call_id=call_id, tool=name, text=text),
    ]


def bash(command: str, *, number: int, agent: str = "r1", text: str = "ok") -> list[Event]:
    return called(agent, "bash", json.dumps({"command": command}), number=number, text=text)


@given(order=st.permutations([1, 1, 1, 2, 2, 3]))
def test_in_whichever_order_agents_come_they_decide_the_same(order: list[int]):
    lanes = {lane: [bash(f"{lane} {n}", number=n, agent=f"r{lane}") for n in range(3)] for lane in (1, 2, 3)}
    taken = {lane: iter(events) for lane, events in lanes.items()}
    mixed = [event for lane in order for event in next(taken[lane])]
    counts = {lane: order.count(lane) for lane in lanes}
    ordered = [event for lane, events in lanes.items() for one in events[: counts[lane]] for event in one]
    found = part(stored([started(), *mixed]), stored([started("s-b"), *ordered], minute=5))
    assert found.is_same
    assert found.common == {"user": 1, **{f"r{lane}": count for lane, count in counts.items()}}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ('{"command": "cat /srv/a/repo/x", "timeout_seconds": 5}', '{"timeout_seconds":5,"command":"cat /b/repo/x"}'),
        ('{"command":"xnagent inspect s-a"}', '{"command":"xnagent inspect s-b"}'),
    ],
)
def test_names_of_a_sessions_own_and_spelling_are_left_aside(ours: str, theirs: str):
    here = stored([started(), *called("r1", "bash", ours)])
    there = stored([started("s-b", repository="/b/repo"), *called("r1", "bash", theirs)])
    assert part(here, there).is_same


def test_a_stored_output_is_the_one_that_the_same_call_made():
    """Two runs of a test suite never print the same; to read what it printed is the same decision."""
    one, two, other = (Ticket(f"artifact:{digit * 16}") for digit in "123")

    def session(first: Ticket, second: Ticket, read: Ticket) -> list[Stored]:
        outputs = [*bash("a", number=1, text=f"all: {first}"), *bash("b", number=2, text=f"all: {second}")]
        return stored([started(), *outputs, *called("r1", "read", json.dumps({"target": read}), number=3)])

    assert part(session(one, two, one), session(other, two, other)).is_same
    found = part(session(one, two, one), session(one, two, two))
    assert (found.who, found.number, found.here.what) == ("r1", 3, {"target": one})


def test_waiting_is_no_decision_but_an_answer_that_ends_the_work_is():
    settled = RunSettled(run=RunId("r1"), status="completed")
    wait = replied("planner", text="I wait.")
    assert [one.kind for one in decisions(stored([started(), wait]))] == ["objective", "answer"]
    here = stored([started(), replied("r1", text="All  done.\n"), settled])
    assert part(here, stored([started(), replied("r1", text="All done."), settled])).is_same
    assert not part(here, stored([started(), replied("r1", text="Not done."), settled])).is_same


def test_of_what_each_agent_did_otherwise_the_first_in_the_log_is_told():
    def session(second: str, third: str) -> list[Stored]:
        return stored(
            [
                started(),
                *bash("same", number=1),
                *bash(second, number=1, agent="r2"),
                *bash(third, number=2),
            ]
        )

    found = part(session("x", "y"), session("u", "v"))
    assert (found.who, found.number, found.here.seq, found.there.what) == ("r2", 1, 4, {"command": "u"})
    assert dict(found.common) == {"user": 1, "r1": 1, "r2": 0}


def test_a_session_that_goes_no_further_parts_where_the_other_goes_on():
    whole = [started(), *bash("a", number=1), *bash("b", number=2)]
    fork = [started("s-b"), *whole[1:3], SessionForked(origin=SessionId("s-a"), cut=3)]
    found = part(stored(fork), stored(whole))
    assert (found.who, found.number, found.here, found.there.seq) == ("r1", 2, None, 4)


def test_verdicts_rebases_and_the_end_are_decisions():
    def session(*, exit_code: int, cause: str, outcome: str) -> list[Stored]:
        evidence = Evidence(
            command="true", exit_code=exit_code, output=Ticket("artifact:" + "0" * 16), tail="", duration_seconds=1.0
        )
        rebased = SpineRebased(
            agent=AgentId("r1"),
            items=(),
            cursor=0,
            cause=cause,
            tokens_before=2,
            tokens_after=1,
            items_dropped=1,
            checkpoint_tokens=1,
        )
        end = SessionSettled(outcome=outcome, exit_code=3)
        return stored([started(), rebased, CheckFinished(run=RunId("r1"), evidence=evidence), end])

    base = {"exit_code": 0, "cause": "soft", "outcome": "failed"}
    others = ({"exit_code": 1}, {"cause": "hard"}, {"outcome": "partial"})
    kinds = [part(session(**base), session(**{**base, **other})).here.kind for other in others]
    assert kinds == ["check", "rebase", "end"]
