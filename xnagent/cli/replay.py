"""`xnagent replay`: a session run again from its log; how it stood at an event; where another one parts from it."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from itertools import islice
from typing import Final, cast

from xnagent.app.replay import Difference, Replayed, replay, request_bytes
from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.cli.inspect import read
from xnagent.cli.request import difference
from xnagent.core.text import Json, canonical
from xnagent.errors import UsageError
from xnagent.inspect.decisions import Decision, Parting, part
from xnagent.inspect.moment import moment_record, moment_text
from xnagent.inspect.plain import count, line
from xnagent.inspect.reading import Reading
from xnagent.store.place import Place

DIFFERS: Final = 3
SHOWN_CHARACTERS: Final = 400
MOST_EVENTS: Final = 1 << 40


def execute(arguments: Namespace, console: Console) -> int:
    """0 if everything came out the same, else 3 with the first thing that did not."""
    host = host_of(arguments)
    place = host.place(arguments.session)
    other, at = getattr(arguments, "diff", None), getattr(arguments, "at", None)
    if other is not None:
        return _diff(read(place), read(host.place(other)), console=console)
    if at is not None:
        return _stand(place, at, console=console)
    found = replay(place.events())
    if console.output != "text":
        console.record({"type": "replay", "session": arguments.session, **asdict(found)})
    else:
        console.answer("\n".join(_told(found)))
    return DIFFERS if found.first is not None else 0


def _told(found: Replayed) -> list[str]:
    made = f"{found.requests} requests, {found.messages} messages, {found.rebases} rebases, {found.calls} calls"
    same = "all the same, byte for byte"
    verdict = f"{len(found.problems)} differ" if found.problems else same
    if found.changed and not found.problems:
        verdict = f"{same}, as recorded; a new session would begin otherwise here"
    first = [] if found.first is None else [f"first difference: {_difference(found.first)}"]
    return [f"{made}: {verdict}", *first, *found.changed, *found.problems]


def _difference(first: Difference) -> str:
    where = "no request" if first.request is None else f"request {first.request}"
    return line(f"{where} of {first.agent}, in {first.segment}: {first.what} (event {first.seq})", SHOWN_CHARACTERS)


def _stand(place: Place, at: int, *, console: Console) -> int:
    events = tuple(islice(place.events(), min(at, MOST_EVENTS) + 1))
    if at > len(events):
        raise UsageError(f"there is no event {at}; session {place.name} has {len(events)}")
    following = events[at] if at < len(events) else None
    events = events[:at]
    found = replay(events)
    session = place.read_session()
    if console.output != "text":
        record = moment_record(session, events, following=following)
        console.record({**record, "replay": cast("Json", asdict(found))})
    else:
        console.answer("\n".join([moment_text(session, events, following=following), "", *_told(found)]))
    return DIFFERS if found.first is not None else 0


def _diff(here: Reading, there: Reading, *, console: Console) -> int:
    parting = part(here.events, there.events)
    asked = _asked(here, there, parting=parting)
    if console.output == "text":
        console.answer("\n".join(_diff_text(here, there, parting=parting, asked=asked)))
    else:
        console.record(_diff_record(here, there, parting=parting, asked=asked))
    return 0 if parting.is_same else DIFFERS


def _asked(here: Reading, there: Reading, *, parting: Parting) -> dict[str, Json] | None:
    """What the two models were asked: whether it was the same, and if not, where the requests part."""
    ours, theirs = parting.here, parting.there
    if ours is None or theirs is None or ours.request is None or theirs.request is None:
        return None
    if ours.sha256 == theirs.sha256:
        return {"is_same": True, "item": None, "here": None, "there": None}
    found = difference(request_bytes(here.events, ours.request), request_bytes(there.events, theirs.request))
    return {"is_same": False, "item": found["item"], "here": found["before"], "there": found["after"]}


def _diff_record(here: Reading, there: Reading, *, parting: Parting, asked: dict[str, Json] | None) -> dict[str, Json]:
    return {
        "type": "diff",
        "session": here.session,
        "other": there.session,
        "is_same": parting.is_same,
        "common": {"decisions": sum(parting.common.values()), "by_agent": dict(parting.common)},
        "first": None
        if parting.is_same
        else {
            "agent": parting.who,
            "number": parting.number,
            "session": _side(parting.here),
            "other": _side(parting.there),
            "asked": asked,
        },
    }


def _side(decision: Decision | None) -> Json:
    if decision is None:
        return None
    names = ("seq", "request", "kind", "what")
    return {name: getattr(decision, name) for name in names}


def _diff_text(here: Reading, there: Reading, *, parting: Parting, asked: dict[str, Json] | None) -> list[str]:
    each = ", ".join(f"{name} {count(number)}" for name, number in parting.common.items() if number)
    total = sum(parting.common.values())
    common = f"{count(total)} {'decision is' if total == 1 else 'decisions are'} the same" + (
        f" ({each})" if each else ""
    )
    if parting.is_same:
        return [f"{common}, and there are no others"]
    sides = [(here.session, parting.here), (there.session, parting.there)]
    first = f"first other decision: number {parting.number} of {parting.who}"
    return [common, first, *(f"  {session}: {_decision(decision)}" for session, decision in sides), *_why(asked)]


def _decision(decision: Decision | None) -> str:
    if decision is None:
        return "none: it goes no further"
    request = "" if decision.request is None else f", answers request {decision.request}"
    what = line(f"{decision.kind} {canonical(decision.what)}", SHOWN_CHARACTERS)
    return f"{what} (event {decision.seq}{request})"


def _why(asked: dict[str, Json] | None) -> list[str]:
    if asked is None:
        return []
    if asked["is_same"]:
        return ["both were asked the same, byte for byte"]
    sides = [f"  {side}: {line(str(asked[side]), SHOWN_CHARACTERS)}" for side in ("here", "there")]
    return [f"they were not asked the same: the requests part at {asked['item']}", *sides]
