"""The messages that xnagent itself writes into spines, as pure functions of state. Prompts are in `agents/prompts/`."""

from __future__ import annotations

from typing import Final

from xnagent.core.checkpoint import baseline, dump
from xnagent.core.delta import delta
from xnagent.core.ids import PLANNER
from xnagent.core.items import UserText
from xnagent.core.project import head_of
from xnagent.core.spine_events import SpineExtended
from xnagent.core.state import SessionState, spine_of, waits_for
from xnagent.core.text import one_line

FINISH_NUDGE: Final = """\
You answered without calling a tool, and no run is active, so nothing will happen by itself. If the objective is met,
call `finish` with outcome `completed`; if work is left, `plan` or `delegate` it; if you cannot go on, call `finish`
with `failed` or `blocked`. Your next answer without a tool call ends the session with its text."""


def objective_message(state: SessionState) -> SpineExtended:
    """The Planner's first message: the objective, whole and alone, so that it survives every rebase in the cache.

    What the project brings along stands before it.
    """
    started = state.started
    objective = "" if started is None else started.objective
    checks = "" if started is None or not started.checks else _final_checks(started.checks)
    text = f"<objective>\n{objective}\n</objective>{checks}"
    head, keys = head_of(state.project)
    return SpineExtended(agent=PLANNER, kind="objective", items=(*head, UserText(text=text, origin="user")), tells=keys)


def _final_checks(checks: tuple[str, ...]) -> str:
    listed = "\n".join(f"- `{check}`" for check in checks)
    return f"\n\nWhen you finish, these checks are run on the integrated result and decide whether it counts:\n{listed}"


def state_message(state: SessionState) -> SpineExtended | None:
    """What the Planner has not been told yet: the baseline, or the delta since; None if there is nothing new."""
    spine = spine_of(state, PLANNER)
    if spine.base is None:
        message = UserText(text=baseline(state.board), origin="state")
        return SpineExtended(agent=PLANNER, kind="baseline", items=(message,), cursor=state.cause_count)
    patch = delta(spine.base, state.board)
    news = [cause.text for cause in state.causes if cause.number > spine.cursor and not cause.is_operation]
    if not patch and not news:
        return None
    operations = "".join(dump(op) + "\n" for op in patch)
    lines = "".join(f"- {one_line(line)}\n" for line in news)
    text = f'<state_delta from="{spine.cursor}" to="{state.cause_count}">\n{lines}{operations}</state_delta>'
    message = UserText(text=text, origin="state")
    return SpineExtended(agent=PLANNER, kind="delta", items=(message,), cursor=state.cause_count)


def nudge_message(state: SessionState) -> SpineExtended:
    """Asks the Planner once to finish."""
    stuck = [
        f"{run.run} waits for {', '.join(waits_for(state, run.task))}"
        for run in state.board.runs.values()
        if run.status == "queued" and waits_for(state, run.task)
    ]
    more = f"\nRuns that cannot begin: {'; '.join(stuck)}." if stuck else ""
    return SpineExtended(agent=PLANNER, kind="nudge", items=(UserText(text=FINISH_NUDGE + more, origin="harness"),))
