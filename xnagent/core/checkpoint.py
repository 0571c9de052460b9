"""The message that replaces a spine's middle: rendered from stored state alone, deterministic, no model asked.

It contains the state view exactly as `view` renders it, so that the next delta starts from it; the user's later
messages, pinned facts and open tasks come first, what can be looked up comes with the way to do it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from xnagent.core.archive import archived
from xnagent.core.board import OPEN_TASK, Board, Task
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.items import UserText
from xnagent.core.project import reminders
from xnagent.core.spine import Spine
from xnagent.core.state import SessionState, WorkLog, spine_of, work_of
from xnagent.core.summary import SummaryLog
from xnagent.core.text import Json, clip, indented, one_line
from xnagent.core.view import Document, view

KEPT_OPERATIONS: Final = 20
KEPT_PATHS: Final = 60
KEPT_LINES: Final = 40
HASH_DIGITS: Final = 8
NOTE_CHARACTERS: Final = 2_000

PLANNER_OPENING: Final = """\
The earlier messages of this session that stood here were replaced by this checkpoint. It was rendered from the stored
state; no model wrote it, and nothing was deleted. Where an earlier message and this checkpoint differ, this checkpoint
is right. The objective above still stands."""

PLANNER_LOOKUP: Final = """\
How to get details back: `worker_status` shows a run as it is now, whole; `run_inspect` shows what it did, step by step;
`read` opens an artifact ticket (evidence, patches, long outputs) or a file of the integrated result."""

WORKER_OPENING: Final = """\
Your earlier messages in this run that stood here were replaced by this checkpoint. It was rendered from the stored
record of the run; no model wrote it. The files in the workspace are as you left them. Your task above still stands."""

SUMMARY_OPENING: Final = """\
Your earlier messages in this run that stood here were left out. In their place stand a summary, which a model wrote
from them, and the stored record of the run, which no model wrote: where the two differ, the record is right. What
neither of them says is not known here: look it up, do not fill it in. The files in the workspace are as you left them.
Your task above still stands."""

EARLIER: Final = "Summaries of earlier rounds, as they were written; `read` one if this one leaves out what you need"
KEPT_NOTES: Final = 8
"""So many of them are shown."""
VALUES: Final = "Exact values, kept apart from the summary (look here first, and never write one from memory)"

WORKER_LOOKUP: Final = """\
How to get details back: `read` a file or an artifact ticket again; run a command again if its output matters."""


def checkpoint(state: SessionState, agent: AgentId) -> str:
    """The checkpoint text for the agent: same state, same bytes."""
    return _planner_checkpoint(state) if agent == PLANNER else _worker_checkpoint(state, agent)


def _planner_checkpoint(state: SessionState) -> str:
    spine, log = spine_of(state, PLANNER), work_of(state, PLANNER)
    operations = [cause.text for cause in state.causes if cause.is_operation][-KEPT_OPERATIONS:]
    parts = [
        _opening(spine, PLANNER_OPENING),
        _lines("The user's later messages are in `messages` below, verbatim: ", state.board.messages),
        _lines("Your newest operations: ", operations),
        _lines("Read so far (path or ticket, step, SHA-256): ", _read(log)),
        f"<state>\n{dump(ordered_view(archived(state.board)))}\n</state>",
        *_project(state, PLANNER),
        PLANNER_LOOKUP,
        _pinned(state.board),
        _open_now(state),
        "</checkpoint>",
    ]
    return "\n\n".join(part for part in parts if part)


def _worker_checkpoint(state: SessionState, agent: AgentId) -> str:
    log, spine = work_of(state, agent), spine_of(state, agent)
    facts = [fact for fact in state.board.facts.values() if fact.source == agent and fact.retracted is None]
    summary = log.summary
    parts = [
        _opening(spine, SUMMARY_OPENING if summary.text else WORKER_OPENING),
        shown_summary(summary),
        _bullets(EARLIER, (f"round {number}: {ticket}" for number, ticket in summary.notes[:-1][-KEPT_NOTES:])),
        _bullets("What you did since then, newest last" if summary.text else "What you did, newest last", _calls(log)),
        _bullets("From the Planner, newest last", log.letters),
        _lines("Files read (step, SHA-256 of what you saw last): ", _read(log)),
        _lines("Files changed (step): ", _stamps(log.files_changed)),
        *_project(state, agent),
        WORKER_LOOKUP,
        _bullets("Facts that you recorded", (f"{fact.fact}: {fact.text}{_exact(fact.value)}" for fact in facts)),
        _bullets("Your notes, newest last", (clip(note, NOTE_CHARACTERS) for note in log.notes)),
        _bullets(VALUES, (f"{one_line(name)} = {dump(value)}" for name, value in sorted(summary.values.items()))),
        _pinned(state.board),
        "</checkpoint>",
    ]
    return "\n\n".join(part for part in parts if part)


def shown_summary(summary: SummaryLog) -> str:
    """The summary as a checkpoint shows it: how things stood, and who said so; empty if there is none."""
    if not summary.text:
        return ""
    return f'<summary round="{summary.rounds}" by="a model">\n{summary.text}\n</summary>'


def _calls(log: WorkLog) -> tuple[str, ...]:
    """What the summary does not tell."""
    newer = min(KEPT_LINES, log.call_count - log.summary.call_count if log.summary.text else KEPT_LINES)
    return log.calls[-newer:] if newer else ()


def _opening(spine: Spine, text: str) -> str:
    return f'<checkpoint number="{spine.generation + 1}" replaces="{len(spine.items) - spine.head} items">\n{text}'


def ordered_view(board: Board) -> Document:
    """The view with open tasks and pinned facts before the others; as a document it equals `view(board)`."""
    document = view(board)
    closed = {str(name) for name, task in board.tasks.items() if task.status not in OPEN_TASK}
    pinned = {str(name) for name, fact in board.facts.items() if fact.is_pinned}
    document["tasks"] = dict(sorted(document["tasks"].items(), key=lambda entry: entry[0] in closed))
    document["facts"] = dict(sorted(document["facts"].items(), key=lambda entry: entry[0] not in pinned))
    return document


def _project(state: SessionState, agent: AgentId) -> list[str]:
    spine = spine_of(state, agent)
    head = [item for item in spine.items[: spine.head] if isinstance(item, UserText)]
    log = work_of(state, agent)
    return reminders(state.project, told=log.told, active=log.skills, head=head)


def _pinned(board: Board) -> str:
    pinned = [fact for fact in board.facts.values() if fact.is_pinned and fact.retracted is None]
    return _bullets("Pinned facts", (f"{fact.fact}: {fact.text}{_exact(fact.value)}" for fact in pinned))


def _exact(value: str | None) -> str:
    return "" if value is None else f" = {dump(value)}"


def _open_now(state: SessionState) -> str:
    tasks = [task for task in state.board.tasks.values() if task.status in OPEN_TASK]
    if not state.board.tasks:
        return "There is no plan yet."
    return _bullets("Open tasks", (_open_task(task) for task in tasks)) or "No task is open: see whether to finish."


def _open_task(task: Task) -> str:
    runs = f", runs {', '.join(task.runs)}" if task.runs else ""
    return f"{task.task} ({task.status}{runs}): {task.title}"


def _stamps(stamps: Mapping[str, int]) -> list[str]:
    newest = sorted(stamps.items(), key=lambda entry: (-entry[1], entry[0]))[:KEPT_PATHS]
    return [f"{path} ({step})" for path, step in newest]


def _read(log: WorkLog) -> list[str]:
    """The read ledger: what was read, when, and the hash that the content had when it was last seen."""
    newest = sorted(log.files_read.items(), key=lambda entry: (-entry[1], entry[0]))[:KEPT_PATHS]
    return [
        f"{path} ({step}, {log.seen[path][:HASH_DIGITS]})" if path in log.seen else f"{path} ({step})"
        for path, step in newest
    ]


def _lines(title: str, values: Iterable[str]) -> str:
    listed = ", ".join(map(one_line, values))
    return f"{title}{listed}" if listed else ""


def _bullets(title: str, values: Iterable[str]) -> str:
    listed = "\n".join(f"- {indented(value)}" for value in values)
    return f"{title}:\n{listed}" if listed else ""


def dump(value: Json) -> str:
    """Compact JSON that cannot close the tag around it, whatever text it holds."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def baseline(board: Board) -> str:
    """The first state message: the whole view."""
    return f"<state>\n{dump(view(board))}\n</state>"
