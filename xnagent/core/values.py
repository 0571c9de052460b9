"""`dataclasses.dataclass` for modules that every command loads: the same classes, their methods made at first use.

The standard decorator compiles six methods for each class, which takes half a millisecond (Python 3.11), and a command
loads hundreds of classes of which it uses a quarter. Here a method is a promise until somebody looks it up; then the
standard decorator makes it, of the same fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NoReturn

_ALONE: Final = {"init": False, "repr": False, "eq": False}
_MADE_BY: Final[Mapping[str, Mapping[str, bool]]] = {
    "__init__": {"init": True},
    "__repr__": {"repr": True},
    "__eq__": {"eq": True},
    "__hash__": {"eq": True, "unsafe_hash": True},
}
"""What makes the standard decorator write each method, and as little else as possible."""
_FIELD: Final = ("default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
_NOT_PROMISED: Final = ("ClassVar", "InitVar", "KW_ONLY")


class _Promise:
    """Stands for a method; whoever looks it up gets the real one, which then stands in its place."""

    __slots__ = ("kind", "name", "options")

    def __init__(self, kind: type, name: str, *, options: Mapping[str, bool]) -> None:
        self.kind, self.name, self.options = kind, name, options

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        method = _made(self.kind, self.name, options=self.options)
        setattr(self.kind, self.name, method)
        bound: Callable[..., Any] = method if instance is None else method.__get__(instance, owner)
        return bound


def _made(kind: type, name: str, *, options: Mapping[str, bool]) -> FunctionType:
    """The method as the standard decorator writes it, taken from a class with the same fields."""
    parts = {one.name: one for one in dataclasses.fields(kind)}
    body: dict[str, Any] = {part: _again(one) for part, one in parts.items()}
    body["__annotations__"] = {part: one.type for part, one in parts.items()}
    body |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    if hasattr(kind, "__post_init__"):
        body["__post_init__"] = None
    chosen = {**_ALONE, **(options if name == "__init__" else {}), **_MADE_BY[name]}
    method: FunctionType = vars(dataclasses.dataclass(**chosen)(type(kind.__name__, (), body)))[name]
    return method


def _again(one: dataclasses.Field[object]) -> object:
    """The same field for another class."""
    return dataclasses.field(**{name: getattr(one, name) for name in _FIELD})


def _refuse_set(instance: object, name: str, _value: object) -> NoReturn:
    """Frozen."""
    message = f"cannot assign to field {name!r} of {type(instance).__name__}"
    raise dataclasses.FrozenInstanceError(message)


def _refuse_delete(instance: object, name: str) -> NoReturn:
    """Frozen."""
    message = f"cannot delete field {name!r} of {type(instance).__name__}"
    raise dataclasses.FrozenInstanceError(message)


@cache
def _sample(**options: bool) -> type:
    """A class made with the same options: what is the same for all of them is taken from it."""
    return dataclasses.dataclass(**options)(type("Sample", (), {"__doc__": ""}))


def _dataclass(**options: bool) -> Callable[[type], type]:
    """As `dataclasses.dataclass(frozen=…, slots=…, kw_only=…)`."""

    def decorated(kind: type) -> type:
        if not _is_promised(kind, options):
            return dataclasses.dataclass(**options)(kind)
        if kind.__doc__ is None:
            kind.__doc__ = kind.__name__
        own = frozenset(vars(kind))
        made: type = dataclasses.dataclass(**{**options, **_ALONE, "frozen": False})(kind)
        for name in _MADE_BY:
            if name not in own:
                _promise(made, name, options=options)
        for name, value in _shared(options).items():
            if name not in own:
                setattr(made, name, value)
        return made

    return decorated


def _is_promised(kind: type, options: Mapping[str, bool]) -> bool:
    """Whether it is a plain one: no dataclass above it, and nothing but fields in it."""
    if kind.__mro__[1:] != (object,) or options.keys() - {"frozen", "slots", "kw_only"}:
        return False
    return not any(word in str(given) for given in kind.__annotations__.values() for word in _NOT_PROMISED)


def _promise(kind: type, name: str, *, options: Mapping[str, bool]) -> None:
    is_hashable = name != "__hash__" or options.get("frozen")
    setattr(kind, name, _Promise(kind, name, options=options) if is_hashable else None)


def _shared(options: Mapping[str, bool]) -> dict[str, Any]:
    sample = vars(_sample(**options))
    shared = {name: sample[name] for name in ("__getstate__", "__setstate__", "__dataclass_params__") if name in sample}
    frozen = {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
    return {**shared, **frozen} if options.get("frozen") else shared


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass

__all__ = ["dataclass"]
