"""The product's own sessions as recordings."""

from dataclasses import replace
from itertools import count

import pytest

from tests.lab.making import terms
from xnagent.core.events import Event, Stored
from xnagent.core.ids import PLANNER, AgentId, CallId
from xnagent.core.items import AssistantText, Reasoning, ToolCall, UserText
from xnagent.core.spine_events import (
    ManifestRecorded,
    ReplyReceived,
    ResultOffloaded,
    SpineExtended,
    SpineRebased,
    ToolFinished,
)
from xnagent.core.tokens import Usage
from xnagent.lab.logs import run_of
from xnagent.lab.report import RECORDED, Plan, curve, losses, replay
from xnagent.lab.strategies import OURS, STRATEGIES

WORKER = AgentId("r1")


def manifest(role: str) -> ManifestRecorded:
    return ManifestRecorded(
        manifest=role,
        role=role,
        wire="chat",
        model="m",
        system="s" * 1_000,
        tools='[{"parameters":{}}]',
        max_output_tokens=1,
        window_tokens=1,
    )


def told(agent: AgentId, text: str) -> SpineExtended:
    return SpineExtended(agent=agent, kind="brief", items=(UserText(text=text, origin="task"),))


def reply(agent: AgentId, *calls: str, usage: Usage | None = None) -> ReplyReceived:
    made = [ToolCall(call_id=CallId(name), name="read", arguments=f'{{"path":"{name}.py"}}') for name in calls]
    return ReplyReceived(
        agent=agent,
        request=1,
        items=(Reasoning(wire="chat", payload="hm" * 50), AssistantText(text="I look"), *made),
        usage=usage or Usage(),
        cost_usd=None,
        finish="stop",
        duration_seconds=1.0,
    )


def result(agent: AgentId, name: str, text: str) -> ToolFinished:
    return ToolFinished(agent=agent, call_id=CallId(name), tool="read", text=text)


def stored(*events: Event) -> list[Stored]:
    numbers = count(1)
    return [
        Stored(seq=n, at=f"2026-01-01T00:00:{n:02}.000Z", event=event)
        for n, event in zip(numbers, events, strict=False)
    ]


def test_each_agent_is_a_thread_with_its_head_its_times_and_what_it_was_told():
    events = stored(
        manifest("planner"),
        manifest("worker"),
        told(PLANNER, "the objective"),
        reply(PLANNER, usage=Usage(input_tokens=2_000, cached_tokens=500, cache_write_tokens=1_500, output_tokens=90)),
        told(WORKER, "the brief"),
        reply(WORKER, "a", "b"),
        result(WORKER, "a", "x" * 10_000),
        result(WORKER, "b", "y" * 1_000),
        ResultOffloaded(agent=WORKER, call_id=CallId("a"), text="x" * 500),
        reply(WORKER),
    )
    planner, worker = run_of(events, name="s-1").threads
    assert (planner.agent, worker.agent) == ("planner", "r1")
    assert planner.steps[0].recorded is not None
    assert (planner.steps[0].recorded.fresh, planner.steps[0].recorded.written) == (0, 1_500)
    assert planner.head_tokens + planner.steps[0].user_tokens == 2_000
    assert worker.head_tokens == manifest("worker").head_tokens
    assert [step.at is not None for step in worker.steps] == [True, True]
    assert [one.tokens for one in worker.steps[1].results] == [8 + 150, 8 + 300]
    assert [one.path for one in worker.steps[1].results] == ["a.py", "b.py"]
    assert worker.steps[0].reply_tokens > 30 + 2 * 12


def test_a_rebase_is_no_work_and_estimated_usage_is_no_report():
    events = stored(
        told(WORKER, "the brief"),
        reply(WORKER, "a", usage=Usage(input_tokens=900, is_estimated=True)),
        result(WORKER, "a", "x" * 1_000),
        SpineRebased(
            agent=WORKER,
            items=(UserText(text="checkpoint", origin="state"),),
            cursor=0,
            cause="soft",
            tokens_before=2,
            tokens_after=1,
            items_dropped=1,
            checkpoint_tokens=1,
        ),
        reply(WORKER),
    )
    (thread,) = run_of(events, name="s-1").threads
    assert [step.recorded for step in thread.steps] == [None, None]
    assert thread.steps[1].is_compacted
    assert thread.steps[1].user_tokens == 0


def test_a_session_without_a_reply_has_nothing_to_replay():
    assert run_of(stored(told(PLANNER, "the objective")), name="s-1").threads == ()
    plan = Plan(strategies=tuple(STRATEGIES), terms=(terms(),))
    report = replay([run_of(stored(told(PLANNER, "objective")), name="s-1")], plan)
    assert (report.runs, curve(report), losses(report)) == ([], None, [])


@pytest.mark.parametrize("strategies", [("append",), (OURS,)])
def test_where_there_is_nothing_to_compare_nothing_is_lost(strategies: tuple[str, ...]):
    run = run_of(stored(told(PLANNER, "the objective"), reply(PLANNER)), name="s-1")
    report = replay([run], Plan(strategies=strategies, terms=(replace(terms(), reread_share=0.0),)))
    assert losses(report) == []
    assert ("marks", RECORDED) not in report.runs[0].tallies
