"""Runs the user's hooks: each once for each occasion, in the user's order, up to the first that denies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, cast

import anyio.to_thread

from xnagent.core.hook_events import HookPoint, HookRan
from xnagent.core.hooks import (
    SHOWN_CHARACTERS,
    Hook,
    HookEnd,
    Occasion,
    chosen,
    denial_text,
    document,
    judged,
    refusal_of,
    run_of,
)
from xnagent.core.items import ToolCall
from xnagent.core.masking import Mask
from xnagent.core.permissions import Asked
from xnagent.core.spine_events import DENIED
from xnagent.core.text import Json, clip, first_line
from xnagent.core.values import dataclass
from xnagent.ports import Call, Intent, Log, Outcome, Parsed


class Launcher(Protocol):
    """Starts hooks."""

    async def run(self, hook: Hook, document: bytes) -> HookEnd:
        """The hook to its end, within its time. Cancelled: it is killed first."""


class Look(Protocol):
    """Sees calls as rules do."""

    def __call__(self, tool: str, call: Call) -> Asked | None:
        """What rules are held against; None where there is nothing to judge. Looks at the tree, so it blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks of a session."""

    log: Log
    hooks: tuple[Hook, ...]
    launcher: Launcher
    look: Look
    mask: Mask
    repository: str
    """The user's folder, for the hooks to know."""

    async def ask(self, occasion: Occasion) -> HookRan | None:
        """Run what there is for it; the one that denied it, if one did. What ran before a crash is not run again."""
        for hook in chosen(self.hooks, occasion):
            ran = self._known(hook, occasion) or await self._run(hook, occasion)
            if ran.verdict == "denied":
                return ran
        return None

    def has(self, on: HookPoint) -> bool:
        """Whether there is a hook for it."""
        return any(hook.on == on for hook in self.hooks)

    def _known(self, hook: Hook, occasion: Occasion) -> HookRan | None:
        return self.log.state.hooks.get(self._event(hook, occasion, end=HookEnd(exit_code=0)).key)

    async def _run(self, hook: Hook, occasion: Occasion) -> HookRan:
        told = document(self.log.state, occasion, repository=self.repository)
        # In the order of its fields: whoever logs it reads what matters first.
        text = json.dumps(self.mask.value(told), ensure_ascii=False, separators=(",", ":"))
        end = await self.launcher.run(hook, text.encode("utf-8", "replace") + b"\n")
        ran = self._event(hook, occasion, end=end)
        await self.log.append(ran)
        return ran

    def _event(self, hook: Hook, occasion: Occasion, *, end: HookEnd) -> HookRan:
        """As it will be stored, so that it is known again."""
        ran = judged(hook, occasion, end=end)
        return replace(ran, command=self.mask.text(ran.command), match=self.mask.text(ran.match))


async def hook_refusal(hooks: Hooks | None, on: HookPoint, *, make: Callable[[], Occasion]) -> str:
    """Run the hooks for what is about to begin, or has ended; why it must not be, or nothing."""
    if hooks is None or not hooks.has(on):
        return ""
    denied = await hooks.ask(make())
    return "" if denied is None else refusal_of(denied)


async def permitted(hooks: Hooks | None, call: ToolCall, *, parsed: Parsed, prepared: Call) -> Intent | Outcome:
    """What the call intends, once rules and hooks let it; else what the model reads.

    Hooks may have changed the tree, so the intent is made anew after them.
    """
    intent = await parsed.tool.intend(prepared)
    if isinstance(intent, Outcome) or hooks is None or not hooks.has("before_tool") or prepared.workspace is None:
        return intent
    denied = await hooks.ask(await _of_call(hooks, call, on="before_tool", prepared=prepared))
    if denied is None:
        return await parsed.tool.intend(prepared)
    label = f"{call.name}: DENIED by a hook: {first_line(denied.detail)}"
    return Outcome(text=denial_text(denied), code=DENIED, label=label)


async def told_after(hooks: Hooks | None, call: ToolCall, *, prepared: Call, outcome: Outcome) -> Outcome:
    """Run the hooks for a call that was carried out; its outcome stays what it is."""
    if hooks is not None and hooks.has("after_tool") and prepared.workspace is not None:
        occasion = await _of_call(hooks, call, on="after_tool", prepared=prepared)
        fields = {**occasion.fields, "result": _result(outcome)}
        await hooks.ask(replace(occasion, fields=fields))
    return outcome


async def _of_call(hooks: Hooks, call: ToolCall, *, on: HookPoint, prepared: Call) -> Occasion:
    fields: dict[str, Json] = {
        "agent": prepared.agent,
        **run_of(prepared.state, prepared.agent),
        "tool": call.name,
        "call": call.call_id,
        "arguments": cast("Mapping[str, Json]", prepared.arguments),
        "workspace": None if prepared.workspace is None else str(prepared.workspace.root),
    }
    return Occasion(
        on=on,
        agent=prepared.agent,
        call_id=call.call_id,
        tool=call.name,
        asked=await anyio.to_thread.run_sync(hooks.look, call.name, prepared),
        fields=fields,
    )


def _result(outcome: Outcome) -> dict[str, Json]:
    return {
        "code": outcome.code,
        "exit_code": outcome.exit_code,
        "text": clip(outcome.text, SHOWN_CHARACTERS),
        "ticket": outcome.artifact,
        "paths_read": list(outcome.paths_read),
        "paths_changed": list(outcome.paths_changed),
    }
