"""Trajectories in the Agent Trajectory Interchange Format (ATIF): one object a file, sub-agents' within it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xnagent.core.tokens import estimate_head
from xnagent.lab.fields import Fields, count_at, list_at, object_at, seconds_of, text_at
from xnagent.lab.messages import Call, Message, thread_of
from xnagent.lab.threads import Recorded, Run, Thread

MOST_NESTED: Final = 20
UNREAD_KINDS: Final = frozenset({"note", "summary"})


def is_atif(record: Fields) -> bool:
    """Whether a record looks like a trajectory."""
    return isinstance(record.get("steps"), list)


def run_of(record: Fields, *, name: str) -> Run:
    """The run with its threads."""
    client = text_at(object_at(record, "agent"), "name")
    name = text_at(record, "session_id") or name
    return Run(name=name, client=client, threads=tuple(_threads(record, run=name, agent="", depth=0)))


def _threads(record: Fields, *, run: str, agent: str, depth: int) -> Iterator[Thread]:
    thread = thread_of(_messages(record), run=run, agent=agent, head_tokens=_head(record))
    if thread.steps:
        yield thread
    for number, child in enumerate(list_at(record, "subagent_trajectories"), 1):
        name = text_at(child, "trajectory_id") or f"{agent or 'main'}.{number}"
        if depth < MOST_NESTED:
            yield from _threads(child, run=run, agent=name, depth=depth + 1)


def _head(record: Fields) -> int:
    tools = list_at(object_at(record, "agent"), "tool_definitions")
    definitions = text_at(object_at(record, "agent"), "tool_definitions")
    system = "".join(
        text_at(step, "message") for step in list_at(record, "steps")[:1] if step.get("source") == "system"
    )
    return estimate_head(system, definitions, tool_count=len(tools))


def _messages(record: Fields) -> Iterator[Message]:
    """A step without a model call is something that was done for the model: text like a user's.

    Of a trajectory that xnagent exported, `extra.kind` says what is no work: notes and what was asked for summaries.
    """
    for number, step in enumerate(list_at(record, "steps")):
        kind = text_at(object_at(step, "extra"), "kind")
        if kind in UNREAD_KINDS:
            continue
        is_call = step.get("source") == "agent" and step.get("llm_call_count") != 0
        if kind == "rebase":
            yield Message(kind="compaction")
        elif is_call and not step.get("is_copied_context"):
            yield _reply(step)
        elif number or step.get("source") != "system":
            yield Message(kind="user", text=text_at(step, "message"))
        yield from _results(step)


def _reply(step: Fields) -> Message:
    return Message(
        kind="reply",
        text=text_at(step, "message"),
        reasoning=text_at(step, "reasoning_content"),
        calls=[
            Call(
                call_id=text_at(call, "tool_call_id"),
                name=text_at(call, "function_name"),
                arguments=text_at(call, "arguments"),
            )
            for call in list_at(step, "tool_calls")
        ],
        recorded=_recorded(object_at(step, "metrics")),
        at=seconds_of(text_at(step, "timestamp")),
    )


def _results(step: Fields) -> Iterator[Message]:
    for result in list_at(object_at(step, "observation"), "results"):
        yield Message(kind="result", text=text_at(result, "content"), call_id=text_at(result, "source_call_id"))


def _recorded(metrics: Fields) -> Recorded | None:
    prompt, extra = count_at(metrics, "prompt_tokens"), object_at(metrics, "extra")
    if not prompt or extra.get("is_estimated") is True:
        return None
    cached = min(prompt, count_at(metrics, "cached_tokens"))
    written = min(prompt - cached, count_at(extra, "cache_write_tokens"))
    return Recorded(
        fresh=prompt - cached - written,
        cached=cached,
        written=written,
        written_long=min(written, count_at(extra, "cache_write_long_tokens")),
        output=count_at(metrics, "completion_tokens"),
    )
