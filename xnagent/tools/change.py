"""A change to one file: planned, done by compare-and-swap, and recognised after a crash by its hashes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Final

from xnagent.core.ids import CallId
from xnagent.core.spine_events import ToolStarted
from xnagent.core.values import dataclass
from xnagent.ports import Call, Intent, Outcome, ToolSpec
from xnagent.tools.files import read_file, replace_file, sha256
from xnagent.tools.known import FileView
from xnagent.tools.outcome import attempt, failure, workspace_of
from xnagent.tools.paths import Place, locate_for_change

ABSENT: Final = "absent"


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a file is and what it shall be. Without slots, so that its hashes are computed once."""

    place: Place
    before: bytes | None
    """None: there is no file."""
    after: bytes
    text: str
    """What the model reads when it is done."""
    verb: str
    """`created`, `replaced`, `edited`."""
    is_known: bool = True
    """The model knows the whole file afterwards; not so if somebody else had changed it."""

    @property
    def is_empty(self) -> bool:
        """The file is already what it shall be."""
        return self.before == self.after

    @cached_property
    def sha256_before(self) -> str:
        """Of the file as it is; `absent` without one."""
        return ABSENT if self.before is None else sha256(self.before)

    @cached_property
    def sha256_after(self) -> str:
        """Of the file as it shall be."""
        return sha256(self.after)


PlanChange = Callable[[Call, FileView], Change]
"""Computes a change from the files as they are; raises RefusedError; changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTool:
    """A tool that changes one file; `write` and `edit` differ only in how they compute the content."""

    spec: ToolSpec
    plan: PlanChange
    view: FileView = field(repr=False)
    planned: dict[CallId, Change] = field(default_factory=dict, repr=False)
    """The change that was just intended, so that it is not computed twice."""

    async def intend(self, call: Call) -> Intent | Outcome:
        """The hashes before and after, or why it cannot be done."""
        change = await attempt(self.spec.name, functools.partial(self.plan, call, self.view))
        if isinstance(change, Outcome):
            return change
        if change.is_empty:
            self.view.saw(change.place, change.after, digest=change.sha256_after)
            name = change.place.name
            seen = ((name, change.sha256_after),)
            return Outcome(text=change.text, label=f"{self.spec.name} {name}: nothing to do", seen=seen)
        self.planned.clear()
        self.planned[call.call_id] = change
        return Intent(
            effect="checkable",
            before=f"{change.place.name} {change.sha256_before}",
            after=f"{change.place.name} {change.sha256_after}",
        )

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Swap the content if nobody changed it meanwhile; what was intended is computed anew if the file changed."""
        return await attempt(self.spec.name, functools.partial(self._change, call))

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """Done if the file has the content that was planned; to be run if it still has the one before."""
        return await attempt(self.spec.name, functools.partial(self._compare, call, started))

    def _change(self, call: Call) -> Outcome:
        with self.view.lock:
            change = self._intended(call) or self.plan(call, self.view)
            if not change.is_empty:
                replace_file(change.place, change.after, expected=change.before, scratch=workspace_of(call).scratch)
            if change.is_known:
                self.view.saw(change.place, change.after, digest=change.sha256_after)
            else:
                self.view.touched(change.place)
        name = change.place.name
        return Outcome(
            text=change.text,
            label=f"{change.verb} {name}",
            paths_changed=(name,),
            seen=((name, change.sha256_after),) if change.is_known else (),
        )

    def _intended(self, call: Call) -> Change | None:
        """The change that was intended, if it would come out the same now."""
        change = self.planned.pop(call.call_id, None)
        if change is None:
            return None
        place = locate_for_change(workspace_of(call).root, str(call.arguments["path"]))
        return change if place == change.place and read_file(place) == change.before else None

    def _compare(self, call: Call, started: ToolStarted) -> Outcome | None:
        place = locate_for_change(workspace_of(call).root, str(call.arguments["path"]))
        data = read_file(place)
        now = f"{place.name} {ABSENT if data is None else sha256(data)}"
        if data is not None and now == started.after:
            self.view.saw(place, data)
            return Outcome(
                text=f"Done: {place.name} has the new content. (xnagent was restarted during the call and checked it.)",
                label=f"{self.spec.name} {place.name}: found done after a restart",
                paths_changed=(place.name,),
                seen=((place.name, sha256(data)),),
            )
        if now == started.before:
            return None
        return failure(
            "INTERRUPTED",
            f"xnagent stopped while this call was running, and {place.name} is now neither what it was before the call "
            "nor what the call would have made of it. It was not repeated. Read the file before you change it.",
            tool=self.spec.name,
        )
