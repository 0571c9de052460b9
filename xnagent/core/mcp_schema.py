"""The schema of a foreign tool, made into one that every provider takes and that our own checker can read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from xnagent.core.text import Json, canonical, clean, clip

TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
MOST_CHARACTERS: Final = 12_000
"""Of a schema as canonical JSON; where it is longer its descriptions go, and if that is not enough, the tool."""
DESCRIPTION_CHARACTERS: Final = 400
VALUE_CHARACTERS: Final = 500
"""Of a default, an example, a pattern; what is longer is left out."""
MOST_CHOICES: Final = 200
DEEPEST: Final = 12
PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""What providers take for the name of an argument."""

_DROPPED: Final = frozenset({"$anchor", "$comment", "$id", "$schema", "$vocabulary", "title"})
_NOT_ON_TOP: Final = ("$ref", "allOf", "anyOf", "enum", "not", "oneOf")
_NAMED: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_SINGLE: Final = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedProperties"}
)
_LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})


def sound_schema(raw: Json) -> str | None:
    """The schema as canonical JSON; None where it is too large, or an argument has a name that no provider takes."""
    schema = {**_node(raw, 0), "type": "object"}
    for keyword in _NOT_ON_TOP:
        schema.pop(keyword, None)
    properties = schema.setdefault("properties", {})
    if not isinstance(properties, Mapping) or not all(PROPERTY.fullmatch(name) for name in properties):
        return None
    text = canonical(schema)
    if len(text) > MOST_CHARACTERS:
        text = canonical(_undescribed(schema))
    return text if len(text) <= MOST_CHARACTERS else None


def _node(raw: Json, depth: int) -> dict[str, Json]:
    if not isinstance(raw, Mapping) or depth > DEEPEST:
        return {}
    kept = {
        name: _value(name, raw[name], depth=depth) for name in sorted(raw) if name not in _DROPPED and name[:2] != "x-"
    }
    return {name: value for name, value in kept.items() if value is not None}


def _value(name: str, raw: Json, *, depth: int) -> Json:
    """What of a keyword's value is kept; None: nothing."""
    if name in _NAMED:
        return {one: _node(part, depth + 1) for one, part in raw.items()} if isinstance(raw, Mapping) else None
    if name in _SINGLE:
        is_schema = isinstance(raw, Mapping)
        return _node(raw, depth + 1) if is_schema else raw if isinstance(raw, bool) else None
    if name in _LISTED:
        return [_node(part, depth + 1) for part in _listed(raw)] or None
    check = _CHECKED.get(name)
    if check is not None:
        return check(raw)
    return raw if len(canonical(raw)) <= VALUE_CHARACTERS else None


def _listed(raw: Json) -> Sequence[Json]:
    return raw if isinstance(raw, Sequence) and not isinstance(raw, str) else []


def _types(raw: Json) -> Json:
    names = [raw] if isinstance(raw, str) else _listed(raw)
    known = [name for name in names if isinstance(name, str) and name in TYPES]
    return known[0] if len(known) == 1 else known or None


def _choices(raw: Json) -> Json:
    return raw if 0 < len(_listed(raw)) <= MOST_CHOICES else None


def _names(raw: Json) -> Json:
    return sorted({name for name in _listed(raw) if isinstance(name, str)}) or None


def _reference(raw: Json) -> Json:
    return raw if isinstance(raw, str) and raw.startswith("#") else None


def _described(raw: Json) -> Json:
    return clip(clean(raw), DESCRIPTION_CHARACTERS, head_share=1.0) if isinstance(raw, str) and raw else None


_CHECKED: Final[Mapping[str, Callable[[Json], Json]]] = {
    "$ref": _reference,
    "description": _described,
    "enum": _choices,
    "required": _names,
    "type": _types,
}


def _undescribed(schema: Json) -> Json:
    if isinstance(schema, Mapping):
        kept = {name: part for name, part in schema.items() if name != "description" or not isinstance(part, str)}
        return {name: _undescribed(part) for name, part in kept.items()}
    return [_undescribed(part) for part in schema] if _listed(schema) and isinstance(schema, Sequence) else schema
