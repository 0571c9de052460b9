"""Classes whose methods are made at first use are what the standard decorator makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from xnagent.core import values
from xnagent.core.values import dataclass

Decorator = Callable[..., Callable[[type], type]]
FROZEN = {"frozen": True, "slots": True, "kw_only": True}


def make(decorator: Decorator, **options: bool) -> type[Any]:
    class Value:
        """A value."""

        name: str
        count: int = 1
        parts: list[int] = field(default_factory=list)
        hidden: int = field(default=0, repr=False, compare=False)
        late: int = field(init=False, default=7)

    Value.__qualname__ = "Value"
    return decorator(**options)(Value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Above(Point):
    z: int = 0


@dataclass(slots=True)
class Counting:
    made: ClassVar[list[int]] = []
    number: int

    def __post_init__(self) -> None:
        self.made.append(self.number)


@pytest.mark.parametrize(
    "options",
    [FROZEN, {"slots": True, "kw_only": True}, {"slots": True}, {"frozen": True}, {"frozen": True, "slots": True}],
)
def test_methods_fields_and_signatures_are_those_of_the_standard_decorator(options: dict[str, bool]):
    ours, theirs = make(dataclass, **options), make(dataclasses.dataclass, **options)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    one, other = ours(name="a", count=2), theirs(name="a", count=2)
    assert (repr(one), dataclasses.asdict(one)) == (repr(other), dataclasses.asdict(other))
    assert ours.__match_args__ == theirs.__match_args__
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)
    assert one == ours(name="a", count=2, hidden=5)
    assert one != ours(name="b", count=2)
    assert one != other
    with pytest.raises(TypeError, match="name"):
        ours()


def test_a_frozen_value_stays_what_it_is_and_can_be_copied():
    point = Point(x=1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="'y'"):
        del point.y  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point
    assert dataclasses.replace(point, y=3) == Point(x=1, y=3)
    assert {point: "seen"}[Point(x=1)] == "seen"


def test_a_class_below_another_and_one_with_more_than_fields_are_made_at_once():
    assert Above(x=1, z=2) == Above(x=1, y=0, z=2)
    assert dataclasses.fields(Above)[-1].name == "z"
    assert Counting(4).made == [4]


def test_no_method_is_made_before_it_is_looked_up():
    kind = make(dataclass, **FROZEN)
    promised = {name for name, found in vars(kind).items() if type(found).__module__ == values.__name__}
    assert promised == {"__init__", "__repr__", "__eq__", "__hash__"}
    kind(name="a")
    assert inspect.isfunction(vars(kind)["__init__"])
    assert not inspect.isfunction(vars(kind)["__eq__"])


def test_a_run_loads_neither_rich_nor_structlog():
    # With click, httpx loads its own command line, which needs rich.
    code = (
        "import sys; sys.modules['click'] = None; import xnagent.cli.run\n"
        "print(*{'rich', 'structlog'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
