"""`xnagent export`: sessions in the forms that other programs read."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.cli.inspect import read
from xnagent.cli.report import STDOUT, check_target, write_whole
from xnagent.core.ids import PLANNER, Ticket, role_of
from xnagent.core.masking import Mask
from xnagent.core.text import Json, clean
from xnagent.errors import UsageError
from xnagent.export import atif, github, otlp
from xnagent.export.swebench import prediction
from xnagent.export.tracer import spans_of
from xnagent.inspect.reading import Reading, final_of
from xnagent.store.place import Place

MANY: Final = frozenset({"swebench", "github", "jsonl"})
"""Formats of which one file may hold several sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One session that goes out."""

    reading: Reading
    place: Place
    mask: Mask
    instance: str
    has_content: bool


def execute(arguments: Namespace, console: Console) -> int:
    """Write them, whole or not at all."""
    sessions: list[str] = arguments.sessions
    instances: list[str] = getattr(arguments, "instance", None) or sessions
    _check(arguments, sessions, instances=instances)
    out: str = getattr(arguments, "out", STDOUT)
    if out != STDOUT:
        check_target(Path(out).expanduser())
    elif console.output != "text":
        raise UsageError("USAGE: the export goes to stdout, which can't carry a record too; name a file with -o")
    host = host_of(arguments)
    write = FORMATS[arguments.format]
    parts = []
    for session, instance in zip(sessions, instances, strict=True):
        place = host.place(session)
        export = Export(
            reading=read(place),
            place=place,
            mask=console.mask,
            instance=instance,
            has_content=getattr(arguments, "content", False),
        )
        parts.append(write(export))
    content = console.mask.data(clean("".join(parts)).encode())
    if out == STDOUT:
        console.raw(content)
        return 0
    write_whole(Path(out).expanduser(), [content])
    if console.output != "text":
        listed: list[Json] = list(sessions)
        file = str(Path(out).expanduser().absolute())
        console.record(
            {"type": "export", "format": arguments.format, "sessions": listed, "file": file, "bytes": len(content)}
        )
    console.say(f"{arguments.format} of {', '.join(sessions)}: {out} ({len(content):,} bytes)")
    return 0


def _check(arguments: Namespace, sessions: list[str], *, instances: list[str]) -> None:
    if len(sessions) > 1 and arguments.format not in MANY:
        raise UsageError(f"USAGE: {arguments.format} holds one session; export them one by one")
    if hasattr(arguments, "instance") and arguments.format != "swebench":
        raise UsageError("USAGE: --instance is for --format swebench")
    if hasattr(arguments, "content") and arguments.format != "otel":
        raise UsageError("USAGE: --content is for --format otel")
    if len(instances) != len(sessions):
        raise UsageError(
            f"USAGE: {len(sessions)} sessions and {len(instances)} --instance; give one for each, in order"
        )


def _atif(export: Export) -> str:
    return _line(atif.document(export.reading, mask=export.mask))


def _otel(export: Export) -> str:
    spans = spans_of(export.reading.events, has_content=export.has_content)
    return _line(otlp.document(otlp.masked(span, export.mask) for span in spans))


def _swebench(export: Export) -> str:
    return _line(prediction_of(export.place, export.reading, instance=export.instance))


def _github(export: Export) -> str:
    return export.mask.text(github.summary(final_of(export.reading), export.reading.state))


def _jsonl(export: Export) -> str:
    settled = [final_of(export.reading)] if export.reading.state.settled is not None else []
    return "".join(_line(record) for record in [*export.reading.records, *settled])


FORMATS: Final[Mapping[str, Callable[[Export], str]]] = {
    "atif": _atif,
    "otel": _otel,
    "swebench": _swebench,
    "github": _github,
    "jsonl": _jsonl,
}


def prediction_of(place: Place, reading: Reading, *, instance: str) -> dict[str, Json]:
    """The session's result as it was when it ended; nothing of it if it did not come to an end."""
    applied, manifests = reading.state.applied, reading.state.manifests
    patch = None if applied is None or applied.patch is None else place.artifact(Ticket(applied.patch))
    known = [manifest.model for manifest in manifests.values() if role_of(PLANNER) == manifest.role]
    return prediction(instance, model=known[0] if known else "", patch=patch)


def _line(record: Mapping[str, Json]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
