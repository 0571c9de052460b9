"""The difference between two boards as a JSON Patch (RFC 6902) between their views, at a cost of what changed.

Sections and records that are the same object are not looked at; a record that changed is diffed alone with `jsonpatch`
and its paths are prefixed. So one change among 10,000 entries costs one comparison by identity for each entry, and the
size of the patch does not depend on the size of the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import jsonpatch
import jsonpointer

from xnagent.core.archive import is_same
from xnagent.core.board import Board
from xnagent.core.text import Json, canonical
from xnagent.core.view import SECTIONS, Document, Entry, is_shown, render_entry, section

Operation: TypeAlias = dict[str, Any]
"""One operation of RFC 6902."""


class PatchError(ValueError):
    """A patch does not fit its document; the message names the operation and its path."""


def delta(old: Board, new: Board) -> tuple[Operation, ...]:
    """The patch from `view(old)` to `view(new)`, in a fixed order; empty if the views are equal."""
    return tuple(
        operation
        for name in SECTIONS
        if section(old, name) is not section(new, name)
        for operation in _section_delta(name, old=section(old, name), new=section(new, name))
    )


def _section_delta(name: str, *, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[Operation]:
    for key, before in old.items():
        if key not in new and is_shown(before):
            yield {"op": "remove", "path": _path(name, key)}
    for key, record in new.items():
        before = old.get(key)
        if not is_same(before, record):
            yield from _entry_delta(name, key, before=before, record=record)


def _entry_delta(name: str, key: str, *, before: object | None, record: object) -> Iterator[Operation]:
    was_shown = before is not None and is_shown(before)
    if not is_shown(record):
        if was_shown:
            yield {"op": "remove", "path": _path(name, key)}
        return
    entry = render_entry(name, record)
    if not was_shown:
        yield {"op": "add", "path": _path(name, key), "value": entry}
        return
    yield from diff(render_entry(name, before), entry, at=_path(name, key))


def diff(old: Entry, new: Entry, *, at: str = "") -> tuple[Operation, ...]:
    """The patch between two JSON values, paths prefixed with the pointer `at`.

    The patch is applied once before it is trusted; if it does not reproduce `new`, one `replace` of the whole stands
    for it (B062).
    """
    if canonical(old) == canonical(new):
        return ()
    operations = jsonpatch.make_patch(old, new).patch
    if not _reproduces(operations, old=old, new=new):
        operations = [{"op": "replace", "path": "", "value": new}]
    return tuple(_prefixed(operation, at) for operation in operations)


def _reproduces(operations: Sequence[Operation], *, old: Entry, new: Entry) -> bool:
    try:
        return canonical(apply(old, operations)) == canonical(new)
    except PatchError:
        return False


def apply(document: Json, operations: Sequence[Operation]) -> Json:
    """The document with the patch applied; neither argument is changed.

    Raises `PatchError` with the index of the first operation that does not fit; then nothing was applied.
    """
    for index, operation in enumerate(operations):
        try:
            document = jsonpatch.apply_patch(document, [operation])
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as error:
            message = f"operation {index} at {_where(operation)!r} does not fit: {error}"
            raise PatchError(message) from error
    return document


def _where(operation: object) -> object:
    return operation.get("path") if isinstance(operation, Mapping) else operation


def apply_to_view(document: Document, operations: Sequence[Operation]) -> Document:
    """A view with the deltas that followed it applied."""
    return cast("Document", apply(cast("Json", document), operations))


def _path(*parts: str) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _prefixed(operation: Operation, at: str) -> Operation:
    moved = {**operation, "path": at + operation["path"]}
    return {**moved, "from": at + operation["from"]} if "from" in operation else moved
