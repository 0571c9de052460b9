"""A tool of the program that runs the session: a Python function, carried out in this process, outside the box."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio

from xnagent.core.given_events import GivenTool
from xnagent.core.permissions import Rule, Rules, given_rule_name
from xnagent.core.spine_events import ToolStarted
from xnagent.core.text import clean, clip, first_line
from xnagent.core.values import dataclass
from xnagent.errors import Caught
from xnagent.ports import Artifacts, Call, Intent, Outcome, ToolSpec
from xnagent.tools.outcome import failure
from xnagent.tools.output import clip_lines, readable

MAX_CHARACTERS: Final = 12_000
"""Of a result that a model reads; the whole of a longer one is stored."""
FAULT_CHARACTERS: Final = 1_000


class BadArgumentsError(Exception):
    """The arguments do not fit the function's annotations; the message says which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know of the call that it answers."""

    session: str
    run: str
    """`r1`, `r2`…"""
    workspace: Path
    """The tree of the run: what is changed here is part of the run's result. Data that nobody vouches for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFunction:
    """A function with its definition."""

    spec: ToolSpec
    act: Callable[[Mapping[str, Any], ToolContext], Awaitable[str]]
    """Raises BadArgumentsError for arguments that do not fit; any other error is a failed call."""
    timeout_seconds: float
    may_repeat: bool
    """Whether a call that a killed process had begun is simply made again."""

    @property
    def definition(self) -> GivenTool:
        """What the log keeps of it."""
        spec = self.spec
        parameters = json.dumps(spec.parameters, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return GivenTool(name=spec.name, description=spec.description, parameters=parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCallTool:
    """One such tool: its definition is the session's, its code this program's."""

    tool: GivenTool
    function: GivenFunction
    session: str

    @property
    def spec(self) -> ToolSpec:
        """As the session froze it."""
        tool = self.tool
        return ToolSpec(name=tool.name, description=tool.description, parameters=json.loads(tool.parameters))

    async def intend(self, call: Call) -> Intent | Outcome:
        """Nobody knows what a function does, unless its program says that it may be repeated."""
        return Intent(effect="pure" if self.function.may_repeat else "opaque")

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Call the function; whatever it raises is an answer."""
        if call.workspace is None:
            return failure("NO_WORKSPACE", "there is no tree to work in here.", tool=self.tool.name)
        context = ToolContext(session=self.session, run=str(call.agent), workspace=call.workspace.root)
        caught = Caught(Exception)
        text: str | None = None
        with anyio.move_on_after(self.function.timeout_seconds), caught:
            text = await self.function.act(call.arguments, context)
        if caught.raised is not None:
            return self._failed(caught.raised)
        return self._late() if text is None else _outcome(text, name=self.tool.name, artifacts=call.artifacts)

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """It is not repeated, unless it may be."""
        if self.function.may_repeat:
            return None
        fact = (
            "xnagent stopped while this call was running. It was not repeated. It may have had its effect fully, "
            "partly or not at all. Check the real state before you make it again."
        )
        return failure("INTERRUPTED", fact, tool=self.tool.name)

    def _late(self) -> Outcome:
        fact = (
            f"no answer within {self.function.timeout_seconds:g} s. It may have had its effect, so check before you "
            f"make the call again, or do it in another way."
        )
        return failure("TIMEOUT", fact, tool=self.tool.name)

    def _failed(self, error: Exception) -> Outcome:
        told = clip(readable(str(error).encode("utf-8", "replace")).strip(), FAULT_CHARACTERS)
        if isinstance(error, BadArgumentsError):
            return failure("BAD_ARGS", f"{told}. Call it again with arguments that fit.", tool=self.tool.name)
        fact = f"{self.tool.name} raised {type(error).__name__}{f': {told}' if told else ''}."
        return failure("TOOL_FAILED", f"{fact} Look at the arguments, or do it in another way.", tool=self.tool.name)


def _outcome(text: str, *, name: str, artifacts: Artifacts) -> Outcome:
    """The result within what a model reads; the whole of what is too long goes to the artifacts."""
    body = readable(clean(text).encode()) or "(nothing)"
    label = f"{name} → {first_line(body, 80)}"
    if clip_lines(body, MAX_CHARACTERS) == body:
        return Outcome(text=body, label=label)
    ticket = artifacts.put(body.encode())
    how = f"full result: {ticket}, use read with it and an offset, or grep with it as path"
    return Outcome(text=clip_lines(body, MAX_CHARACTERS, how_to_get=how), label=label, artifact=ticket)


def given_tools(
    frozen: Sequence[GivenTool], functions: Sequence[GivenFunction], *, rules: Rules, session: str
) -> Sequence[GivenCallTool]:
    """The tools that Workers get, as far as the rules leave them; each has its function (`check_given`)."""
    known = {function.spec.name: function for function in functions}
    kept = [tool for tool in frozen if rules.taken_away(given_rule_name(tool.name)) is None]
    return [GivenCallTool(tool=tool, function=known[tool.name], session=session) for tool in kept if tool.name in known]


def given_taken_away(frozen: Sequence[GivenTool], *, rules: Rules) -> Mapping[str, Rule]:
    """The tools that deny rules forbid, each with its rule."""
    found = {tool.name: rules.taken_away(given_rule_name(tool.name)) for tool in frozen}
    return {name: rule for name, rule in found.items() if rule is not None}
