"""Permission rules where calls are carried out: a denied call has no effect and says what would allow it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from xnagent.core import path_rules
from xnagent.core.permissions import RULED, Allowed, Asked, Decision, Denied, Rule, Rules, decide
from xnagent.core.spine_events import DENIED, ToolStarted
from xnagent.core.values import dataclass
from xnagent.ports import Call, Intent, Outcome, Tool, ToolSpec
from xnagent.tools.outcome import RefusedError, attempt
from xnagent.tools.paths import locate

PATH_FIELDS: Final = ("path", "target")
TICKET_PREFIX: Final = "artifact:"
ADVICE: Final = (
    "Nobody can be asked while this runs. Do not look for another way to the same effect: go on without it, or say in "
    "your summary that it is needed."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedTool:
    """A tool that first asks the rules."""

    tool: Tool
    rules: Rules

    @property
    def spec(self) -> ToolSpec:
        """The tool's own definition."""
        return self.tool.spec

    async def intend(self, call: Call) -> Intent | Outcome:
        """A denial, or what the tool intends."""
        name = self.spec.name
        decision = await attempt(name, functools.partial(_decided, self.rules, call, tool=name))
        match decision:
            case Outcome():
                return decision
            case Denied():
                return denial(decision, tool=name)
            case Allowed():
                return await self.tool.intend(call)

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Do it."""
        return await self.tool.run(call, intent)

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """What began before is only found out, not judged again."""
        return await self.tool.reconcile(call, started)


def _decided(rules: Rules, call: Call, *, tool: str) -> Decision:
    asked = asked_of(tool, call)
    return Allowed() if asked is None else decide(rules, asked)


def asked_of(tool: str, call: Call) -> Asked | None:
    """What the rules look at; None where nothing is to be judged: a ticket, or a path that the tool refuses itself.

    Looks at the tree, so it blocks.
    """
    command = call.arguments.get("command")
    if command is not None:
        return Asked(tool=tool, command=str(command))
    field = next((name for name in PATH_FIELDS if name in call.arguments), None)
    path = "." if field is None else str(call.arguments[field]).strip() or "."
    if path.startswith(TICKET_PREFIX) or call.workspace is None:
        return None
    try:
        real = locate(call.workspace.root, path).name
    except RefusedError:
        return None
    written = None if path.startswith("/") else path_rules.tidy(path)
    return Asked(tool=tool, paths=tuple(dict.fromkeys([real, written or real])))


def denial(denied: Denied, *, tool: str) -> Outcome:
    """What the model reads."""
    if denied.is_forbidden:
        fact = f"rule {denied.rule} forbids `{denied.how}`."
        remedy = "The user could lift it: it stands in the setting permissions.deny, or was given with --deny."
    elif denied.is_repository:
        fact = f"the repository's own rules allow of {tool} only: {denied.rule}; {denied.how}."
        remedy = "The user could lift them with -s permissions.narrow=[]."
    else:
        fact = f"no rule allows it. Of {tool} only this is allowed: {denied.rule}; {denied.how}."
        remedy = "The user could allow more with --allow RULE or the setting permissions.allow."
    return Outcome(text=f"{DENIED}: {fact} {ADVICE} {remedy}", code=DENIED, label=f"{tool}: DENIED: {denied.how[:100]}")


def taken_away(rules: Rules) -> Mapping[str, Rule]:
    """The tools that deny rules forbid as a whole, each with its rule."""
    found = {tool: rules.taken_away(tool) for tool in sorted(RULED)}
    return {tool: rule for tool, rule in found.items() if rule is not None}


def guarded(tools: Iterable[Tool], rules: Rules) -> Sequence[Tool]:
    """The tools, without those that are forbidden as a whole, asking the rules wherever there are some for them."""
    kept = [tool for tool in tools if rules.taken_away(tool.spec.name) is None]
    return [GuardedTool(tool=tool, rules=rules) if _has_rules(rules) else tool for tool in kept]


def _has_rules(rules: Rules) -> bool:
    return bool(rules.allow or rules.narrow or rules.deny)
