"""How things came to be as they are: facts with each change, deltas with what they say, both from the events alone."""

from __future__ import annotations

import json
from collections.abc import Iterable

from xnagent.core.events import FactCorrected, FactRecorded, FactRetracted, Stored
from xnagent.core.items import UserText
from xnagent.core.spine_events import SpineExtended, ToolFinished
from xnagent.core.text import Json

Row = dict[str, Json]
FactEvent = FactRecorded | FactCorrected | FactRetracted


def fact_histories(events: Iterable[Stored]) -> dict[str, list[Row]]:
    """The changes of each fact in order: `recorded`, `corrected`, `retracted`, by whom, and where in the log."""
    histories: dict[str, list[Row]] = {}
    unsigned: list[Row] = []
    for stored in events:
        event = stored.event
        if isinstance(event, FactEvent):
            row: Row = {"seq": stored.seq, "at": stored.at, **_change(event)}
            histories.setdefault(event.fact, []).append(row)
            unsigned += [row] if row["by"] is None else []
        elif isinstance(event, ToolFinished):
            # A state tool's events stand in the log right before the result of its call.
            for row in unsigned:
                row["by"] = event.agent
            unsigned = []
    return histories


def _change(event: FactEvent) -> Row:
    match event:
        case FactRecorded():
            return {"change": "recorded", "by": event.source, "text": event.text, "value": event.value}
        case FactCorrected():
            return {"change": "corrected", "by": event.source, "text": event.text, "value": event.value}
        case FactRetracted():
            return {"change": "retracted", "by": None, "text": event.reason, "value": None}


def told_by(event: SpineExtended) -> Row:
    """What a baseline or delta says: `patch`, the operations of RFC 6902, and `causes`, a line for each."""
    lines = [line for item in event.items if isinstance(item, UserText) for line in item.text.split("\n")]
    if event.kind != "delta":
        return {"patch": [], "causes": []}
    return {
        "patch": [operation for line in lines if (operation := _operation(line)) is not None],
        "causes": [line.removeprefix("- ") for line in lines if line.startswith("- ")],
    }


def _operation(line: str) -> Row | None:
    if not line.startswith("{"):
        return None
    try:
        read = json.loads(line)
    except ValueError:
        return None
    return read if isinstance(read, dict) and "op" in read and "path" in read else None
