"""`xnagent request`: the exact bytes of a request, where two differ, or what it is made of and what that cost."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, cast

from xnagent.app.comparing import Comparison, compare
from xnagent.app.explaining import explain
from xnagent.app.replay import request_bytes
from xnagent.app.supposing import suppose
from xnagent.cli.console import Console
from xnagent.cli.explained import as_fields, explained, supposed
from xnagent.cli.hosting import host_of
from xnagent.cli.inspect import show
from xnagent.core.events import Stored
from xnagent.core.text import Json, canonical
from xnagent.errors import UsageError
from xnagent.inspect.plain import count, line, money, visible

SHOWN_CHARACTERS: Final = 400


def execute(arguments: Namespace, console: Console) -> int:
    """The bytes to stdout, nothing else."""
    events = tuple(host_of(arguments).place(arguments.session).events())
    body = request_bytes(events, arguments.request)
    other = getattr(arguments, "against", None)
    changes = getattr(arguments, "what_if", [])
    if changes or hasattr(arguments, "explain"):
        if other is not None:
            raise UsageError("USAGE: --against compares two requests; give it without --explain and --what-if")
        return _explain(arguments, events, console=console)
    if other is None:
        if console.mask.data(body) is not body:
            console.warn("xnagent: a secret is masked below; the bytes that were sent are others")
        console.raw(body)
        return 0
    found = difference(request_bytes(events, other), body)
    prefix = compare(events, arguments.request, against=other)
    if console.output == "text":
        console.answer("\n".join([_told(found, arguments.request, other=other), *_explained(prefix)]))
    else:
        fields = {"is_same_lineage": prefix.is_same_lineage, **cast("dict[str, Json]", asdict(prefix))}
        console.record({"type": "difference", "request": arguments.request, "against": other, **found, **fields})
    return 0


def _explain(arguments: Namespace, events: Sequence[Stored], *, console: Console) -> int:
    """The request part by part, what changes to it would have cost, or both."""
    number = arguments.request
    told = explain(events, number) if hasattr(arguments, "explain") else None
    suppositions = suppose(events, number, changes=getattr(arguments, "what_if", []))
    if console.output == "text":
        parts = [] if told is None else explained(told, mask=console.mask)
        show(console, [*parts, *supposed(suppositions, mask=console.mask)])
    else:
        fields = {} if told is None else as_fields(told)
        what_if: list[Json] = [as_fields(one) for one in suppositions]
        console.record({"type": "explanation", "request": number, **fields, "what_if": what_if})
    return 0


def _explained(prefix: Comparison) -> list[str]:
    """What became of the prefix, for people."""
    kept = f"kept {count(prefix.kept_tokens)} tokens"
    lines = [
        f"lineage: {prefix.lineage}" + ("" if prefix.is_same_lineage else f", not {prefix.against_lineage}"),
        kept if prefix.segment is None else f"{kept}, lost {count(prefix.lost_tokens)}, {_more(prefix)}",
    ]
    if prefix.segment is not None:
        lines.append(f"breaks at: {prefix.segment} (it reads {prefix.order}): {line(prefix.detail, SHOWN_CHARACTERS)}")
    for label, event in (("declared", prefix.declared), ("undeclared", prefix.reported)):
        if event is not None:
            lines.append(f"{label}: {event.event} ({line(event.cause, SHOWN_CHARACTERS)}), event {event.seq}")
    return lines


def _more(prefix: Comparison) -> str:
    return f"which costs {money(prefix.lost_usd)} more than from the cache"


def difference(before: bytes, after: bytes) -> dict[str, Json]:
    """The first item of two requests that is not the same, and how many bytes they share."""
    shared = next(
        (n for n, (left, right) in enumerate(zip(before, after, strict=False)) if left != right),
        min(len(before), len(after)),
    )
    old, new = _items(before), _items(after)
    index = next((n for n in range(max(len(old), len(new))) if old[n : n + 1] != new[n : n + 1]), None)
    name = None if index is None else (new[index] if index < len(new) else old[index])[0]
    return {
        "is_extension": old == new[: len(old)],
        "shared_bytes": shared,
        "item": name,
        "before": None if index is None or index >= len(old) else old[index][1],
        "after": None if index is None or index >= len(new) else new[index][1],
    }


def _items(body: bytes) -> list[tuple[str, str]]:
    """The request's parts in the order in which they are rendered, each with its name."""
    fields: dict[str, Any] = json.loads(body)
    items: list[tuple[str, str]] = []
    for name, value in fields.items():
        if isinstance(value, list):
            items += [
                (f"{name}[{n}]{where}", canonical(part)) for n, one in enumerate(value) for where, part in _parts(one)
            ]
        else:
            items.append((name, canonical(value)))
    return items


def _parts(message: Json) -> list[tuple[str, Json]]:
    """A message of blocks in its blocks, without cache markers: they move, and no cache counts them."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return [("", _unmarked(message))]
    rest = {name: value for name, value in message.items() if name != "content"}
    blocks = [(f".content[{n}]", _unmarked(block)) for n, block in enumerate(message["content"])]
    return [("", rest), *blocks]


def _unmarked(value: Json) -> Json:
    return {name: part for name, part in value.items() if name != "cache_control"} if isinstance(value, dict) else value


def _told(found: dict[str, Json], request: int, *, other: int) -> str:
    if found["item"] is None:
        return f"requests {other} and {request} are the same"
    what = "extends" if found["is_extension"] else "does not extend"
    sides = [
        f"{label}: {visible(str(found[key]))[:SHOWN_CHARACTERS]}" if found[key] is not None else f"{label}: nothing"
        for label, key in ((f"request {other}", "before"), (f"request {request}", "after"))
    ]
    first = f"request {request} {what} request {other}; {found['shared_bytes']:,} bytes are the same"
    return "\n".join([first, f"first difference: {found['item']}", *sides])
