"""From events of the log to what an editor is told: text, plan, tool calls, diffs, usage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from acp import plan_entry, start_tool_call, text_block, tool_content, tool_diff_content, update_plan, update_tool_call
from acp.helpers import SessionUpdate, ToolCallContentVariant, update_agent_message_text
from acp.schema import Cost, PlanEntryStatus, ToolCallLocation, ToolKind, UsageUpdate

from xnagent.acp.patches import pieces
from xnagent.api.events import Event
from xnagent.core.ids import PLANNER
from xnagent.core.text import clip

Update: TypeAlias = SessionUpdate | UsageUpdate
Fields: TypeAlias = Mapping[str, Any]

KINDS: Final[Mapping[str, ToolKind]] = {
    "bash": "execute",
    "edit": "edit",
    "write": "edit",
    "read": "read",
    "run_inspect": "read",
    "worker_status": "read",
    "grep": "search",
    "glob": "search",
    "plan": "think",
    "note": "think",
    "record_fact": "think",
    "correct_fact": "think",
    "retract_fact": "think",
}
SHOWN_CHARACTERS: Final = 4_000
"""Of a result; the editor's user can ask `xnagent inspect` for the rest."""


@dataclass(slots=True, kw_only=True)
class Narrator:
    """Tells a session's events, in their order."""

    folder: Path
    """What paths of the session are relative to."""
    tasks: dict[str, tuple[str, PlanEntryStatus]] = field(default_factory=dict)
    """Title and status by task."""
    runs: dict[str, str] = field(default_factory=dict)
    """Task by run."""
    window_tokens: int = 0
    cost_usd: float | None = 0.0
    """None from the first cost on that nobody knows."""

    def updates(self, event: Event, *, patch: str = "") -> list[Update]:
        """What the event is told as; `patch` is what a merged run changed."""
        fields = cast("Fields", event.fields)
        if event.type == "patch_merged":
            return list(_patch_merged(self, fields, patch=patch))
        tell = _TELLERS.get(event.type)
        return [] if tell is None else list(tell(self, fields))

    def place(self, path: str) -> str:
        """The absolute path of a file."""
        return str(self.folder / path)


def _plan(narrator: Narrator) -> Update:
    return update_plan(plan_entry(title, status=status) for title, status in narrator.tasks.values())


def _task_changed(narrator: Narrator, fields: Fields) -> Iterator[Update]:
    status = narrator.tasks[fields["task"]][1] if fields["task"] in narrator.tasks else "pending"
    narrator.tasks[fields["task"]] = (fields["title"], status)
    yield _plan(narrator)


def _task_dropped(narrator: Narrator, fields: Fields) -> Iterator[Update]:
    narrator.tasks.pop(fields["task"], None)
    yield _plan(narrator)


def _with_status(narrator: Narrator, run: str, *, status: PlanEntryStatus) -> Iterator[Update]:
    task = narrator.runs.get(run, "")
    if task in narrator.tasks:
        narrator.tasks[task] = (narrator.tasks[task][0], status)
        yield _plan(narrator)


def _run_started(narrator: Narrator, fields: Fields) -> Iterator[Update]:
    run, task = fields["run"], fields["task"]
    narrator.runs[run] = task
    title = narrator.tasks.get(task, (task, ""))[0]
    yield start_tool_call(f"run-{run}", f"{run}: {title}", kind="other", status="pending")


def _run_launched(narrator: Narrator, fields: Fields) -> Iterator[Update]:
    yield update_tool_call(f"run-{fields['run']}", status="in_progress")
    yield from _with_status(narrator, fields["run"], status="in_progress")


def _run_settled(narrator: Narrator, fields: Fields) -> Iterator[Update]:
    is_done = fields["status"] == "completed"
    reason = fields["reason"] or fields["status"]
    content = None if is_done else [tool_content(text_block(clip(reason, SHOWN_CHARACTERS)))]
    yield update_tool_call(f"run-{fields['run']}", status="completed" if is_done else "failed", content=content)
    yield from _with_status(narrator, fields["run"], status="completed" if is_done else "pending")


def _run_interrupted(narrator: Narrator, fields: Fields) -> Iterator[Update]:
    yield update_tool_call(f"run-{fields['run']}", status="failed")
    yield from _with_status(narrator, fields["run"], status="pending")


def _patch_merged(narrator: Narrator, fields: Fields, *, patch: str) -> Iterator[Update]:
    found = pieces(patch)
    if found:
        diffs: Sequence[ToolCallContentVariant] = [
            tool_diff_content(narrator.place(piece.path), piece.after, piece.before) for piece in found
        ]
        places = [ToolCallLocation(path=path) for path in dict.fromkeys(narrator.place(one.path) for one in found)]
        yield update_tool_call(f"run-{fields['run']}", kind="edit", content=diffs, locations=places)


def _manifest_recorded(narrator: Narrator, fields: Fields) -> Iterator[Update]:
    if fields["role"].partition(":")[0] == "planner":
        narrator.window_tokens = fields["window_tokens"]
    yield from ()


def _reply_received(narrator: Narrator, fields: Fields) -> Iterator[Update]:
    agent = fields["agent"]
    for item in fields["items"]:
        if item["kind"] == "assistant_text" and agent == PLANNER and item["text"]:
            yield update_agent_message_text(item["text"])
        elif item["kind"] == "tool_call":
            yield _call(agent, item)
    cost = fields["cost_usd"]
    narrator.cost_usd = None if cost is None or narrator.cost_usd is None else narrator.cost_usd + cost
    used = (fields["usage"]["input_tokens"] or 0) + (fields["usage"]["output_tokens"] or 0)
    if agent == PLANNER and narrator.window_tokens:
        price = None if narrator.cost_usd is None else Cost(amount=round(narrator.cost_usd, 6), currency="USD")
        yield UsageUpdate(session_update="usage_update", used=used, size=narrator.window_tokens, cost=price)


def _call(agent: str, item: Fields) -> Update:
    whose = "" if agent == PLANNER else f"{agent}: "
    return start_tool_call(
        item["call_id"],
        f"{whose}{item['name']}",
        kind=KINDS.get(item["name"], "other"),
        status="pending",
        raw_input=_parsed(item["arguments"]),
    )


def _parsed(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _tool_started(_narrator: Narrator, fields: Fields) -> Iterator[Update]:
    yield update_tool_call(fields["call_id"], status="in_progress")


def _tool_finished(narrator: Narrator, fields: Fields) -> Iterator[Update]:
    paths = dict.fromkeys([*fields["paths_changed"], *fields["paths_read"]])
    whose = "" if fields["agent"] == PLANNER else f"{fields['agent']}: "
    yield update_tool_call(
        fields["call_id"],
        title=f"{whose}{fields['label'] or fields['tool']}",
        status="completed" if fields["code"] == "ok" else "failed",
        content=[tool_content(text_block(clip(fields["text"], SHOWN_CHARACTERS)))],
        locations=[ToolCallLocation(path=narrator.place(path)) for path in paths] or None,
    )


_TELLERS: Final = {
    "manifest_recorded": _manifest_recorded,
    "reply_received": _reply_received,
    "run_interrupted": _run_interrupted,
    "run_launched": _run_launched,
    "run_settled": _run_settled,
    "run_started": _run_started,
    "task_added": _task_changed,
    "task_dropped": _task_dropped,
    "task_revised": _task_changed,
    "tool_finished": _tool_finished,
    "tool_started": _tool_started,
}
"""By event type."""
