"""`dataclasses.replace` for the values that every event copies: the same result, in less than a fifth of the time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, make_dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from xnagent.core.values import dataclass

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copier:
    """How the fields of a slotted class are read, and into what they are written."""

    read: Callable[[Any], tuple[object, ...]]
    """All at once."""
    twin: Callable[..., Any]
    """A class with the same slots that is not frozen: Python sets its fields quickly, and lets it change its class."""


@cache
def _copier_of(kind: Hashable) -> _Copier:
    names = [field.name for field in fields(cast("type[Any]", kind))]
    twin = make_dataclass("Twin", [(name, object) for name in names], slots=True, eq=False, repr=False)
    read = attrgetter(*names)
    return _Copier(read=read if len(names) > 1 else lambda value: (read(value),), twin=twin)


def thawed(value: Value) -> Value:
    """A copy of a slotted dataclass whose fields can be set, until it is `frozen`: nobody else may get it before."""
    copier = _copier_of(cast("Hashable", type(value)))
    return cast("Value", copier.twin(*copier.read(value)))


def frozen(copy: object, kind: type[Value]) -> Value:
    """The same object, from now on a value of its own class again."""
    copy.__class__ = kind
    return cast("Value", copy)


def _evolved(value: Value, /, **changes: object) -> Value:
    """A copy of a slotted dataclass without `__post_init__`, with some fields changed; KeyError for an unknown name."""
    kind: type[Any] = type(value)
    copier = _copier_of(cast("Hashable", kind))
    copy = copier.twin(*copier.read(value))
    try:
        for name, part in changes.items():
            setattr(copy, name, part)
    except AttributeError as error:
        raise KeyError(error.name) from error
    copy.__class__ = kind
    return cast("Value", copy)


if TYPE_CHECKING:
    from dataclasses import replace as evolve
else:
    evolve = _evolved

__all__ = ["evolve", "frozen", "thawed"]
