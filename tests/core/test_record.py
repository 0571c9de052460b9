"""The final record and the exit code."""

import json

import pytest
from inline_snapshot import snapshot

from tests.core.sessions import Story, delegated, example, settled, task
from tests.core.test_decide import BLOCKED, COMPLETED, DEADLINE, DONE, FAILED, FAULT, PREFIX, SIGNAL, STARTED, STEPS
from xnagent.core import events as ev
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, RunId, Ticket
from xnagent.core.items import AssistantText
from xnagent.core.pricing import Price, cost_usd
from xnagent.core.record import EXIT_CODE, exit_code, final_record
from xnagent.core.spine_events import PrefixBroken
from xnagent.core.state import SessionState
from xnagent.core.tokens import Usage

PLANNER_PRICE = Price(input_usd=2, cached_usd=2, output_usd=10)
WORKER_PRICE = Price(input_usd=0.5, cached_usd=0.5, output_usd=2)
B050 = [
    ("planner", 1_000, 100),
    ("r1", 10_000, 1_000),
    ("r2", 20_000, 500),
    ("r2", 4_000, 100),
    ("r3", 6_000, 0),
]


@pytest.mark.parametrize(
    ("events", "is_retryable", "code"),
    [
        ((COMPLETED,), False, 0),
        ((FAILED,), False, 3),
        ((*DONE, FAILED), False, 4),
        ((BLOCKED,), False, 5),
        ((STEPS,), False, 6),
        ((DEADLINE,), True, 7),
        ((FAULT,), True, 8),
        ((FAULT,), False, 9),
        ((PREFIX,), True, 10),
        ((SIGNAL,), False, 130),
        ((ev.SessionInterrupted(signal="SIGTERM"),), True, 143),
        ((), False, 3),
    ],
)
def test_B057_every_outcome_has_its_exit_code(events, is_retryable, code):
    assert exit_code(fold_all([STARTED, *events]), is_retryable=is_retryable) == code


def test_B057_zero_is_for_completed_alone_and_no_code_is_used_twice():
    assert [outcome for outcome, code in EXIT_CODE.items() if code == 0] == ["completed"]
    assert len(set(EXIT_CODE.values())) == len(EXIT_CODE)


def b050() -> Story:
    story = Story()
    story.begin()
    story.add(*(task(name) for name in "abc"), *(delegated(f"r{n + 1}", "abc"[n]) for n in range(3)))
    for agent, tokens, output in B050:
        usage = Usage(input_tokens=tokens, output_tokens=output)
        price = PLANNER_PRICE if agent == PLANNER else WORKER_PRICE
        story.reply(AgentId(agent), AssistantText(text="x"), usage=usage, cost_usd=cost_usd(usage, price))
    story.add(settled("r1"), settled("r2"), settled("r3", "failed", reason="died"))
    return story


def test_B050_the_cost_of_every_worker_counts_also_of_the_one_that_failed():
    record = final_record(b050().state)
    usage = record["usage"]
    assert (usage["requests"], usage["input_tokens"], usage["output_tokens"]) == (5, 41_000, 1_700)
    assert usage["cost_usd"] == 0.0262
    planner, worker = usage["by_role"]["planner"], usage["by_role"]["worker"]
    assert (planner["requests"], planner["input_tokens"], planner["output_tokens"]) == (1, 1_000, 100)
    assert planner["cost_usd"] == 0.003
    assert (worker["requests"], worker["input_tokens"], worker["output_tokens"]) == (4, 40_000, 1_600)
    assert worker["cost_usd"] == 0.0232
    assert record["steps"] == {"planner": 1, "worker": 4}
    assert record["runs"] == {"total": 3, "completed": 2, "failed": 1, "cancelled": 0}
    assert record["tasks"] == {"total": 3, "completed": 2, "failed": 1, "dropped": 0}


def test_M33_an_unknown_number_is_null_and_not_zero():
    story = b050()
    story.reply(AgentId("r1"), AssistantText(text="x"), usage=Usage(), cost_usd=None)
    usage = final_record(story.state)["usage"]
    assert (usage["cost_usd"], usage["by_role"]["worker"]["cost_usd"]) == (None, None)
    assert usage["by_role"]["planner"]["cost_usd"] == 0.003
    assert usage["cached_tokens"] is None


def test_B070_reasoning_is_a_part_of_the_output():
    story = Story()
    story.begin()
    usage = Usage(input_tokens=100, output_tokens=5_120, reasoning_tokens=1_710)
    story.reply(PLANNER, AssistantText(text="x"), usage=usage, cost_usd=cost_usd(usage, PLANNER_PRICE))
    shown = final_record(story.state)["usage"]
    assert (shown["output_tokens"], shown["reasoning_tokens"], shown["cost_usd"]) == (5_120, 1_710, 0.0514)


def finished() -> Story:
    story = example()
    story.tell()
    story.rebase()
    story.launch(RunId("r2"))
    story.rebase(AgentId("r2"))
    story.add(
        ev.FinishRequested(outcome="blocked", summary="Which port?", question="8080 or 80?"),
        PrefixBroken(agent=PLANNER, request=1, segment="head", detail="", lost_tokens=9),
        ev.ResultApplied(
            is_applied=True, branch="xnagent/s-1", changed_files=("core.py",), patch=Ticket("artifact:1"), detail="kept"
        ),
        ev.SessionSettled(outcome="blocked", exit_code=5, duration_seconds=1.23456),
    )
    return story


def test_B057_the_record_of_a_session():
    record = json.loads(json.dumps(final_record(finished().state)))
    assert record.pop("usage")["requests"] == 2
    assert record.pop("spine")["tokens"] > 300
    record["session"] = "s-1"
    assert record == snapshot(
        {
            "type": "final",
            "session": "s-1",
            "outcome": "blocked",
            "exit_code": 5,
            "verified": False,
            "summary": "Which port?",
            "question": "8080 or 80?",
            "error": None,
            "tasks": {"total": 3, "completed": 1, "failed": 0, "dropped": 1},
            "runs": {"total": 2, "completed": 1, "failed": 0, "cancelled": 0},
            "steps": {"planner": 1, "worker": 1},
            "workspace": {
                "base": "c0ffee",
                "branch": "xnagent/s-1",
                "patch": "artifact:1",
                "applied": True,
                "changed_files": ["core.py"],
                "detail": "kept",
            },
            "duration_seconds": 1.235,
        }
    )


def test_M24_the_planners_rebases_are_counted():
    assert final_record(finished().state)["spine"] | {"tokens": 0} == {
        "items": 2,
        "tokens": 0,
        "deltas": 1,
        "rebases": 1,
        "breaks": 1,
    }


def test_the_record_of_a_session_that_has_not_begun_and_of_one_that_broke():
    record = final_record(SessionState())
    assert (record["outcome"], record["exit_code"], record["verified"], record["error"]) == ("failed", None, None, None)
    settled_badly = ev.SessionSettled(
        outcome="error", exit_code=1, summary="broke", error_class="StoreWriteError", error="disk full"
    )
    record = final_record(fold_all([settled_badly]))
    assert (record["outcome"], record["exit_code"], record["summary"]) == ("error", 1, "broke")
    assert record["error"] == {"class": "StoreWriteError", "message": "disk full"}
