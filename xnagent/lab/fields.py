"""Fields of records that others wrote: what is not there or of another type is empty."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from xnagent.core.text import Json, clean

Fields: TypeAlias = Mapping[str, Json]


def text_at(record: Fields, name: str) -> str:
    """The text of a field, without half surrogate pairs; whatever else stands there, as JSON."""
    value = record.get(name)
    if value is None:
        return ""
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def count_at(record: Fields, name: str) -> int:
    """A whole number that is not negative; 0 for what is none, or not finite."""
    value = record.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return max(0, int(value)) if is_number and isinstance(value, int | float) and math.isfinite(value) else 0


def list_at(record: Fields, name: str) -> Sequence[Fields]:
    """The objects of a list."""
    value = record.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def object_at(record: Fields, name: str) -> Fields:
    """An object."""
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def seconds_of(text: str) -> float | None:
    """A time in ISO 8601 as seconds; None if it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
