"""What was decided in a session, by whom, and where two sessions part.

Decisions are compared agent by agent, because side by side runs may come in another order without a difference. They
are the same if they mean the same: what a session calls itself, where its repository is, when things were, how
arguments were spelled, and how stored outputs are called, is left aside. To wait is to decide nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from xnagent.core.events import (
    CheckFinished,
    Event,
    LimitReached,
    RunSettled,
    SessionSettled,
    SessionStarted,
    Stored,
    UserMessageAdded,
)
from xnagent.core.fold import fold
from xnagent.core.fork_events import SessionForked
from xnagent.core.ids import PLANNER, TICKET, owner_of
from xnagent.core.items import calls_of, text_of
from xnagent.core.spine_events import (
    ModelReplaced,
    ReplyReceived,
    RequestFailed,
    RequestStarted,
    SpineRebased,
    ToolsChanged,
)
from xnagent.core.state import SessionState, can_progress
from xnagent.core.text import Json, canonical

USER: Final = "user"
SESSION: Final = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Something that could have been decided otherwise."""

    seq: int
    """Of the event that tells it."""
    who: str
    """`user`, an agent, a run for what was judged of it, or `session`."""
    kind: str
    """`objective`, `message`, a tool, `answer`, `rebase`, `model`, `tools`, `fault`, `check`, `settled`, `limit`,
    `end`."""
    what: Json
    """As it stands in the log: a tool's arguments, a text."""
    meaning: str
    """The same without what is left aside."""
    request: int | None = None
    """The one that it answers."""
    sha256: str = ""
    """Of that request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first decision that two sessions do not share."""

    common: Mapping[str, int]
    """How many decisions before it are the same, by who made them."""
    who: str = ""
    number: int = 0
    """Which of theirs it is, from 1; 0: the sessions do not part."""
    here: Decision | None = None
    """None: there is none more."""
    there: Decision | None = None

    @property
    def is_same(self) -> bool:
        """Whether all decisions are the same."""
        return not self.number


def part(here: Iterable[Stored], there: Iterable[Stored]) -> Parting:
    """Where two sessions part; of what each agent did otherwise, the first in the order of the log."""
    left, right = _by_who(decisions(here)), _by_who(decisions(there))
    common = {name: _shared(left.get(name, []), right.get(name, [])) for name in dict.fromkeys((*left, *right))}
    partings = [
        Parting(
            common=common,
            who=name,
            number=shared + 1,
            here=_one(left.get(name, []), shared),
            there=_one(right.get(name, []), shared),
        )
        for name, shared in common.items()
        if shared < max(len(left.get(name, [])), len(right.get(name, [])))
    ]
    if not partings:
        return Parting(common=common)
    first = min(partings, key=lambda parting: min(one.seq for one in (parting.here, parting.there) if one is not None))
    counts = [_before(side, one, common=common) for side, one in ((left, first.here), (right, first.there)) if one]
    return replace(first, common={name: min(count[name] for count in counts) for name in common})


def _one(side: Sequence[Decision], number: int) -> Decision | None:
    return side[number] if number < len(side) else None


def _before(
    side: Mapping[str, Sequence[Decision]], parting: Decision, *, common: Mapping[str, int]
) -> Mapping[str, int]:
    """How many of the shared decisions of each stand before the one in which they part."""
    return {name: sum(one.seq <= parting.seq for one in side.get(name, ())[:shared]) for name, shared in common.items()}


def _by_who(found: Iterable[Decision]) -> dict[str, list[Decision]]:
    lists: dict[str, list[Decision]] = {}
    for decision in found:
        lists.setdefault(decision.who, []).append(decision)
    return lists


def _shared(left: Sequence[Decision], right: Sequence[Decision]) -> int:
    pairs = zip(left, right, strict=False)
    different = (number for number, (one, other) in enumerate(pairs) if not is_same(one, other))
    return next(different, min(len(left), len(right)))


def is_same(one: Decision, other: Decision) -> bool:
    """Whether two decisions mean the same."""
    return one.kind == other.kind and (one.meaning == other.meaning or one.what == other.what)


def decisions(events: Iterable[Stored]) -> Iterator[Decision]:
    """All decisions of a session, in the order of its log."""
    walk = _Walk()
    for stored in events:
        yield from walk.take(stored)
    if walk.settled is not None:
        yield from walk.end(*walk.settled)


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Goes through a log and remembers what names stand for."""

    state: SessionState = field(default_factory=SessionState)
    counts: dict[str, int] = field(default_factory=dict)
    """Decisions so far, by who made them."""
    names: dict[str, str] = field(default_factory=dict)
    """What stands for names that are a session's own."""
    tickets: dict[str, str] = field(default_factory=dict)
    """Where each was named first."""
    requests: dict[int, str] = field(default_factory=dict)
    """Hashes of requests by their number."""
    settled: tuple[int, SessionSettled] | None = None

    def take(self, stored: Stored) -> Iterator[Decision]:
        """What the event decides."""
        event = stored.event
        self._learn(event)
        if isinstance(event, RequestStarted):
            self.requests[event.request] = event.sha256
        before, self.state = self.state, fold(self.state, event)
        self.settled = None if self.state.settled is None else self.settled
        if isinstance(event, SessionSettled):
            self.settled = stored.seq, event
        elif isinstance(event, ReplyReceived):
            yield from self._reply(event, before, seq=stored.seq)
        elif (found := _decided(event)) is not None:
            who, kind, what = found
            yield self._decision(stored.seq, who, kind=kind, what=what)

    def end(self, seq: int, event: SessionSettled) -> Iterator[Decision]:
        """The session's end, if nothing came after it."""
        yield self._decision(seq, SESSION, kind="end", what=event.outcome)

    def _reply(self, event: ReplyReceived, before: SessionState, *, seq: int) -> Iterator[Decision]:
        if owner_of(event.agent) != event.agent:
            return
        calls = calls_of(event.items)
        for call in calls:
            yield self._decision(seq, event.agent, kind=call.name, what=_parsed(call.arguments), request=event.request)
        is_waiting = event.agent == PLANNER and can_progress(before)
        if not calls and not is_waiting:
            text = " ".join(text_of(event.items).split())
            yield self._decision(seq, event.agent, kind="answer", what=text, request=event.request)

    def _decision(self, seq: int, who: str, *, kind: str, what: Json, request: int | None = None) -> Decision:
        self.counts[who] = self.counts.get(who, 0) + 1
        meaning = TICKET.sub(lambda found: self.tickets.get(found[0], found[0]), canonical(what))
        for name in sorted(self.names, key=len, reverse=True):
            meaning = meaning.replace(name, self.names[name])
        sha = self.requests.get(request, "") if request is not None else ""
        return Decision(seq=seq, who=who, kind=kind, what=what, meaning=meaning, request=request, sha256=sha)

    def _learn(self, event: Event) -> None:
        if isinstance(event, SessionStarted):
            own = {event.session: "{session}", event.repository: "{repository}"}
            self.names |= {name: stands for name, stands in own.items() if name}
        if isinstance(event, SessionForked):
            self.names[event.origin] = "{session}"
        who = str(getattr(event, "agent", None) or getattr(event, "run", None) or SESSION)
        for number, ticket in enumerate(TICKET.findall(str(event))):
            place = f"{{{who} {self.counts.get(who, 0)} {event.type} {number}}}"
            self.tickets.setdefault(ticket, place)


def _decided(event: Event) -> tuple[str, str, Json] | None:
    match event:
        case SessionStarted():
            return USER, "objective", {"objective": event.objective, "checks": list(event.checks)}
        case UserMessageAdded():
            return USER, "message", event.text
        case CheckFinished():
            check: dict[str, Json] = {"command": event.evidence.command, "passed": event.evidence.has_passed}
            return event.run or SESSION, "check", check
        case RunSettled():
            return event.run, "settled", {"status": event.status, "conflicts": list(event.conflicts)}
        case LimitReached():
            return SESSION, "limit", event.limit
        case _:
            return _of_history(event)


def _of_history(event: Event) -> tuple[str, str, Json] | None:
    match event:
        case SpineRebased():
            return event.agent, "rebase", event.cause
        case ModelReplaced():
            return event.agent, "model", {"model": event.model, "replaced": event.replaced, "cause": event.cause}
        case ToolsChanged():
            return event.agent, "tools", {"removed": list(event.removed), "added": list(event.added)}
        case RequestFailed():
            return event.agent, "fault", event.fault
        case _:
            return None


def _parsed(arguments: str) -> Json:
    try:
        value: Json = json.loads(arguments)
    except ValueError:
        return arguments
    return value
