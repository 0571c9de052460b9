"""What a scripted model says: rules, and how they are chosen. The same shape in Python, TOML and JSON.

::

    planner_wait = "Waiting."                 # optional: the answer when no rule fits

    [[planner]]                               # a rule
    when = ["needs work"]                     # all must occur in what is new since the last request
    text = "I will split it."
    calls = [{ name = "plan", arguments = { tasks = [] } }]

    [[worker]]                                # rules of the conversations whose first user message contains `match`
    match = "Task parser"
    attempt = 1                               # optional: only the first such conversation
    [[worker.steps]]
    calls = [{ name = "bash", arguments = '{"command": "ls"}' }]

A `[[worker]]` or `[[planner]]` entry without `steps` is itself a rule; neighbours with the same `match` and `attempt`
belong together.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

from xnagent.core.text import Json

Role = Literal["planner", "worker"]

QUIRKS: Final[Mapping[str, str]] = {
    "bom": "a byte order mark before the stream",
    "crlf": "lines end with CR LF",
    "split": "every few bytes go as a chunk of their own, so that characters are torn",
    "keepalive": "comments, empty data frames and pings between the events",
    "text_type": "the stream is called text/plain",
    "no_usage": "usage is not sent",
    "null_usage": "usage is null",
    "no_done": "the closing mark of the chat wire is not sent",
    "empty_choices": "the chat wire begins with a chunk without choices",
    "repeated_ids": "later pieces of a call repeat its id and name, empty or null (chat)",
    "index_zero": "all calls have index 0 (chat)",
    "duplicate_ids": "all calls have the same id",
    "empty_ids": "no call has an id",
    "truncated_arguments": "one call, its arguments cut off; the same answer comes whole to the next request",
}
"""What may be odd about a whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A failure in place of a whole answer."""

    status: int = 0
    """Answer with this status, `headers` and `body`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names and values; a value `date+30` or `date-60` becomes an HTTP date so many seconds from now."""
    body: Json = ""
    """Text as it is; anything else as JSON."""
    cut_after: int | None = None
    """Send so many bytes of the stream, then close the connection."""
    cut_share: float | None = None
    """Send this share (0 to 1) of the bytes that come before the end of the answer is told, then close."""
    is_polite: bool = False
    """A cut ends the HTTP message as if it were whole."""
    hang: str = ""
    """`start`: never answer; `stream`: one event, then silence; `keepalive`: one event, then only comments."""
    hang_seconds: float = 0.0
    """Close the connection after that; 0: when the server stops."""
    html: bool = False
    """Answer 200, or `status`, with a web page."""
    error_event: Json = None
    """Answer 200 with a stream of this one event."""
    after_events: int = 0
    """How many events of the answer come before the error event or the silence."""
    content_type: str = ""
    """In place of `application/json`; without `status` it goes with 200."""

    @property
    def needs_answer(self) -> bool:
        """Whether a part of an answer is sent."""
        return self.cut_after is not None or self.cut_share is not None or self.after_events > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool call of an answer."""

    name: str
    arguments: Json = field(default_factory=dict)
    """An object, or the string exactly as it is sent."""
    id: str | None = None
    """None: a unique one is made; an empty one is sent as it is."""

    @property
    def text(self) -> str:
        """The arguments as a string; spaces and escapes as a model would write them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySpec:
    """One answer."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: str = ""
    """Empty: `tool_calls` or `stop`."""
    usage: Mapping[str, Json] | None = None
    """In place of the counted usage; empty: none is sent."""
    delay_seconds: float = 0.0
    fault: Fault | None = None
    quirks: tuple[str, ...] = ()
    """Oddities of an answer that is whole all the same: names in `quirks.QUIRKS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An answer and when it is given."""

    reply: ReplySpec
    when: tuple[str, ...] = ()
    times: int = 1
    """How often in one conversation; 0: any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The rules of some conversations."""

    rules: tuple[Rule, ...]
    match: str = ""
    """Must occur in the first user message."""
    attempt: int | None = None
    """Only the n-th conversation that matches."""
    wait: str | None = None
    """The answer when no rule fits; None: that is a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Everything a scripted server says."""

    planner: tuple[Section, ...] = ()
    worker: tuple[Section, ...] = ()

    def sections(self, role: Role) -> tuple[Section, ...]:
        """The sections of a role."""
        return self.planner if role == "planner" else self.worker


def load_script(path: str | Path) -> Script:
    """Read a TOML or JSON file."""
    text = Path(path).read_text(encoding="utf-8")
    return parse_script(json.loads(text) if str(path).endswith(".json") else tomllib.loads(text))


def parse_script(data: Mapping[str, Any]) -> Script:
    """A script from data of the shape above. Raises ValueError for a key that does not belong there."""
    known = {"planner", "worker", "planner_wait", "worker_wait"}
    _require_known(data, known, what="script")
    return Script(
        planner=tuple(_sections(data.get("planner", ()), wait=data.get("planner_wait"))),
        worker=tuple(_sections(data.get("worker", ()), wait=data.get("worker_wait"))),
    )


def _sections(entries: Sequence[Mapping[str, Any]], *, wait: str | None) -> Iterable[Section]:
    for (match, attempt, has_steps), group in groupby(entries, key=_place):
        members = list(group)
        if has_steps:
            for entry in members:
                _require_known(entry, {"match", "attempt", "wait", "steps"}, what="section")
                rules = tuple(map(_rule, entry["steps"]))
                yield Section(rules=rules, match=match, attempt=attempt, wait=entry.get("wait", wait))
        else:
            rules = tuple(_rule({k: v for k, v in entry.items() if k not in _PLACE}) for entry in members)
            yield Section(rules=rules, match=match, attempt=attempt, wait=wait)


_PLACE = frozenset({"match", "attempt"})


def _place(entry: Mapping[str, Any]) -> tuple[str, int | None, bool]:
    return entry.get("match", ""), entry.get("attempt"), "steps" in entry


def _rule(entry: Mapping[str, Any]) -> Rule:
    data = dict(entry)
    when = data.pop("when", ())
    times = data.pop("times", 1)
    return Rule(reply=parse_reply(data), when=(when,) if isinstance(when, str) else tuple(when), times=times)


def parse_reply(data: Mapping[str, Any]) -> ReplySpec:
    """An answer from data."""
    _require_known(data, {f.name for f in fields(ReplySpec)}, what="rule")
    values = dict(data)
    values["calls"] = tuple(_call(call) for call in data.get("calls", ()))
    values["quirks"] = tuple(data.get("quirks", ()))
    _require_known(dict.fromkeys(values["quirks"]), QUIRKS, what="rule's quirks")
    if data.get("fault") is not None:
        values["fault"] = _fault(data["fault"])
    return ReplySpec(**values)


def _call(data: Mapping[str, Any]) -> ScriptedCall:
    _require_known(data, {f.name for f in fields(ScriptedCall)}, what="call")
    return ScriptedCall(**data)


def _fault(data: Mapping[str, Any]) -> Fault:
    _require_known(data, {f.name for f in fields(Fault)}, what="fault")
    values = dict(data)
    if values.get("hang") is True:
        values["hang"] = "start"
    return Fault(**values)


def _require_known(data: Mapping[str, Any], known: Iterable[str], *, what: str) -> None:
    if unknown := sorted(set(data).difference(known)):
        raise ValueError(f"unknown key {unknown[0]!r} in a {what}; known: {', '.join(sorted(known))}")
