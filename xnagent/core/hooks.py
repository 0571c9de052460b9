"""The user's hooks: commands around tool calls, runs, merges and sessions; what they are told and what they decide.

A hook reads one JSON object. Its exit code decides: 0 goes on, 2 denies where something can be denied, anything else is
a fault of the hook, which counts only where the user wants that. What it prints changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from xnagent.core.hook_events import HookPoint, HookRan, HookVerdict
from xnagent.core.ids import RunId
from xnagent.core.permissions import Asked, Denied, Rule, Rules, decide
from xnagent.core.record import final_record
from xnagent.core.spine_events import DENIED
from xnagent.core.state import SessionState
from xnagent.core.text import Json, clean, clip, one_line
from xnagent.core.values import dataclass

DENYING_EXIT_CODE: Final = 2
DENYING: Final = frozenset({"session_start", "before_run", "before_tool", "before_merge"})
"""Where there is something to deny."""
ABOUT_TOOLS: Final = frozenset({"before_tool", "after_tool"})
SHOWN_CHARACTERS: Final = 4_000
DETAIL_CHARACTERS: Final = 2_000
PATCH_CHARACTERS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One command of the user."""

    on: HookPoint
    command: str
    """For `sh -c`."""
    rule: Rule | None = None
    """Which calls it is for, as a deny rule would match them; None: all that rules can be about."""
    seconds: float = 60.0
    must_pass: bool = False
    """Whether it denies, too, when it ends with another code, does not end, or cannot be started."""
    env: tuple[str, ...] = ()
    """Names of variables with secrets that it gets all the same."""

    @property
    def match(self) -> str:
        """The rule as the user wrote it; empty: none."""
        return "" if self.rule is None else self.rule.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Something that hooks are run for."""

    on: HookPoint
    agent: str = ""
    call_id: str = ""
    tool: str = ""
    commit: str = ""
    epoch: int = 0
    asked: Asked | None = None
    """The call as rules look at it; None: it is none, or none that rules judge."""
    fields: Mapping[str, Json] = field(default_factory=dict)
    """What the hook is told beside what all are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEnd:
    """How a hook's command ended."""

    exit_code: int | None
    """None: it did not end by itself, or could not be started; `problem` says why."""
    output: str = ""
    """The end of stderr, else of stdout."""
    problem: str = ""
    duration_seconds: float = 0.0


def chosen(hooks: Sequence[Hook], occasion: Occasion) -> Iterator[Hook]:
    """The hooks for the occasion, in the user's order."""
    return (hook for hook in hooks if hook.on == occasion.on and _is_for(hook, occasion))


def _is_for(hook: Hook, occasion: Occasion) -> bool:
    if hook.rule is None:
        return True
    return occasion.asked is not None and isinstance(decide(Rules(deny=(hook.rule,)), occasion.asked), Denied)


def judged(hook: Hook, occasion: Occasion, *, end: HookEnd) -> HookRan:
    """The event of a hook that came to its end."""
    return HookRan(
        on=occasion.on,
        command=hook.command,
        match=hook.match,
        agent=occasion.agent,
        call_id=occasion.call_id,
        tool=occasion.tool,
        commit=occasion.commit,
        epoch=occasion.epoch,
        exit_code=end.exit_code,
        verdict=_verdict(hook, end.exit_code),
        detail=_detail(end),
        duration_seconds=round(end.duration_seconds, 3),
    )


def _verdict(hook: Hook, exit_code: int | None) -> HookVerdict:
    if exit_code == 0:
        return "passed"
    may_deny = hook.on in DENYING
    return "denied" if may_deny and (exit_code == DENYING_EXIT_CODE or hook.must_pass) else "failed"


def _detail(end: HookEnd) -> str:
    told = [part for part in (end.problem, clean(end.output).strip()) if part]
    return clip("\n".join(told), DETAIL_CHARACTERS, head_share=0.3)


def refusal_of(ran: HookRan) -> str:
    """Why something was refused, for whoever reads it."""
    hook = f"a hook of the user ({ran.on}: {one_line(ran.command)[:100]})"
    if ran.exit_code == DENYING_EXIT_CODE:
        return f"{hook} refused it: {ran.detail or 'no reason given'}"
    ended = "did not end by itself" if ran.exit_code is None else f"ended with exit code {ran.exit_code}"
    return f"{hook} {ended}, and must pass: {ran.detail or 'it said nothing'}"


def denial_text(ran: HookRan) -> str:
    """What the model reads in place of a result."""
    return (
        f"{DENIED}: {refusal_of(ran)}\nThe call had no effect. Nobody can be asked while this runs. If the reason says "
        "what to do instead, do that; do not look for another way to the same effect. Else go on without it, or say in "
        "your summary that it is needed."
    )


def of_run(state: SessionState, run: RunId, *, on: HookPoint) -> Occasion:
    """Before a run begins, or after it came to its end."""
    known = state.board.runs[run]
    fields = _run_fields(state, run)
    if on == "after_run":
        fields |= {
            "status": known.status,
            "reason": known.reason,
            "summary": known.summary,
            "changed_files": list(known.changed_files),
        }
    return Occasion(on=on, agent=run, fields=fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """A run's patch on its way to the integration branch."""

    run: RunId
    head: str
    """What it is merged with."""
    commit: str
    """What becomes the head."""
    patch: bytes


def merged_of(state: SessionState, run: RunId, *, patch: bytes) -> Merging | None:
    """How a run was merged; None: it was not."""
    heads = ["" if state.started is None else state.started.base or "", *(merge.commit for merge in state.merges)]
    found = [at for at, merge in enumerate(state.merges) if merge.run == run]
    if not found:
        return None
    return Merging(run=run, head=heads[found[-1]], commit=state.merges[found[-1]].commit, patch=patch)


def of_merge(state: SessionState, merge: Merging, *, on: HookPoint) -> Occasion:
    """Before a run's patch is on the integration branch, or after."""
    known = state.board.runs[merge.run]
    text = clean(merge.patch.decode("utf-8", "replace"))
    fields: dict[str, Json] = {
        "head": merge.head,
        "commit": merge.commit,
        "changed_files": list(known.changed_files),
        "patch": text[:PATCH_CHARACTERS],
        "patch_is_whole": len(text) <= PATCH_CHARACTERS,
        "patch_bytes": len(merge.patch),
        "patch_ticket": known.patch,
    }
    return Occasion(on=on, agent=merge.run, commit=merge.commit, fields=_run_fields(state, merge.run) | fields)


def of_session(state: SessionState, on: HookPoint) -> Occasion:
    """When a process takes the session up, or after it settled it."""
    objective = "" if state.started is None else state.started.objective
    fields: dict[str, Json] = {"objective": objective, "is_resumed": state.epoch > 1}
    if on == "session_end":
        fields["final"] = final_record(state)
    return Occasion(on=on, epoch=state.epoch, fields=fields)


def run_of(state: SessionState, agent: str) -> dict[str, Json]:
    """The run and task of a Worker; of the Planner: none."""
    run = RunId(agent)
    return _run_fields(state, run) if run in state.board.runs else {"run": None, "task": None}


def _run_fields(state: SessionState, run: RunId) -> dict[str, Json]:
    known = state.board.runs[run]
    task = state.board.tasks.get(known.task)
    told: dict[str, Json] = {"id": known.task, "title": "", "objective": ""}
    if task is not None:
        told |= {"title": task.title, "objective": task.objective}
    return {"run": run, "base": known.base, "task": told}


def document(state: SessionState, occasion: Occasion, *, repository: str) -> dict[str, Json]:
    """The object that a hook reads (docs/hooks.md)."""
    return {"hook": occasion.on, "version": 1, "session": state.session, "repository": repository, **occasion.fields}
