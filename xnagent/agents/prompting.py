"""The system texts, and the messages of a Worker's history that xnagent writes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Final

from xnagent.core.board import ACTIVE_RUN, Fact, Run, Task
from xnagent.core.ids import PLANNER, TICKET, AgentId, RunId, agent_of
from xnagent.core.items import UserText
from xnagent.core.project import head_of, news_of
from xnagent.core.spine_events import SpineExtended
from xnagent.core.state import SessionState, WorkLog, spine_of, work_of
from xnagent.core.text import clip, one_line
from xnagent.core.tree_events import RunTreeRestored

BRIEF_FACTS: Final = 60
BRIEF_FILES: Final = 40
LOST_FILES: Final = 20
REASON_CHARACTERS: Final = 3_000

SUBMIT_NUDGE: Final = """\
You answered without calling a tool. If the task is done, call `submit` with status `completed`; if you cannot do it,
`submit` with `failed` or `blocked` and say why; else go on. Your next answer without a tool call is taken for your
hand-in as it is."""

MISSED: Final = "New since your last answer (the checkpoint's state contains it already):"

RESTORED: Final = """\
Your working tree was made again from the log, because this session went on without its old folder. Files that git
ignores (build outputs, installed packages) and commits of your own are not in it."""

FULL: Final = """\
Your context is full, and nothing more of it can be left out: this is your last step in this run. Hand in now with
`submit`; say honestly how far you came and what is left to do."""

LAST_STEP: Final = "This is your last step in this run: hand in now with `submit`; say honestly how far you came."


def system_text(role: str) -> str:
    """The system text of `planner` or `worker`, as it stands in `prompts/`; one for all sessions of a process."""
    text = resources.files("xnagent.agents").joinpath(f"prompts/{role}.md").read_text(encoding="utf-8")
    return sys.intern(text.strip())


def brief_message(state: SessionState, run: RunId) -> SpineExtended:
    """A Worker's first message: the task, what judges it, what is known, and what to do now."""
    attempt = state.board.runs[run]
    task = state.board.tasks[attempt.task]
    parts = [
        f'<task id="{task.task}" run="{run}">\nTask {task.task}: {task.title}\n\n{task.objective}\n</task>',
        _listed(
            "Acceptance checks, run by xnagent from the root of a fresh checkout when you submit",
            attempt.checks,
            code=True,
        ),
        _listed("You may change only paths that match", attempt.scope, code=True),
        _facts(state),
        _known_files(state, run),
        _before(state, attempt, task=task),
        f"From the Planner:\n{attempt.brief}" if attempt.brief else "",
        "Do this task now.",
    ]
    text = "\n\n".join(part for part in parts if part)
    head, keys = head_of(state.project)
    return SpineExtended(
        agent=agent_of(run), kind="brief", items=(*head, UserText(text=text, origin="task")), tells=keys
    )


def project_message(state: SessionState, *, agent: AgentId) -> SpineExtended | None:
    """Instructions and skills that the agent was not told of yet, None if there are none."""
    log = work_of(state, agent)
    touched = () if agent == PLANNER else (*log.files_read, *log.files_changed)
    items, keys = news_of(state.project, told=log.told, touched=touched)
    return SpineExtended(agent=agent, kind="project", items=items, tells=keys) if items else None


def missed_message(state: SessionState) -> SpineExtended | None:
    """What a rebase now would take up into the checkpoint before the Planner was told of it; None if there is nothing.

    It stands behind the tail, so that no request ends with what the model itself said last.
    """
    spine = spine_of(state, PLANNER)
    news = [cause.text for cause in state.causes if cause.number > spine.cursor and not cause.is_operation]
    if not news:
        return None
    lines = "\n".join(f"- {line}" for line in news)
    return SpineExtended(agent=PLANNER, kind="message", items=(UserText(text=f"{MISSED}\n{lines}", origin="harness"),))


def inbox_message(state: SessionState, *, run: RunId) -> SpineExtended | None:
    """What the Worker has not seen, None if there is nothing: the Planner's messages, that its tree was made again."""
    work = work_of(state, agent_of(run))
    letters = "\n\n".join(f"From the Planner:\n{letter}" for letter in work.inbox)
    items = [UserText(text=letters, origin="task")] if letters else []
    if work.tree.restored is not None:
        items.append(UserText(text=restored_text(work, work.tree.restored), origin="harness"))
    return SpineExtended(agent=agent_of(run), kind="message", items=tuple(items)) if items else None


def restored_text(work: WorkLog, restored: RunTreeRestored) -> str:
    """What a Worker is told whose tree was made again from the log."""
    if not restored.lost:
        return RESTORED + " All other changes of yours are there."
    first, last = restored.lost[0], restored.lost[-1]
    steps = f"your step {first}" if first == last else f"your steps {first} to {last}"
    paths = sorted(path for path, step in work.files_changed.items() if step in restored.lost)
    files = f" ({', '.join(paths[:LOST_FILES])})" if paths else ""
    return RESTORED + f" What you changed in {steps}{files} may be missing: look, and do again what is needed."


def harness_message(run: RunId, text: str) -> SpineExtended:
    """A nudge for a Worker."""
    return SpineExtended(agent=agent_of(run), kind="nudge", items=(UserText(text=text, origin="harness"),))


def _facts(state: SessionState) -> str:
    facts = [fact for fact in state.board.facts.values() if fact.retracted is None]
    chosen = sorted(facts, key=lambda fact: not fact.is_pinned)[:BRIEF_FACTS]
    return _listed("Facts on record", tuple(_fact(fact) for fact in chosen))


def _known_files(state: SessionState, run: RunId) -> str:
    """The read ledger of the Workers before this one, so that what they found out is not looked for again."""
    workers = [name for name, one in state.board.runs.items() if name != run and one.status not in ACTIVE_RUN]
    changed, read = (
        _by_path({name: getattr(work_of(state, agent_of(name)), field) for name in workers})
        for field in ("files_changed", "files_read")
    )
    lines = [f"{path}: changed by {', '.join(names)}" for path, names in sorted(changed.items())]
    mostly = sorted(read.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    lines += [f"{path}: read by {', '.join(names)}" for path, names in mostly if path not in changed]
    return _listed("Files that earlier Workers of this session changed or read", tuple(lines[:BRIEF_FILES]))


def _by_path(paths: Mapping[RunId, Iterable[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for run, names in paths.items():
        for path in names:
            if not TICKET.match(path):
                found.setdefault(one_line(path), []).append(run)
    return found


def _fact(fact: Fact) -> str:
    return f"{fact.fact}: {fact.text}" + ("" if fact.value is None else f" = `{fact.value}`")


def _before(state: SessionState, attempt: Run, *, task: Task) -> str:
    """What became of the run before this one, so that it is not repeated unchanged."""
    earlier = [state.board.runs[name] for name in task.runs if name != attempt.run and name in state.board.runs]
    if not earlier:
        return ""
    last = earlier[-1]
    lines = [f"An earlier run of this task, {last.run}, ended as {last.status}.", clip(last.reason, REASON_CHARACTERS)]
    lines += [f"Merge conflict in: {', '.join(last.conflicts)}"] if last.conflicts else []
    lines += [f"Its summary: {clip(last.summary, REASON_CHARACTERS)}"] if last.summary else []
    lines += [f"Its patch: {last.patch} (open it with `read`)"] if last.patch else []
    lines += [
        f"Check `{evidence.command}` failed:\n{clip(evidence.tail, REASON_CHARACTERS, head_share=0.2)}"
        for evidence in last.evidence
        if not evidence.has_passed
    ]
    return "\n".join(line for line in lines if line)


def _listed(title: str, values: tuple[str, ...], *, code: bool = False) -> str:
    if not values:
        return ""
    return f"{title}:\n" + "\n".join(f"- `{value}`" if code else f"- {value}" for value in values)
