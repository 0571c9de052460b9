"""Permission rules: which tool calls a user allows and forbids. Rules are convenience; the box is the boundary.

A call is denied if a deny rule matches it. Else, if there are allow rules for its tool, one of them must match (every
command of a command line). Else it is allowed. What a command line runs is read from its words (`wrappers`); where that
cannot be told, no allow rule with a specifier matches, and deny rules are held against all words that can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

from xnagent.core import path_rules
from xnagent.core.shell_words import DYNAMIC, read_script
from xnagent.core.values import dataclass
from xnagent.core.wrappers import Part, Reading, base_name, read_command

Kind = Literal["command", "path", "name"]

COVERS: Final = {
    "bash": frozenset({"bash"}),
    "read": frozenset({"read", "grep", "glob"}),
    "edit": frozenset({"edit", "write"}),
    "write": frozenset({"edit", "write"}),
    "grep": frozenset({"grep"}),
    "glob": frozenset({"glob"}),
}
"""The tools that a rule is about, by the name in the rule: whoever may not write must not edit either."""
RULED: Final = frozenset().union(*COVERS.values())
"""The tools that rules can take away; those that keep a run going are not among them."""
SEARCHING: Final = frozenset({"grep", "glob"})
RULE: Final = re.compile(r"\s*(?P<tool>[A-Za-z_][\w*-]*)\s*(?:\((?P<specifier>.*)\))?\s*", re.DOTALL)
MCP: Final = re.compile(r"mcp__[A-Za-z0-9_-]+(__(\*|[A-Za-z0-9_-]+))?")
GIVEN: Final = re.compile(r"[a-z][a-z0-9_]{0,63}|\*")
"""Tools of a Python program, as `Tool(…)` names them."""
NAMED: Final = ("mcp__", "tool__")
"""How rules begin that are about tools by their names alone."""
JOINT: Final = "\x1f"
OPTIONS: Final = f"(?:{JOINT}-[^{JOINT}]*(?:{JOINT}[^{JOINT}-][^{JOINT}]*)?)*?"
"""What may stand between a command and its subcommand (`git -C folder push`)."""
SEEN_WORD: Final = re.compile(r"[^\s;&|<>()`${}]+")
SEEN_AHEAD: Final = 64
"""So many words are looked at from each word on where only words can be seen."""
WRITERS: Final = frozenset(
    {
        "rm",
        "rmdir",
        "mv",
        "cp",
        "tee",
        "sed",
        "touch",
        "chmod",
        "chown",
        "truncate",
        "ln",
        "dd",
        "install",
        "patch",
        "shred",
        "unlink",
    }
)


class RuleError(ValueError):
    """A rule that cannot be meant; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. Without a specifier it is about the whole tool."""

    text: str
    tool: str
    """As in `COVERS`, or `mcp__server__tool`, or `tool__name`."""
    specifier: str | None = None
    words: tuple[str, ...] = ()
    """The specifier of a command rule in its words."""

    @property
    def kind(self) -> Kind:
        """What its specifier is held against."""
        if self.tool == "bash":
            return "command"
        return "name" if self.tool.startswith(NAMED) else "path"

    def covers(self, tool: str) -> bool:
        """Whether it is about the tool."""
        if self.tool.startswith(NAMED):
            is_server = self.tool.endswith("__*") or self.tool.count("__") == 1
            return tool == self.tool or (is_server and tool.startswith(f"{self.tool.removesuffix('__*')}__"))
        return tool in COVERS[self.tool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All rules of a session."""

    allow: tuple[Rule, ...] = ()
    narrow: tuple[Rule, ...] = ()
    """A repository's own allow rules: what they do not match is denied too, so they never widen."""
    deny: tuple[Rule, ...] = ()

    def for_tool(self, tool: str) -> Rules:
        """Those that are about the tool."""
        chosen = [tuple(rule for rule in rules if rule.covers(tool)) for rules in (self.allow, self.narrow, self.deny)]
        return Rules(allow=chosen[0], narrow=chosen[1], deny=chosen[2])

    def taken_away(self, tool: str) -> Rule | None:
        """The rule that forbids the tool as a whole."""
        return next((rule for rule in self.deny if rule.covers(tool) and rule.specifier is None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call, as far as rules look at it."""

    tool: str
    command: str | None = None
    paths: tuple[str, ...] = ()
    """Where its path really leads, then other ways to name it: all count for deny rules, the first for allow rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The call may be carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """It may not."""

    rule: str
    """The rule that forbids it, or the allow rules of which none matches."""
    how: str
    """What it matched, or why it matched nothing."""
    is_forbidden: bool
    """By a deny rule; else no allow rule matches."""
    is_repository: bool = False
    """By the repository's own allow rules."""


Decision: TypeAlias = Allowed | Denied


def can_be_ruled(tool: str) -> bool:
    """Whether rules can take the tool away. Search, inspect and invoke come and go with what stands behind them."""
    return tool in RULED or tool.startswith("mcp_")


def parse_rule(text: str) -> Rule:
    """A rule from `Tool` or `Tool(specifier)`. Raises RuleError for one that names no tool or can never match."""
    found = RULE.fullmatch(text)
    if found is None:
        raise RuleError(f"{text!r} is no rule; write Tool or Tool(specifier), such as Bash(npm run *)")
    given, specifier = found["tool"], found["specifier"]
    tool = given if MCP.fullmatch(given) else given.lower()
    if tool == "tool":
        return _given_rule(text, specifier)
    if not tool.startswith("mcp__") and tool not in COVERS:
        raise RuleError(f'{text}: there is no tool "{given}" to make rules for; did you mean "{_nearest(tool)}"?')
    if specifier is None or specifier.strip() in {"*", "**"}:
        return Rule(text=text.strip(), tool=tool)
    if tool.startswith("mcp__"):
        raise RuleError(f"{text}: rules for MCP tools take no specifier; leave the brackets out")
    if tool == "bash":
        return Rule(text=text.strip(), tool=tool, specifier=specifier, words=_pattern_words(text, specifier))
    problem = path_rules.problem_of(specifier)
    if problem:
        raise RuleError(f"{text}: this can never match: {problem}")
    return Rule(text=text.strip(), tool=tool, specifier=specifier)


def _given_rule(text: str, specifier: str | None) -> Rule:
    """`Tool(name)` for one tool of a Python program, `Tool` for all of them."""
    name = "*" if specifier is None else specifier.strip()
    if GIVEN.fullmatch(name) is None:
        raise RuleError(f"{text}: this can never match: a tool's name has small letters, digits and _")
    return Rule(text=text.strip(), tool=given_rule_name(name))


def given_rule_name(tool: str) -> str:
    """What rules call a tool of a Python program."""
    return f"tool__{tool}"


def parse_allow_rule(text: str) -> Rule:
    """As `parse_rule`, for an allow rule: tools reach nothing outside the workspace."""
    rule = parse_rule(text)
    if rule.kind == "path" and rule.specifier is not None and path_rules.is_outside(rule.specifier):
        raise RuleError(f"{text}: this can never match: file tools work inside the workspace; write a path in it")
    return rule


def check_examples(rule: Rule, *, match: Iterable[str], not_match: Iterable[str], is_deny: bool) -> None:
    """Raise RuleError unless the rule matches the first and does not match the second: commands, or paths."""
    for wanted, examples in ((True, match), (False, not_match)):
        for example in examples:
            if _does_match(rule, example, is_deny=is_deny) != wanted:
                told = "does not match" if wanted else "matches"
                raise RuleError(f"{rule.text}: it {told} its example {example!r}; change the rule or the example")


def _does_match(rule: Rule, example: str, *, is_deny: bool) -> bool:
    rules = Rules(deny=(rule,)) if is_deny else Rules(allow=(rule,))
    tool = rule.tool if rule.kind == "name" else min(COVERS[rule.tool])
    tool = "read" if rule.tool == "read" else tool
    command = example if rule.kind == "command" else None
    path = path_rules.tidy(example) if not path_rules.is_outside(example) else example
    asked = Asked(tool=tool, command=command, paths=(path or example,))
    return isinstance(decide(rules, asked), Denied) == is_deny


def _nearest(tool: str) -> str:
    return get_close_matches(tool, list(COVERS), n=1, cutoff=0.0)[0].capitalize()


def _pattern_words(text: str, specifier: str) -> tuple[str, ...]:
    pattern = specifier.strip()
    pattern = f"{pattern[:-2]} *" if pattern.endswith(":*") else pattern
    script = read_script(pattern)
    if script.problems or len(script.commands) != 1 or script.commands[0].redirects:
        why = script.problems[0] if script.problems else "rules are held against one command at a time"
        raise RuleError(f"{text}: this can never match: {why}; write the words of one command, with * for the rest")
    command = script.commands[0]
    if command.assignments or not command.words or any(DYNAMIC in word.text for word in command.words):
        raise RuleError(f"{text}: this can never match: a rule begins with a command and has no variables")
    return tuple(word.text for word in command.words)


def decide(rules: Rules, asked: Asked) -> Decision:
    """Whether the call may be carried out. Pure and total."""
    own = rules.for_tool(asked.tool)
    if asked.command is not None:
        return _decide_command(own, rules, reading=read_command(asked.command), command=asked.command)
    for rule in own.deny:
        named = [path for path in asked.paths if rule.specifier is None or _names(rule, path)]
        if named or rule.specifier is None:
            return Denied(rule=rule.text, how=named[0] if named else asked.tool, is_forbidden=True)
    for rules_of, is_repository in ((own.allow, False), (own.narrow, True)):
        binding = [rule for rule in rules_of if asked.tool not in SEARCHING or rule.tool in SEARCHING]
        missing = [path for path in asked.paths[:1] if not _permits(binding, path)]
        if binding and (missing or not asked.paths) and not any(rule.specifier is None for rule in binding):
            how = f"{', '.join(missing) or asked.tool} is not among them"
            return _unmatched(binding, how, is_repository=is_repository)
    return Allowed()


def hides(rules: Rules, path: str) -> bool:
    """Whether a search may not show what stands in the file."""
    own = rules.for_tool("read")
    if any(rule.specifier is None or _names(rule, path) for rule in own.deny):
        return True
    return not all(_permits(rules_of, path) for rules_of in (own.allow, own.narrow) if rules_of)


def _names(rule: Rule, path: str) -> bool:
    return path_rules.is_near(rule.specifier or "", path)


def _permits(rules: Iterable[Rule], path: str) -> bool:
    return any(rule.specifier is None or path_rules.matches(rule.specifier, path) for rule in rules)


def _unmatched(rules: Sequence[Rule], how: str, *, is_repository: bool) -> Denied:
    told = ", ".join(rule.text for rule in rules)
    return Denied(rule=told, how=how, is_forbidden=False, is_repository=is_repository)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """All words of a command line that can be seen, in their order, in the ways in which they may be meant."""

    lines: tuple[tuple[str, ...], ...] = field(default=())


def _seen(command: str) -> _Seen:
    joined = command.replace("\\\n", "")
    unquoted = re.sub(r"[\\'\"]", "", joined)
    split = re.sub(r"[\\'\"=,]", " ", joined)
    return _Seen(lines=tuple(tuple(SEEN_WORD.findall(text)) for text in (unquoted, split)))


def _decide_command(own: Rules, rules: Rules, *, reading: Reading, command: str) -> Decision:
    for rule in own.deny:
        hit = _forbidden(rule, reading, command=command)
        if hit is not None:
            return Denied(rule=rule.text, how=hit, is_forbidden=True)
    hit_path = _forbidden_path(rules, reading, command=command)
    if hit_path is not None:
        return hit_path
    for rules_of, is_repository in ((own.allow, False), (own.narrow, True)):
        how = _not_allowed(rules_of, reading)
        if how:
            return _unmatched(rules_of, how, is_repository=is_repository)
    return Allowed()


def _forbidden(rule: Rule, reading: Reading, *, command: str) -> str | None:
    """What of a command line a deny rule matches."""
    if rule.specifier is None:
        return command
    pattern = _denying(rule.words)
    for part in reading.parts:
        if pattern.match(_joined(part.texts)):
            return _shown(part)
    first = re.compile(_word(base_name(rule.words[0])) + "\\Z", re.DOTALL)
    for line in _seen(command).lines if reading.problems else ():
        for at, word in enumerate(line):
            if first.match(base_name(word)) and pattern.match(_joined(line[at : at + SEEN_AHEAD])):
                return " ".join(line[at : at + len(rule.words) + 1])
    return None


def _joined(words: Sequence[str]) -> str:
    """The words as patterns take them, the program without its folder."""
    return JOINT.join((base_name(words[0]), *words[1:]))


def _denying(words: tuple[str, ...]) -> re.Pattern[str]:
    """Wide: whatever follows, with options in between."""
    kept = words[:-1] if len(words) > 1 and words[-1] == "*" else words
    made = [_word(base_name(kept[0])), *(_rest(word) for word in kept[1:])]
    return re.compile(OPTIONS.join(made) + f"(?:{JOINT}.*)?\\Z", re.DOTALL)


def _allowing(words: tuple[str, ...]) -> re.Pattern[str]:
    """Exact: a `*` that is a word stands for any number of words, one inside a word for a part of it."""
    return re.compile(_word(words[0]) + "".join(_rest(word) for word in words[1:]) + "\\Z", re.DOTALL)


def _rest(word: str) -> str:
    return f"(?:{JOINT}[^{JOINT}]*)*" if word == "*" else JOINT + _word(word)


def _word(word: str) -> str:
    return f"[^{JOINT}]*".join(re.escape(part) for part in word.split("*"))


def _not_allowed(rules: Sequence[Rule], reading: Reading) -> str:
    """Why no allow rule matches all of a command line; empty if they do, or if there are none."""
    if not rules or any(rule.specifier is None for rule in rules):
        return ""
    if reading.problems:
        return f"it cannot be told what this runs: {reading.problems[0]}"
    judged = [part for part in reading.parts if part.is_judged]
    if not judged:
        return "it runs no command"
    patterns = [_allowing(rule.words) for rule in rules]
    for part in judged:
        line = JOINT.join(part.texts)
        if not any(pattern.match(line) for pattern in patterns):
            return f"`{_shown(part)}` is not among them"
    return ""


def _forbidden_path(rules: Rules, reading: Reading, *, command: str) -> Denied | None:
    """A file in the words of a command line that a rule about reading or editing forbids."""
    reads = [rule for rule in rules.deny if rule.tool == "read" and rule.specifier is not None]
    edits = [rule for rule in rules.deny if rule.tool in {"edit", "write"} and rule.specifier is not None]
    if not reads and not edits:
        return None
    for part in reading.parts:
        targets = [redirect.target.text for redirect in part.redirects if redirect.is_output]
        changed = [*part.texts[1:], *targets] if base_name(part.texts[0]) in WRITERS else targets
        shown = [*part.texts[1:], *(redirect.target.text for redirect in part.redirects)]
        found = _named(reads, shown) or _named(edits, changed)
        if found is not None:
            return found
    return _named(reads, _seen(command).lines[0]) if reading.problems else None


def _named(rules: Sequence[Rule], words: Iterable[str]) -> Denied | None:
    for word in words:
        for path in path_rules.paths_in(word):
            rule = next((rule for rule in rules if path_rules.is_near(rule.specifier or "", path)), None)
            if rule is not None:
                return Denied(rule=rule.text, how=path, is_forbidden=True)
    return None


def _shown(part: Part) -> str:
    return " ".join(part.texts).replace(DYNAMIC, "$…")
