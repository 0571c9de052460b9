"""`dataclasses.replace` for the values that every event copies: the same result, in less than half of the time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from xnagent.core.values import dataclass

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """How the fields of a slotted class are read and set."""

    read: Callable[[Any], tuple[object, ...]]
    """All at once."""
    setters: tuple[Callable[[object, object], None], ...]
    by_name: dict[str, Callable[[object, object], None]]
    """The same."""


@cache
def _parts_of(kind: Hashable) -> _Parts:
    slotted = cast("type[Any]", kind)
    names = [field.name for field in fields(slotted)]
    by_name = {name: getattr(slotted, name).__set__ for name in names}
    return _Parts(read=attrgetter(*names), setters=tuple(by_name.values()), by_name=by_name)


def _evolved(value: Value, /, **changes: object) -> Value:
    """A copy of a slotted dataclass without `__post_init__`, with some fields changed; KeyError for an unknown name."""
    kind: type[Any] = type(value)
    parts = _parts_of(cast("Hashable", kind))
    copy: Value = object.__new__(kind)
    for setter, part in zip(parts.setters, parts.read(value), strict=True):
        setter(copy, part)
    for name, part in changes.items():
        parts.by_name[name](copy, part)
    return copy


if TYPE_CHECKING:
    from dataclasses import replace as evolve
else:
    evolve = _evolved

__all__ = ["evolve"]
