"""`dataclasses.replace` for the values that every event copies: the same result, in less than half of the time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """How the fields of a slotted class are read and set."""

    read: Callable[[Any], tuple[object, ...]]
    """All at once."""
    setters: tuple[Callable[[object, object], None], ...]
    places: dict[str, int]


@cache
def _parts_of(kind: Hashable) -> _Parts:
    slotted = cast("type[Any]", kind)
    names = [field.name for field in fields(slotted)]
    return _Parts(
        read=attrgetter(*names),
        setters=tuple(getattr(slotted, name).__set__ for name in names),
        places={name: place for place, name in enumerate(names)},
    )


def _evolved(value: Value, /, **changes: object) -> Value:
    """A copy of a slotted dataclass without `__post_init__`, with some fields changed; KeyError for an unknown name."""
    kind: type[Any] = type(value)
    parts = _parts_of(cast("Hashable", kind))
    content = list(parts.read(value))
    for name, part in changes.items():
        content[parts.places[name]] = part
    copy: Value = object.__new__(kind)
    for setter, part in zip(parts.setters, content, strict=True):
        setter(copy, part)
    return copy


if TYPE_CHECKING:
    from dataclasses import replace as evolve
else:
    evolve = _evolved

__all__ = ["evolve"]
