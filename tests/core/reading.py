"""What a model could do with the messages alone: rebuild the state that it was told."""

import json
import re
from collections.abc import Iterable, Mapping

from xnagent.core.delta import Operation, apply_to_view
from xnagent.core.items import Item, UserText
from xnagent.core.view import Document

DELTA_OPENING = re.compile(r'<state_delta from="(\d+)" to="(\d+)">\n')
VOLATILE_SHAPES = {
    "time": re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d"),
    "uuid": re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    "temporary path": re.compile(r"/(tmp|var/folders|private/tmp)/"),
    "request id": re.compile(r"\b(req|request|chatcmpl)[-_]?id\b|\b(req|chatcmpl)-\w{6,}"),
}


def state_in(text: str) -> Document:
    """The document between the state tags."""
    return json.loads(text.split("<state>\n", 1)[1].split("\n</state>", 1)[0])


def operations_in(text: str) -> list[Operation]:
    """The operations of a delta."""
    lines = DELTA_OPENING.sub("", text, count=1).removesuffix("</state_delta>").split("\n")
    return [json.loads(line) for line in lines if line and not line.startswith("- ")]


def causes_in(text: str) -> list[str]:
    """The lines of a delta that say what happened."""
    return [line[2:] for line in text.split("\n") if line.startswith("- ")]


def deltas_in(items: Iterable[Item]) -> list[str]:
    return [text for text in state_texts(items) if text.startswith("<state_delta ")]


def state_texts(items: Iterable[Item]) -> list[str]:
    return [item.text for item in items if isinstance(item, UserText) and item.origin == "state"]


def told_view(items: Iterable[Item]) -> Document | None:
    """The state as the messages tell it: a baseline or checkpoint, and every delta after it."""
    document: Document | None = None
    for text in state_texts(items):
        if text.startswith("<state_delta "):
            document = apply_to_view({} if document is None else document, operations_in(text))
        else:
            document = state_in(text)
    return document


def volatile_in(text: str) -> Mapping[str, str]:
    """What in the text would differ in another run of the same work."""
    return {name: found.group() for name, shape in VOLATILE_SHAPES.items() if (found := shape.search(text))}
